"""The parts of the simulated engine (agent/simulated_engine.py). Standard library alone."""

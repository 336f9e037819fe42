"""The real processes of a node: shim and engine, what adopts them again, GPUs, log files and the models on the disk."""

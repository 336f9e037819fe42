"""The simulated engine (agent/simulated_engine.py): llama-server's command line and API, with behaviour by `--sim-…`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

from agent.engines.llamacpp import LlamaCpp
from agent.llamacpp_options import NO_VALUE, ONE_VALUE, SIMULATED_NO_VALUE, SIMULATED_ONE_VALUE, options


class Simulated(LlamaCpp):
    """The engine "simulated": prepared, checked and understood as llama-server is."""

    name = "simulated"
    options: Mapping[str, tuple[str, int]] = MappingProxyType(
        options(NO_VALUE + SIMULATED_NO_VALUE, ONE_VALUE + SIMULATED_ONE_VALUE)
    )
    system_config_files = ()
    program = (sys.executable, "-m", "agent.simulated_engine")

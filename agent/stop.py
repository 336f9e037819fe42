"""Stops the engines of a node whose agent does not run (`slotserve-agent stop-engines`)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agent.clock import NodeClock
from agent.runtime.gpu import Gpus
from agent.runtime.launcher import ChannelRuntime
from agent.runtime.models import ModelIndex
from agent.settings import AgentSettings, NodeFile
from agent.state import State


async def stop_all(file: NodeFile, settings: AgentSettings) -> dict[str, Any]:
    """{"stopped": bool, "running": [{"channel", "pid"}]}. Holds the agent's lock meanwhile. Raises AgentError."""
    state = State(settings.agent_state_dir)
    lock = state.lock()
    try:
        clock, gpus, models = NodeClock(state.folder / "clock.json"), Gpus(), ModelIndex(file.channels)
        answers = await asyncio.gather(
            *(
                _stop(ChannelRuntime(c, file, settings, models, gpus, clock.now_ms), settings.stop_timeout_seconds)
                for c in file.channels
            )
        )
    finally:
        os.close(lock)
    running = [{"channel": c.name, "pid": pid} for c, pid in zip(file.channels, answers, strict=True) if pid]
    return {"stopped": not running, "running": running}


async def _stop(runtime: ChannelRuntime, seconds: float | None) -> int:
    """The pid of what would not end; 0 = nothing runs."""
    process = runtime.adopt()
    if process is None:
        return 0
    gone = await runtime.stop(process, 30.0 if seconds is None else seconds)
    return 0 if gone else process.engine_pid

"""Stops the engines of a node whose agent does not run (`slotserve-agent stop-engines`), also those of channels that the
node's file no longer has and those that are on their way down already."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agent.runtime import adoption
from agent.settings import AgentSettings
from agent.state import State


async def stop_all(settings: AgentSettings) -> dict[str, Any]:
    """{"stopped": bool, "running": [{"channel", "pid"}]}. Holds the agent's lock meanwhile. Raises AgentError."""
    state = State(settings.agent_state_dir)
    lock = state.lock()
    timeout = 30.0 if settings.stop_timeout_seconds is None else settings.stop_timeout_seconds
    try:
        folders = adoption.channel_folders(state.folder.absolute())
        answers = await asyncio.gather(*(adoption.stop_engine(paths, timeout) for paths in folders))
    finally:
        os.close(lock)
    running = [
        {"channel": paths.root.name, "pid": pid} for paths, left in zip(folders, answers, strict=True) for pid in left
    ]
    return {"stopped": not running, "running": running}

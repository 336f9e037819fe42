"""What the tests of the launcher share: a runtime with a small model and a small server, and its end."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from agent.core.types import Launch
from agent.interfaces import Process
from agent.runtime import proc
from agent.runtime.gpu import Gpus
from agent.runtime.launcher import ChannelRuntime
from agent.runtime.models import ModelIndex
from agent.runtime.records import CHANNEL_MARKER
from agent.settings import AgentSettings, ChannelConfig, EngineConfig, NodeFile

SMALL = [sys.executable, "-S", str(Path(__file__).parents[2] / "fakes" / "small_server.py")]
CLOCK = itertools.count(1_800_000_000_000, 1000)


def runtime(
    folder: Path,
    command: list[str] | None = None,
    *,
    driver: Gpus | None = None,
    env: dict[str, str] | None = None,
    env_of_channel: dict[str, str] | None = None,
    run_dir: Path | None = None,
    **more: Any,
) -> ChannelRuntime:
    """The channel `main` of a node whose state lies in `folder`, with the model `m`; engine llama.cpp = `command`."""
    models = folder / "models"
    models.mkdir(exist_ok=True)
    if not (models / "m.gguf").exists():
        (models / "m.gguf").write_bytes(b"GGUF" + bytes(60))
    fields = {
        "name": "main",
        "model_folders": [models],
        "engines": ["llama.cpp", "simulated"],
        "env": env_of_channel or {},
        **more,
    }
    channel = ChannelConfig.model_validate(fields)
    engines = {"llama.cpp": EngineConfig(command=command or SMALL, env=env or {})}
    node = NodeFile(node="n1", engines=engines, channels=[channel])
    settings = AgentSettings(agent_state_dir=folder, agent_run_dir=run_dir or folder / "run", stop_timeout_seconds=3)
    return ChannelRuntime(channel, node, settings, ModelIndex([channel]), driver or Gpus(), lambda: next(CLOCK))


def launch(*args: str, model: str = "m", **more: Any) -> Launch:
    return Launch(
        **{"identity": "id-" + model, "model": model, "preset": None, "engine": "llama.cpp", "args": args, **more}
    )


async def start(r: ChannelRuntime, *args: str, **more: Any) -> Process:
    return await r.start(launch(*args, **more), "r1", next(CLOCK))


async def until_ready(r: ChannelRuntime, process: Process, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not await r.probe(process):
        assert time.monotonic() < end, f"not ready: {r.logs.tail(process.launch_id)}"
        await asyncio.sleep(0.02)


def end_all(folder: Path) -> None:
    """Nothing that a test started outlives it."""
    root = folder.absolute() / "channels" / "main"
    for _ in range(100):
        left = proc.marked(CHANNEL_MARKER, str(root))
        if not left:
            return
        proc.send_all(left, signal.SIGKILL)
        time.sleep(0.02)
        while True:  # shims that were our children
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break

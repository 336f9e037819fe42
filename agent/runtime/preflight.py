"""What can be known about a launch without starting it, in words: engine, model file, arguments, GPUs, socket path."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.core.types import Launch
from agent.engines import names as known_engines
from agent.engines.base import Engine, Prepared
from agent.engines.simulated import Simulated
from agent.interfaces import Trouble
from agent.runtime.models import FoundModel
from agent.settings import ChannelConfig, EngineConfig

MAX_SOCKET_PATH = 107
BUILT_IN = {"simulated": EngineConfig(command=list(Simulated.program))}
CPU_WANTED = {
    *((name, "0") for name in ("-ngl", "--gpu-layers", "--n-gpu-layers")),
    *((name, "none") for name in ("-dev", "--device")),
    ("--device", "cpu"),
}
ASK_TIMEOUT = 10.0


def engine_config(name: str, engines: Mapping[str, EngineConfig]) -> EngineConfig | None:
    """How the node starts this engine; the simulated one needs no declaration."""
    return engines.get(name) or BUILT_IN.get(name)


def check_engine(launch: Launch, channel: ChannelConfig, engines: Mapping[str, EngineConfig]) -> Trouble | None:
    config = engine_config(launch.engine, engines)
    if launch.engine not in channel.engines:
        have = ", ".join(channel.engines)
        return Trouble("bad_argument", f"channel {channel.name} has no engine {launch.engine} (it has: {have})")
    if launch.engine not in known_engines:
        return Trouble("bad_argument", f"{launch.engine} is not an engine that SlotServe can start")
    if config is None:
        return Trouble("missing_file", f"the node's file does not say how to start {launch.engine}")
    if shutil.which(config.command[0], path=config.env.get("PATH") or os.environ.get("PATH")) is None:
        return Trouble(
            "missing_file",
            f"the engine's program {config.command[0]} is not there or may not be executed; "
            f"mend [engines.{launch.engine!r}] in the node's file",
        )
    return None


def check_model(launch: Launch, model: FoundModel | None, engine: Engine, channel: ChannelConfig) -> Trouble | None:
    if model is None:
        folders = ", ".join(map(str, channel.model_folders)) or "none is declared"
        return Trouble("missing_file", f"model {launch.model} is not in the channel's model folders ({folders})")
    if not Path(model.path).exists():
        return Trouble("missing_file", f"the model's file {model.path} is gone")
    if model.incomplete:
        missing = "missing" in model.detail
        return Trouble("missing_file" if missing else "broken_file", f"model {model.name}: {model.detail}")
    if model.format not in engine.formats:
        return Trouble("bad_argument", f"{engine.name} cannot load {model.format} models such as {model.name}")
    return None


def check_socket(path: Path) -> Trouble | None:
    length = len(os.fsencode(path))
    if length <= MAX_SOCKET_PATH:
        return None
    return Trouble(
        "bad_argument",
        f"the engine's socket {path} has {length} bytes, at most {MAX_SOCKET_PATH} are possible: "
        "set SLOTSERVE_AGENT_RUN_DIR to a shorter folder",
    )


def wants_no_gpu(args: Sequence[str]) -> bool:
    """Whether a preset asks for the processor: no layers, or no device, on a GPU."""
    pairs = {(a.replace("_", "-") if a.startswith("--") else a, b) for a, b in itertools.pairwise(args)}
    pairs |= {
        (a.partition("=")[0].replace("_", "-"), a.partition("=")[2]) for a in args if a.startswith("--") and "=" in a
    }
    return bool(pairs & CPU_WANTED)


async def check_arguments(launch: Launch, program: Sequence[str], prepared: Prepared) -> Trouble | None:
    """Arguments our table does not know: llama.cpp refuses what it does not know, so the installed program is asked (it
    may be newer than the table). The others are told by their own parsers at the start."""
    if not prepared.unknown:
        return None
    if launch.engine == "simulated":
        return _refused(launch, prepared.unknown[0], "")
    if launch.engine == "llama.cpp":
        for argument in prepared.unknown:
            line = await _ask(program, argument, prepared.env)
            if line:
                return _refused(launch, argument, line)
    return None


async def _ask(program: Sequence[str], argument: str, env: Mapping[str, str]) -> str:
    """The program's own error line for this argument, "" where it knows it (or cannot be asked). `--version` ends it
    before anything is loaded; thrice, for the argument may take up to two of them as its values."""
    try:
        asked = await asyncio.create_subprocess_exec(
            *program,
            argument,
            *["--version"] * 3,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**env, "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(ASK_TIMEOUT):
            output, _ = await asked.communicate()
    except TimeoutError:
        return ""
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    text = output.decode("utf-8", "replace")
    return next((x.strip() for x in text.splitlines() if "invalid argument" in x and argument in x), "")


def _refused(launch: Launch, argument: str, line: str) -> Trouble:
    return Trouble("bad_argument", f"{launch.engine} does not know the argument {argument}; take it out", line)

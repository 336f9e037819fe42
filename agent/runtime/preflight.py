"""What can be known about a launch without starting it, in words: engine, model file, arguments, GPUs, socket path."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.core.types import Launch
from agent.engines import names as known_engines
from agent.engines.base import Ended, Engine
from agent.engines.simulated import Simulated
from agent.interfaces import Trouble
from agent.runtime import proc
from agent.runtime.models import FoundModel
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER
from agent.settings import ChannelConfig, EngineConfig

log = logging.getLogger(__name__)
MAX_SOCKET_PATH = 107
BUILT_IN = {"simulated": EngineConfig(command=list(Simulated.program))}
CPU_WANTED = {
    *((name, "0") for name in ("-ngl", "--gpu-layers", "--n-gpu-layers")),
    *((name, "none") for name in ("-dev", "--device")),
    ("--device", "cpu"),
}
ASK_TIMEOUT = 10.0
END_SECONDS = 2.0
TOLD_BY_ASKING = ("bad_argument", "missing_file", "missing_library")


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
        return Trouble(
            "missing_file",
            f"the node's file does not say how to start {launch.engine}: add [engines.{launch.engine!r}]",
        )
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
        return Trouble(
            "missing_file", f"model {launch.model} is not in the channel's model folders ({folders}): put it there"
        )
    if not Path(model.path).exists():
        return Trouble("missing_file", f"the model's file {model.path} is gone: put it back, or choose another model")
    if model.incomplete:
        missing = "missing" in model.detail
        return Trouble(
            "missing_file" if missing else "broken_file", f"model {model.name}: {model.detail}; copy it again, whole"
        )
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


def stamp(program: Sequence[str], env: Mapping[str, str]) -> tuple[object, ...]:
    """Changes when any file of the program is replaced."""
    found: list[object] = []
    for word in program:
        path = shutil.which(word, path=env.get("PATH") or os.environ.get("PATH")) or word
        try:
            seen = os.stat(path)
        except (OSError, ValueError):
            found.append(word)  # an option
        else:
            found.append((path, seen.st_mtime_ns, seen.st_size))
    return tuple(found)


async def check_arguments(
    engine: Engine, launch: Launch, command: Sequence[str], env: Mapping[str, str], root: Path
) -> Trouble | None:
    """What the engine itself says of these arguments: `command` has it read them and end (Engine.check_command). None
    where it takes them, and where it says nothing that is understood: then the start will tell. `root`: of the channel;
    whatever the program has started meanwhile ends with the question."""
    question = f"asked-{secrets.token_hex(8)}"
    try:
        asked = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**env, CHANNEL_MARKER: str(root), LAUNCH_MARKER: question},
            start_new_session=True,
        )
    except (OSError, ValueError) as err:
        log.warning("engine cannot be asked engine=%s error=%r", launch.engine, str(err))
        return None
    try:
        async with asyncio.timeout(ASK_TIMEOUT):
            output, _ = await asked.communicate()
    except TimeoutError:
        log.warning(
            "engine did not say what it makes of its arguments engine=%s seconds=%s", launch.engine, ASK_TIMEOUT
        )
        return None
    finally:
        if asked.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            await asked.wait()
        await asyncio.to_thread(_end_marked, question)
    if asked.returncode == 0:
        return None
    verdict = engine.classify(output.decode("utf-8", "replace"), Ended(asked.returncode), launch.args)
    if verdict.category not in TOLD_BY_ASKING:
        return None
    return Trouble(verdict.category, verdict.reason, verdict.detail)  # type: ignore[arg-type]


def _end_marked(question: str) -> None:
    """Until a look finds none: what forks while it is looked for is found by the next one."""
    end = time.monotonic() + END_SECONDS
    while (left := proc.marked(LAUNCH_MARKER, question)) and time.monotonic() < end:
        proc.send_all(left, signal.SIGKILL)
        log.warning("the engine's program left processes behind when asked pids=%s", [s.pid for s in left])
        time.sleep(0.02)

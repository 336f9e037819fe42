"""GPU memory around a start and a stop: the driver frees it a little later than the process ends, and an engine that
answers without having taken any runs on the processor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping

from agent.runtime.gpu import Gpus

QUICK, SLOW, LONGEST = 0.05, 0.25, 10.0
LEAST = 32 << 20  # a smaller rise is no model
TOLERANCE = 256 << 20  # what a driver keeps or other programs' windows take


async def wait_free(
    gpus: Gpus,
    names: Iterable[str | int],
    before: Mapping[str, int],
    sleep: Callable[[float], object] = asyncio.sleep,
) -> str:
    """Looks at once, every 50 ms for 1 s, then every 250 ms, 10 s at most. "" = free (or nothing can be seen), else what
    is held. `before`: bytes in use by UUID before the engine that has ended was started."""
    names = list(names)
    if not names:
        return ""
    waited = 0.0
    while True:
        held = await gpus.aside(_held, gpus, names, before)
        if not held or waited >= LONGEST:
            return held
        pause = QUICK if waited < 1.0 - QUICK / 2 else SLOW
        await sleep(pause)  # type: ignore[misc]
        waited += pause


def taken(gpus: Gpus, names: Iterable[str | int], before: Mapping[str, int], pids: Container[int]) -> bool:
    """Whether an engine (its `pids`) has memory on these GPUs, as far as can be seen; True where nothing can."""
    names = list(names)
    used = gpus.used(names)
    if not used or not before:
        return True
    if any(used.get(uuid, 0) > was + LEAST for uuid, was in before.items()):
        return True
    return any(p.pid in pids for p in gpus.processes(names))


def rise(gpus: Gpus, names: Iterable[str | int], before: Mapping[str, int]) -> int:
    """Bytes in use now beyond `before`, on all of these GPUs together; 0 where one of them does not say."""
    used = gpus.used(names)
    if not before or not before.keys() <= used.keys():
        return 0
    return max(0, sum(used[uuid] - was for uuid, was in before.items()))


def _held(gpus: Gpus, names: list[str | int], before: Mapping[str, int]) -> str:
    processes = gpus.processes(names)
    if processes:
        who = ", ".join(f"process {p.pid} ({_gib(p.memory_bytes)}) on {p.gpu}" for p in processes)
        return f"GPU memory is still held by {who}"
    for uuid, used in gpus.used(names).items():
        if uuid in before and used > before[uuid] + TOLERANCE:
            return f"GPU {uuid} has {_gib(used)} in use, {_gib(used - before[uuid])} more than before the last start, and names no process"
    return ""


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"

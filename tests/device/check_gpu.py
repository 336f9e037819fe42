"""Checks what the agent sees of GPUs against a real NVIDIA driver, in well under 3 minutes:

    python -m tests.device.check_gpu

A child takes 2 GiB on the first GPU by the CUDA driver alone (libcuda: no toolkit, no PyTorch) and computes for a while.
Looked at: inventory, memory, use, temperature and power; the child among the processes; a foreign process named; memory
seen to rise and, after a SIGKILL, waited for. Nothing of the device's settings is touched. Exit status 0: all is well.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.runtime import memory
from agent.runtime.gpu import Gpus

HELD = 2 << 30
LONGEST = 60.0  # for the child to have its memory
failures: list[str] = []


def main() -> int:
    begun = time.monotonic()
    gpus = Gpus()
    seen = gpus.inventory()
    say("driver", gpus.reason or "answers")
    if not check("there is a GPU", bool(seen), gpus.reason):
        return 1
    for g in seen:
        say(f"GPU {g.index}", f"{g.uuid} {g.name} {g.memory_used_bytes / 2**20:.0f} of {g.memory_total_bytes / 2**20:.0f} MiB, "
            f"{g.utilisation_percent} %, {g.temperature_c} °C, {g.power_watts} W, {len(g.processes)} processes")  # fmt: skip
    first = seen[0].uuid
    check("memory is known", all(g.memory_total_bytes > 0 for g in seen))
    check("temperature and power are plausible", all(0 < (g.temperature_c or 40) < 120 for g in seen))
    check("nothing declared is missing", gpus.missing([g.uuid for g in seen]) == "")
    check("a card that is not there is told", "cannot be seen" in gpus.missing(["GPU-0000"]))
    check("an index and a UUID's beginning are understood", gpus.resolve([0, first[:12]]) == (first, first))
    compare_with_nvidia_smi(gpus)
    timed("one inventory", gpus.inventory)
    hold_and_free(gpus, first)
    seconds = time.monotonic() - begun
    check("all of it under 3 minutes", seconds < 180, f"{seconds:.1f} s")
    print("FAILED: " + "; ".join(failures) if failures else "all is well")
    return 1 if failures else 0


def hold_and_free(gpus: Gpus, uuid: str) -> None:
    before = gpus.used([uuid])
    check("nobody else computes on the first GPU", not gpus.processes([uuid]), "the figures below count others too")
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.device.check_gpu", "hold"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline() or "{}")
        if not check("a child takes 2 GiB", said.get("held") == HELD, str(said)):
            return
        used = until(lambda: gpus.used([uuid])[uuid] > before[uuid] + HELD // 2 and gpus.used([uuid]))
        check("memory rose", bool(used), f"{(gpus.used([uuid])[uuid] - before[uuid]) / 2**20:.0f} MiB more")
        found = [p for p in gpus.processes([uuid]) if p.pid == child.pid]
        check("the child is among the processes, with its memory", bool(found) and found[0].memory_bytes >= HELD // 2,
              f"pid {child.pid}; seen: {gpus.processes([uuid])} (in a container the driver may give the host's pids)")  # fmt: skip
        check("an engine with that pid counts as on its GPU", memory.taken(gpus, [uuid], before, {child.pid}))
        check("a use above 0 is seen while it computes", bool(until(lambda: any(gpus.utilisation([uuid])), 10)))
        held = asyncio.run(memory.wait_free(gpus, [uuid], before, no_waiting))
        check("what holds the memory is named", str(child.pid) in held or "in use" in held, held)
    finally:
        child.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        child.wait()
    held = asyncio.run(memory.wait_free(gpus, [uuid], before))
    check("after a SIGKILL memory is waited for and seen to be free", held == "", held)
    say("free after", f"{time.monotonic() - killed:.3f} s")


def compare_with_nvidia_smi(gpus: Gpus) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        say("nvidia-smi", "not there, not compared")
        return
    query = [program, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    theirs = [tuple(part.strip() for part in line.split(",")) for line in lines]
    ours = [(str(g.index), g.uuid, str(g.memory_total_bytes >> 20)) for g in gpus.inventory()]
    check("nvidia-smi says the same", [t[:2] for t in theirs] == [o[:2] for o in ours], f"{theirs} and {ours}")


def hold() -> None:
    """The child: takes memory, says so, and writes into it over and over until it is ended."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, place = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(place), ctypes.c_size_t(HELD))),
    ]
    for name, arguments in steps:
        code = getattr(cuda, name)(*arguments)
        if code:
            print(json.dumps({"failed": name, "code": code}), flush=True)
            return
    print(json.dumps({"held": HELD}), flush=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and os.getppid() != 1:
        for value in range(50):
            cuda.cuMemsetD8_v2(place, ctypes.c_ubyte(value), ctypes.c_size_t(HELD))
        cuda.cuCtxSynchronize()


def check(what: str, good: bool, detail: str = "") -> bool:
    print(f"{'ok  ' if good else 'FAIL'} {what}{f': {detail}' if detail else ''}", flush=True)
    if not good:
        failures.append(what)
    return good


def say(what: str, detail: str) -> None:
    print(f"     {what}: {detail}", flush=True)


def timed(what: str, question: Callable[[], Any]) -> None:
    begun = time.monotonic()
    question()
    say(what, f"{(time.monotonic() - begun) * 1000:.1f} ms")


def until(true: Callable[[], Any], seconds: float = LONGEST) -> Any:
    end = time.monotonic() + seconds
    while not (answer := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return answer


async def no_waiting(_: float) -> None:
    return None


if __name__ == "__main__":
    if sys.argv[1:] == ["hold"]:
        hold()
    else:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        sys.exit(main())

"""Checks what the agent sees of GPUs against a real NVIDIA driver, in well under 3 minutes:

    python -m tests.device.check_gpu

Two children take memory on a GPU by the CUDA driver alone (libcuda: no toolkit, no PyTorch) and compute for a while.
Looked at: inventory, memory, use, temperature and power; the children among the processes, named; memory seen to rise
and, after a SIGKILL, waited for; a CUDA_VISIBLE_DEVICES by UUID. Nothing of the device's settings is touched.

A line a check: PASS, FAIL, or SKIP where this machine's driver cannot tell, with words. Exit status 0: nothing failed;
1: something did; 2: nothing to check, for there is no NVIDIA driver or GPU here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.runtime import memory, proc
from agent.runtime.gpu import Gpu, Gpus
from tests.device.holder import HELD, Holder

LONGEST = 60.0  # for a child to have its memory
PATIENCE = float(os.environ.get("CHECK_GPU_PATIENCE", "15"))  # for what may never be seen
MIB = 1 << 20


class Skip(Exception):
    """This machine cannot tell; says why."""


class Checks:
    """The checks by name; one that raises has failed, whatever it raised, and the next ones go on."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    @contextmanager
    def check(self, name: str) -> Iterator[Callable[[bool, object], None]]:
        """Inside: `need(good, words)`; the last words stand behind the name."""
        said: list[str] = []

        def need(good: bool, words: object = "") -> None:
            said[:] = [str(words)] if str(words) else said
            if not good:
                raise AssertionError(str(words))

        try:
            yield need
        except Skip as err:
            self._say("SKIP", name, str(err))
        except AssertionError as err:
            self._say("FAIL", name, str(err))
        except Exception as err:  # noqa: BLE001 a check that breaks says so, and is no end of the others
            self._say("FAIL", name, f"{type(err).__name__}: {err}")
        else:
            self._say("PASS", name, said[0] if said else "")

    def _say(self, verdict: str, name: str, words: str) -> None:
        self.seen[verdict] += 1
        print(f"{verdict} {name}{f': {words}' if words else ''}", flush=True)


def main() -> int:
    begun = time.monotonic()
    gpus, checks = Gpus(), Checks()
    seen = gpus.inventory()
    if not seen and (gpus.absent or not gpus.reason):
        print(f"nothing to check: {gpus.reason or 'the driver knows no GPU'}", flush=True)
        return 2
    with checks.check("the driver answers and knows a GPU") as need:
        need(bool(seen), gpus.reason or ", ".join(f"{g.index} {g.name} {g.uuid}" for g in seen))
    if seen:
        figures(checks, gpus, seen)
        names(checks, gpus, seen)
        nvidia_smi(checks, seen)
        chosen = most_free(seen)
        if chosen is not None:
            hold_and_free(checks, gpus, chosen)
    with checks.check("all of it under 3 minutes") as need:
        seconds = time.monotonic() - begun
        need(seconds < 180, f"{seconds:.1f} s")
    print(", ".join(f"{checks.seen[v]} {v}" for v in ("PASS", "FAIL", "SKIP")), flush=True)
    return 1 if checks.seen["FAIL"] else 0


def figures(checks: Checks, gpus: Gpus, seen: tuple[Gpu, ...]) -> None:
    for g in seen:
        with checks.check(f"GPU {g.index} is well") as need:
            need(not g.problem, g.problem)
        with checks.check(f"GPU {g.index}: memory") as need:
            if not g.memory_total_bytes:
                raise Skip("the driver does not say (it may be shared with the processor)")
            used, total = g.memory_used_bytes / MIB, g.memory_total_bytes / MIB
            need(0 <= used <= total, f"{used:.0f} of {total:.0f} MiB in use")
        for what, value, low, high, unit in (
            ("use", g.utilisation_percent, 0, 100, "%"),
            ("temperature", g.temperature_c, 1, 120, "°C"),
            ("power", g.power_watts, 0, 3000, "W"),
        ):
            with checks.check(f"GPU {g.index}: {what}") as need:
                if value is None:
                    raise Skip("the driver does not say")
                need(low <= value <= high, f"{value} {unit}")
    with checks.check("a look takes no longer than a heartbeat") as need:
        begun = time.monotonic()
        gpus.inventory()
        need(time.monotonic() - begun < 2, f"{(time.monotonic() - begun) * 1000:.1f} ms")


def names(checks: Checks, gpus: Gpus, seen: tuple[Gpu, ...]) -> None:
    first = seen[0]
    with checks.check("declared by index, UUID and a UUID's beginning") as need:
        found = gpus.resolve([first.index, first.uuid, first.uuid[:12]])
        alike = sum(g.uuid.startswith(first.uuid[:12]) for g in seen)
        need(found[:2] == (first.uuid, first.uuid) and (found[2] == first.uuid or alike > 1), found)
    with checks.check("nothing that is there is called missing") as need:
        well = [g.uuid for g in seen if not g.problem]
        need(not gpus.missing(well), gpus.missing(well) or f"{len(well)} of {len(seen)} GPUs")
    with checks.check("a card that is not there is told") as need:
        need("cannot be seen" in gpus.missing(["GPU-00000000"]), gpus.missing(["GPU-00000000"]))


def nvidia_smi(checks: Checks, seen: tuple[Gpu, ...]) -> None:
    with checks.check("nvidia-smi says the same") as need:
        program = shutil.which("nvidia-smi")
        if program is None:
            raise Skip("nvidia-smi is not there")
        query = [program, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
        need(done.returncode == 0, f"exit status {done.returncode}: {(done.stdout + done.stderr).strip()[:300]}")
        theirs = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
        need([t[:2] for t in theirs] == [[str(g.index), g.uuid] for g in seen], f"it says {theirs}")
        for (_, _, total), g in zip(theirs, seen, strict=True):
            if total.isdigit() and g.memory_total_bytes:
                need(abs(int(total) - g.memory_total_bytes / MIB) < 0.02 * int(total), f"{total} MiB of GPU {g.index}")
        need(True, f"{len(theirs)} GPUs, their order, UUIDs and memory")


def most_free(seen: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU on which children may take memory: nobody computes there, if there is one, and the most is free."""
    well = [g for g in seen if not g.problem]
    return min(well, key=lambda g: (len(g.processes), g.memory_used_bytes - g.memory_total_bytes), default=None)


def hold_and_free(checks: Checks, gpus: Gpus, gpu: Gpu) -> None:
    uuid, before, others = gpu.uuid, gpus.used([gpu.uuid]), {p.pid for p in gpus.processes([gpu.uuid])}
    print(f"     children on GPU {gpu.index}, where {len(others)} processes compute already", flush=True)
    children = [Holder(uuid) for _ in range(2)]
    try:
        with checks.check("two children take memory on the GPU that CUDA_VISIBLE_DEVICES names by its UUID") as need:
            said = [child.wait(LONGEST) for child in children]
            if missing := [s["skip"] for s in said if "skip" in s]:
                raise Skip(missing[0])
            need(all(s.get("held") == HELD for s in said), f"{HELD / MIB:.0f} MiB each; {said}")
        if all(child.holds for child in children):
            while_held(checks, gpus, uuid, before, others, children)
    finally:
        killed = time.monotonic()
        for child in children:
            child.kill()
    if all(child.holds for child in children):
        freed(checks, gpus, uuid, before, others, killed)


def while_held(
    checks: Checks, gpus: Gpus, uuid: str, before: dict[str, int], others: set[int], children: list[Holder]
) -> None:
    pids = {child.pid for child in children}
    with checks.check("memory is seen to rise") as need:
        if uuid not in before:
            raise Skip("the driver does not say how much is in use")
        until(lambda: gpus.used([uuid]).get(uuid, 0) >= before[uuid] + 2 * HELD)
        risen = gpus.used([uuid]).get(uuid, 0) - before[uuid]
        need(risen >= 2 * HELD, f"by {risen / MIB:.0f} MiB")
    with checks.check("both are among its processes, each with its memory") as need:
        until(lambda: pids <= {p.pid for p in gpus.processes([uuid])}, PATIENCE)
        listed = [p for p in gpus.processes([uuid]) if p.pid not in others]
        if not listed:
            raise Skip("the driver names no processes: in a container, or with a part of a card, it may not")
        if not pids & {p.pid for p in listed} and not any(proc.stat(p.pid) for p in listed):
            raise Skip(f"the driver names {[p.pid for p in listed]}, which are not here: pids of outside a container")
        mine = {p.pid: p.memory_bytes for p in listed if p.pid in pids}
        need(mine.keys() == pids, f"pids {sorted(pids)}; named are {listed}")
        need(all(size == 0 or size >= HELD for size in mine.values()), f"{mine} (0: the driver does not say)")
    with checks.check("whose they are is told") as need:
        told = [f"{proc.user(pid)}: {proc.command(pid)}" for pid in pids]
        need(all("holder" in words and "?" not in words.partition(":")[0] for words in told), told[0])
    with checks.check("an engine with such a pid counts as on its GPU") as need:
        need(memory.taken(gpus, [uuid], before, pids))
    with checks.check("its use is above 0 while they compute") as need:
        if not gpus.utilisation([uuid]):
            raise Skip("the driver does not say (a part of a card cannot)")
        until(lambda: any(gpus.utilisation([uuid])), PATIENCE)
        need(any(gpus.utilisation([uuid])), f"{gpus.utilisation([uuid])} %")
    with checks.check("what holds the memory is named") as need:
        if uuid not in before and not gpus.processes([uuid]):
            raise Skip("the driver says neither memory nor processes")
        held = asyncio.run(memory.wait_free(gpus, [uuid], before, no_waiting))
        need("still held by" in held or "in use" in held, held or "it counts as free")


def freed(checks: Checks, gpus: Gpus, uuid: str, before: dict[str, int], others: set[int], killed: float) -> None:
    with checks.check("after a SIGKILL its memory is waited for and seen to be free") as need:
        held = ""
        if others:  # theirs stays: it is our part that has to go
            until(lambda: gpus.used([uuid]).get(uuid, 0) < before.get(uuid, 0) + HELD, memory.LONGEST)
            left = gpus.used([uuid]).get(uuid, 0) - before.get(uuid, 0)
            held = f"{left / MIB:.0f} MiB more than before" if left >= HELD else ""
        else:
            held = asyncio.run(memory.wait_free(gpus, [uuid], before))
        need(not held, held)
        need(True, f"free {time.monotonic() - killed:.3f} s after it")


def until(true: Callable[[], Any], seconds: float = LONGEST) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)


async def no_waiting(_: float) -> None:
    return None


if __name__ == "__main__":
    sys.exit(main())

"""GPUs through NVML, loaded when first asked for and tolerant: no driver means no GPUs and a reason, never an error.

A driver that comes up later than the agent is noticed, for a failed start is tried again. A card that cannot be asked
does not hide the others. Identified by UUID: indices differ between tools. Every call may block for as long as the driver
does, so the loop calls `aside`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from agent.runtime.aside import Aside
from agent.runtime.nvml import COMPUTE, GRAPHICS, MIG, Nvml, text

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_SECONDS = 1.0
LOST_SECONDS = 30.0  # a lost card comes back, if at all, to a driver that was started anew


@dataclass(frozen=True, slots=True)
class GpuProcess:
    gpu: str
    pid: int
    memory_bytes: int  # 0: unknown


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory 0 = unknown (also where it is shared with the processor); None = unknown. One that cannot be asked has its
    `problem`, and its UUID and name as far as it was seen before."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation_percent: int | None
    temperature_c: int | None = None
    power_watts: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""


class Gpus:
    """The machine's GPUs. `nvml`: a module like pynvml, for tests. From the loop: `await gpus.aside(gpus.inventory)`."""

    def __init__(self, nvml: Any = None) -> None:
        self.aside = Aside("gpu driver")
        self._nvml = nvml
        self._up = False
        self._tried = float("-inf")
        self._lock = threading.RLock()
        self.reason = "not looked at yet"
        self.absent = False  # no NVIDIA library at all: other makes of GPU, or none
        self._known: dict[int, tuple[str, str]] = {}  # UUID and name by index, of cards seen well
        self._advice: dict[str, str] = {}  # by UUID, for those that cannot be asked
        self._lost_at = 0.0

    def inventory(self) -> tuple[Gpu, ...]:
        """What is there now; empty with `reason` set where nothing can be seen."""
        return self._ask(self._inventory, ())

    def resolve(self, names: Iterable[str | int]) -> tuple[str, ...]:
        """UUIDs of the cards that are there now; see the function."""
        return resolve(names, self.inventory())

    def missing(self, names: Iterable[str | int]) -> str:
        """A sentence naming GPUs that are declared and cannot be seen; "" = all there, or this machine has no NVML."""
        names = list(names)
        if not names:
            return ""
        seen = self.inventory()
        if self.absent:
            return ""
        if not seen:
            return f"no GPU can be seen ({self.reason})"
        lost = {g.uuid: g.problem for g in seen if g.problem}
        declared = resolve(names, seen)
        if broken := [f"GPU {n}: {lost[n]}{self._advice.get(n, '')}" for n in declared if n in lost]:
            return "; ".join(broken)
        nothing: set[str] = set()
        there = self._ask(lambda: {uuid for uuid, _ in self._cards(set(declared))}, nothing)
        gone = [n for n in declared if n not in there]
        return f"GPU {', '.join(gone)} cannot be seen (there are {len(seen)} others)" if gone else ""

    def used(self, names: Iterable[str | int]) -> dict[str, int]:
        """Bytes in use by UUID but for a desktop's; GPUs whose memory cannot be read are left out."""
        seen = self.inventory()
        wanted = set(resolve(names, seen))
        nothing: dict[str, int] = {}
        return self._ask(lambda: self._used(wanted, seen), nothing) if wanted else nothing

    def processes(self, names: Iterable[str | int]) -> list[GpuProcess]:
        """Compute processes on these GPUs. A desktop (Xorg and what draws on it) is none: models run beside it."""
        wanted = set(self.resolve(names))
        return self._ask(lambda: self._listed(wanted, COMPUTE), []) if wanted else []

    def utilisation(self, names: Iterable[str | int]) -> list[int]:
        """How busy these GPUs are, in percent; those that cannot say are left out."""
        wanted = set(self.resolve(names))
        nothing: list[int] = []
        return self._ask(lambda: self._utilisation(wanted), nothing) if wanted else nothing

    def _used(self, wanted: set[str], seen: tuple[Gpu, ...]) -> dict[str, int]:
        memory = {g.uuid: g.memory_used_bytes for g in seen if g.uuid in wanted and g.memory_total_bytes}
        parts = self._cards({name for name in wanted if name.startswith(MIG)})
        memory |= dict(self._to.each(parts, lambda c: (c[0], int(self._nvml.nvmlDeviceGetMemoryInfo(c[1]).used))))
        desktop = self._memory_of_desktops(wanted)
        return {uuid: max(0, used - desktop.get(uuid, 0)) for uuid, used in memory.items()}

    def _utilisation(self, wanted: set[str]) -> list[int]:
        cards = self._cards(wanted)
        return self._to.each(cards, lambda card: int(self._nvml.nvmlDeviceGetUtilizationRates(card[1]).gpu))

    def _inventory(self) -> tuple[Gpu, ...]:
        n = self._nvml
        found, lost = [], False
        for index in range(n.nvmlDeviceGetCount()):
            try:
                found.append(self._card(index))
            except n.NVMLError as err:
                if self._to.of_driver(err):
                    raise
                lost = lost or self._to.of_lost_card(err)
                uuid, name = self._known.get(index, ("", "?"))
                advice = self._to.advice(err)
                self._advice[uuid] = f": {advice}" if advice else ""
                found.append(Gpu(index, uuid, name, 0, 0, None, problem=str(err)))
        self._look_for_lost(lost)
        return tuple(found)

    def _card(self, index: int) -> Gpu:
        n, to = self._nvml, self._to
        uuid, handle = to.handle(index)
        name = text(n.nvmlDeviceGetName(handle))
        memory = to.answer(partial(n.nvmlDeviceGetMemoryInfo, handle), None)
        use = to.answer(partial(n.nvmlDeviceGetUtilizationRates, handle), None)
        heat = to.answer(lambda: n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU), None)
        power = to.answer(lambda: n.nvmlDeviceGetPowerUsage(handle), None)
        running = to.running(handle, COMPUTE)
        self._known[index] = uuid, name
        return Gpu(
            index=index,
            uuid=uuid,
            name=name,
            memory_total_bytes=int(memory.total) if memory else 0,
            memory_used_bytes=int(memory.used) if memory else 0,
            utilisation_percent=int(use.gpu) if use else None,
            temperature_c=None if heat is None else int(heat),
            power_watts=None
            if power is None
            else round(power / 10_000) * 10,  # a reading that jitters is news for nobody
            processes=tuple(GpuProcess(uuid, int(p.pid), int(p.usedGpuMemory or 0)) for p in running),
        )

    def _look_for_lost(self, lost: bool) -> None:
        """Starts the driver's library anew now and then while a card is lost: only then a reset one is seen."""
        now = time.monotonic()
        if not lost:
            self._lost_at = 0.0
        elif not self._lost_at:
            self._lost_at = now
            log.error("GPU lost")
        elif now >= self._lost_at + LOST_SECONDS:
            self._lost_at = now
            self._down(RuntimeError("a GPU is lost; looking for it anew"))

    def _cards(self, wanted: set[str]) -> list[tuple[str, Any]]:
        return self._to.cards(wanted) if wanted else []

    def _memory_of_desktops(self, wanted: set[str]) -> dict[str, int]:
        computing = {(p.gpu, p.pid) for p in self._listed(wanted, COMPUTE)}
        found: dict[str, int] = {}
        for p in self._listed(wanted, GRAPHICS):
            if (p.gpu, p.pid) not in computing:
                found[p.gpu] = found.get(p.gpu, 0) + p.memory_bytes
        return found

    def _listed(self, wanted: set[str], kind: str) -> list[GpuProcess]:
        lists = self._to.each(self._cards(wanted), lambda card: (card[0], self._to.running(card[1], kind)))
        return [GpuProcess(uuid, int(p.pid), int(p.usedGpuMemory or 0)) for uuid, running in lists for p in running]

    @property
    def _to(self) -> Nvml:
        return Nvml(self._nvml)

    def _ask(self, question: Callable[[], T], nothing: T) -> T:
        """An answer from the driver, or `nothing`; after an error the driver is started anew at the next look."""
        with self._lock:
            if not self._ready():
                return nothing
            try:
                return question()
            except self._nvml.NVMLError as err:
                self._down(err)
                return nothing

    def _ready(self) -> bool:
        if self._up:
            return True
        if time.monotonic() < self._tried + RETRY_SECONDS:
            return False
        self._tried = time.monotonic()
        if self._nvml is None:
            try:
                import pynvml
            except ImportError as err:
                self.reason, self.absent = f"nvidia-ml-py is not installed ({err})", True
                return False
            self._nvml = pynvml
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as err:
            self.absent = err.value == self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND
            self.reason = str(err)
            return False
        self._up, self.reason, self.absent = True, "", False
        return True

    def _down(self, err: Exception) -> None:
        log.warning("GPU driver failed error=%s", err)
        self._up, self.reason = False, str(err)
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as why:
            log.debug("GPU driver not shut down error=%s", why)


def resolve(names: Iterable[str | int], seen: tuple[Gpu, ...]) -> tuple[str, ...]:
    """UUIDs for indices, UUIDs and their beginnings; what is unknown stays as it is."""
    found = []
    for name in names:
        text = str(name)
        matches = [g.uuid for g in seen if str(g.index) == text and g.uuid] if text.isdigit() else []
        matches = matches or [g.uuid for g in seen if g.uuid.startswith(text) and not text.isdigit()]
        found.append(matches[0] if len(matches) == 1 else text)
    return tuple(found)

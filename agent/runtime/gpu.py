"""GPUs through NVML, loaded when first asked for and tolerant: no driver means no GPUs and a reason, never an error.

A driver that comes up later than the agent is noticed, for a failed start is tried again. Identified by UUID: indices
differ between tools. Every call may block for as long as the driver does, so the loop calls `aside`.
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

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """0 = unknown (also where memory is shared with the processor)."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation_percent: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    gpu: str
    pid: int
    memory_bytes: int  # 0: unknown


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

    def inventory(self) -> tuple[Gpu, ...]:
        """What is there now; empty with `reason` set where nothing can be seen."""
        return self._ask(self._inventory, ())

    def resolve(self, names: Iterable[str | int]) -> tuple[str, ...]:
        """UUIDs for indices, UUIDs and their beginnings; what is unknown stays as it is."""
        return _resolve(names, self.inventory())

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
        known = {g.uuid for g in seen}
        gone = [n for n in _resolve(names, seen) if n not in known and not n.startswith("MIG-")]
        return f"GPU {', '.join(gone)} cannot be seen (there are {len(seen)} others)" if gone else ""

    def used(self, names: Iterable[str | int]) -> dict[str, int]:
        """Bytes in use by UUID but for a desktop's; GPUs whose memory cannot be read are left out."""
        seen = self.inventory()
        wanted = set(_resolve(names, seen))
        nothing: dict[str, int] = {}
        desktop = self._ask(lambda: self._memory_of_desktops(wanted), nothing) if wanted else nothing
        return {
            g.uuid: max(0, g.memory_used_bytes - desktop.get(g.uuid, 0))
            for g in seen
            if g.uuid in wanted and g.memory_total_bytes
        }

    def processes(self, names: Iterable[str | int]) -> list[GpuProcess]:
        """Compute processes on these GPUs. A desktop (Xorg and what draws on it) is none: models run beside it."""
        wanted = set(self.resolve(names))
        return self._ask(lambda: self._processes(wanted), []) if wanted else []

    def _inventory(self) -> tuple[Gpu, ...]:
        n = self._nvml
        found = []
        for index in range(n.nvmlDeviceGetCount()):
            handle = n.nvmlDeviceGetHandleByIndex(index)
            memory = self._try(partial(n.nvmlDeviceGetMemoryInfo, handle), None)
            use = self._try(partial(n.nvmlDeviceGetUtilizationRates, handle), None)
            found.append(
                Gpu(
                    index=index,
                    uuid=_text(n.nvmlDeviceGetUUID(handle)),
                    name=_text(n.nvmlDeviceGetName(handle)),
                    memory_total_bytes=int(memory.total) if memory else 0,
                    memory_used_bytes=int(memory.used) if memory else 0,
                    utilisation_percent=int(use.gpu) if use else 0,
                )
            )
        return tuple(found)

    def _processes(self, wanted: set[str]) -> list[GpuProcess]:
        return self._listed(wanted, self._nvml.nvmlDeviceGetComputeRunningProcesses)

    def _memory_of_desktops(self, wanted: set[str]) -> dict[str, int]:
        computing = {(p.gpu, p.pid) for p in self._processes(wanted)}
        found: dict[str, int] = {}
        for p in self._listed(wanted, self._nvml.nvmlDeviceGetGraphicsRunningProcesses):
            if (p.gpu, p.pid) not in computing:
                found[p.gpu] = found.get(p.gpu, 0) + p.memory_bytes
        return found

    def _listed(self, wanted: set[str], question: Callable[[Any], Any]) -> list[GpuProcess]:
        n = self._nvml
        found = []
        for index in range(n.nvmlDeviceGetCount()):
            handle = n.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(n.nvmlDeviceGetUUID(handle))
            if uuid in wanted:
                running = self._try(partial(question, handle), None) or ()
                found += [GpuProcess(uuid, int(p.pid), int(p.usedGpuMemory or 0)) for p in running]
        return found

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
            self.absent = getattr(err, "value", None) == self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND
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

    def _try(self, question: Callable[[], T], nothing: T) -> T:
        """For what not every GPU can say. A lost GPU or driver still ends the whole look."""
        n = self._nvml
        try:
            return question()
        except n.NVMLError as err:
            if getattr(err, "value", None) in (n.NVML_ERROR_GPU_IS_LOST, n.NVML_ERROR_DRIVER_NOT_LOADED):
                raise
            return nothing


def _resolve(names: Iterable[str | int], seen: tuple[Gpu, ...]) -> tuple[str, ...]:
    found = []
    for name in names:
        text = str(name)
        matches = [g.uuid for g in seen if str(g.index) == text] if text.isdigit() else []
        matches = matches or [g.uuid for g in seen if g.uuid.startswith(text) and not text.isdigit()]
        found.append(matches[0] if len(matches) == 1 else text)
    return tuple(found)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

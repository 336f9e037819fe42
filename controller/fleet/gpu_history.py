"""How full and how busy each GPU was in the last minutes, for the small charts: in memory only, two bytes a sample."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

UNKNOWN = 255


class Gpu(Protocol):
    """What of a report is kept (LiveGpu)."""

    @property
    def uuid(self) -> str: ...
    @property
    def memory_total_bytes(self) -> int: ...
    @property
    def memory_used_bytes(self) -> int: ...
    @property
    def utilisation_percent(self) -> int | None: ...


class GpuHistory:
    """Thread-safe. A sample every `every` seconds at most, the newest `kept` of them (15 minutes)."""

    def __init__(self, every: float = 5.0, kept: int = 180, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._kept, self._clock = every, kept, clock
        self._rings: dict[str, tuple[bytearray, bytearray]] = {}
        self._last: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, gpus: Iterable[Gpu]) -> None:
        """Takes a report."""
        now = self._clock()
        with self._lock:
            for gpu in gpus:
                if now - self._last.get(gpu.uuid, -1e9) < self._every:
                    continue
                self._last[gpu.uuid] = now
                memory, use = self._rings.setdefault(gpu.uuid, (bytearray(), bytearray()))
                total = gpu.memory_total_bytes
                memory.append(min(100, round(100 * gpu.memory_used_bytes / total)) if total > 0 else UNKNOWN)
                use.append(UNKNOWN if gpu.utilisation_percent is None else max(0, min(100, gpu.utilisation_percent)))
                for ring in (memory, use):
                    if len(ring) > self._kept:
                        del ring[0]

    def memory(self, uuid: str) -> list[int]:
        """Per cent of the memory in use, oldest first; what was unknown is left out."""
        return self._series(uuid, 0)

    def use(self, uuid: str) -> list[int]:
        """Per cent of the time at work, likewise."""
        return self._series(uuid, 1)

    def _series(self, uuid: str, which: int) -> list[int]:
        with self._lock:
            rings = self._rings.get(uuid)
            return [value for value in rings[which] if value != UNKNOWN] if rings else []

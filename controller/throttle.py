"""Failures counted by name or address: after some free ones each further try must wait, twice as long each time. And a
plain limit on how often something is asked for."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable


class Throttle:
    """`free` failures cost nothing; then 1 s, 2 s, 4 s … up to `most` seconds. Remembers the newest `size` keys.
    Thread-safe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, free: int = 5, most: float = 300.0, size: int = 10_000
    ) -> None:
        self._clock, self._free, self._most, self._size = clock, free, most, size
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, *keys: str) -> float:
        """Seconds until the next try is looked at; 0 = now."""
        now = self._clock()
        with self._lock:
            return max([0.0, *(self._until(key) - now for key in keys)])

    def failed(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                count, _ = self._failures.pop(key, (0, 0.0))
                self._failures[key] = (count + 1, self._clock())
                while len(self._failures) > self._size:
                    self._failures.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                self._failures.pop(key, None)

    def _until(self, key: str) -> float:
        count, last = self._failures.get(key, (0, 0.0))
        if count < self._free:
            return 0.0
        return last + min(2.0 ** (count - self._free), self._most)


class Rate:
    """So many times within so many seconds, by key; the newest `size` keys are remembered. Thread-safe."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic, size: int = 10_000
    ) -> None:
        self._most, self._seconds, self._clock, self._size = most, seconds, clock, size
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Counts one; seconds until the next is taken where there were too many, 0 = go on."""
        now = self._clock()
        with self._lock:
            times = self._times.pop(key, None) or deque()
            self._times[key] = times
            while len(self._times) > self._size:
                self._times.popitem(last=False)
            while times and times[0] <= now - self._seconds:
                times.popleft()
            if len(times) >= self._most:
                return times[0] + self._seconds - now
            times.append(now)
            return 0.0

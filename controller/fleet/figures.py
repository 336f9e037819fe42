"""What the fleet's side has counted since this process began: read by /metrics, written on the fleet's loop.

Plain numbers and one histogram; a scrape copies them. Nothing here costs a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Histogram:
    """Seconds, in Prometheus' form: cumulative counts a bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many up to it), the last one "+Inf"."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Figures:
    """Of agents' streams and plans. `outcomes`: of pushed plans (accepted, refused)."""

    def __init__(self) -> None:
        self.connects = 0
        self.disconnects: Counter[str] = Counter()  # by cause: ended (by the agent or the network), by_us
        self.pushes = 0
        self.outcomes: Counter[str] = Counter()
        self.acknowledged = Histogram()  # from a plan's push to the node's word that it is saved
        self.terms = 0  # times that this process has begun to lead

    def led(self, leads: bool) -> None:
        """Leadership was gained, or lost."""
        self.terms += leads

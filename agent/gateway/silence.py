"""Which of a gateway's workers hang: each writes on the board twice a second, from the loop that serves.

Looks are counted, not seconds: a machine that was asleep or frozen as a whole is one look later, not an hour.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_LOOKS = 5  # in a row at which a worker has written nothing new


class Silence:
    """`look` again and again with when each worker wrote last (any number that changes)."""

    def __init__(self, workers: int) -> None:
        self._looks = [0] * workers
        self._written = [0.0] * workers

    def look(self, written: Sequence[float]) -> list[int]:
        """The workers that hang."""
        for worker, when in enumerate(written):
            self._looks[worker] = 0 if when != self._written[worker] else self._looks[worker] + 1
            self._written[worker] = when
        return [worker for worker, looks in enumerate(self._looks) if looks >= MOST_LOOKS]

    def begins(self, worker: int) -> None:
        """It is started, which takes its time: twice as many looks until it hangs."""
        self._looks[worker] = -MOST_LOOKS

    @property
    def none_hangs(self) -> bool:
        return max(self._looks) < MOST_LOOKS

"""Where a booking would fit: the free windows of a channel nearest to the time that was wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from controller.scheduling.types import Millis


class Slot(NamedTuple):
    """A window of the wanted length, and how long the channel is free from its start on (None: no booking follows)."""

    start: Millis
    end: Millis
    free_until: Millis | None


def free_slots(
    busy: Iterable[tuple[Millis, Millis]],
    length: Millis,
    wanted: Millis,
    earliest: Millis,
    latest: Millis | None = None,
    limit: int = 3,
) -> list[Slot]:
    """At most one window a gap, the nearest to `wanted` first (the earlier one of two as near).

    busy: [start, end) of pending and approved bookings in any order. A slot begins at `earliest` or later, and at
    `latest` at the latest where that is given.
    """
    found = []
    for begin, end in _gaps(busy, earliest):
        last = latest if end is None else end - length if latest is None else min(latest, end - length)
        if last is not None and last < begin:
            continue
        start = max(begin, wanted) if last is None else min(max(begin, wanted), last)
        found.append(Slot(start, start + length, end))
    return sorted(found, key=lambda slot: (abs(slot.start - wanted), slot.start))[:limit]


def _gaps(busy: Iterable[tuple[Millis, Millis]], earliest: Millis) -> Iterator[tuple[Millis, Millis | None]]:
    """The free stretches from `earliest` on; the last one has no end."""
    free_from = earliest
    for start, end in sorted(busy):
        if start > free_from:
            yield free_from, start
        free_from = max(free_from, end)
    yield free_from, None

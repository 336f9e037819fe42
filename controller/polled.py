"""Answers that many people poll: read once a change, made once a person, and a mere look-up in between.

An answer is good while the store's revision and the nodes' last words are the same and its `until` has not come. The
revisions are read before the answer is made, so that what is newer than they are is made again at the next call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from controller.fleet.live import Live
from controller.store.session import Store

KEPT = 256
PEOPLE = 512


@dataclass(slots=True)
class _Entry:
    revisions: tuple[int, int]
    until: int
    seen: Any
    made: dict[Hashable, Any] = field(default_factory=dict)


class Polled:
    """Thread-safe. What is kept is only read; two threads may make the same at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(
        self,
        store: Store,
        live: Live,
        what: Hashable,
        whose: Hashable,
        now: int,
        read: Callable[[], tuple[Any, int]],
        make: Callable[[Any], Any],
    ) -> Any:
        """`make(seen)` for `whose`; `read()` gives (what is seen of `what`, until when it is good)."""
        revisions = (store.revision(), live.revision)
        with self._lock:
            entry = self._kept.get(what)
            if entry is not None and (entry.revisions != revisions or entry.until <= now):
                entry = None
            elif entry is not None and whose in entry.made:
                return entry.made[whose]
        if entry is None:
            entry = _Entry(revisions, 0, None)
            entry.seen, entry.until = read()
        made = make(entry.seen)
        with self._lock:
            if len(entry.made) < PEOPLE:
                entry.made[whose] = made
            self._kept[what] = entry
            self._kept.move_to_end(what)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made

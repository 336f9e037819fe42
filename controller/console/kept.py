"""A small memory of things that are costly to make: the newest, by key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class Kept:
    """Thread-safe: the newest things that were made, by key."""

    def __init__(self, size: int) -> None:
        self._size, self._known, self._lock = size, OrderedDict[Hashable, Any](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        made = make()
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return made

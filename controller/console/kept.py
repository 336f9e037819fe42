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
        """What is known, else what is made now."""
        found = self.known(key)
        return self.put(key, make()) if found is None else found

    def known(self, key: Hashable) -> Any:
        """None: it is not, or not any more."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: Hashable, made: Any) -> Any:
        with self._lock:
            self._known[key] = made
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return made

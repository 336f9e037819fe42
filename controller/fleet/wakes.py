"""What the planner has to look at next: the channels and nodes that something woke, from any thread, until a look takes them.

A person's change wakes channels (a commit), a node wakes itself where what it says can change a target.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

from controller.fleet.live import Live, LiveChannel

ALL = "*"


class Wakes:
    """Thread-safe. `ring` is called when there is something new that was not looked for."""

    def __init__(self, live: Live, ring: Callable[[], None]) -> None:
        self._live, self._ring = live, ring
        self._lock = threading.Lock()
        self._channels: set[str] = {ALL}
        self._nodes: set[str] = set()
        self._said: dict[str, dict[str, tuple[object, ...]]] = {}
        self.commits = 0  # heard of

    def add(self, channel_ids: Iterable[str]) -> None:
        """These channels (ids, or ALL) are to be looked at; nobody is called for them."""
        with self._lock:
            self._channels.update(channel_ids)

    def committed(self, channel_ids: frozenset[str]) -> None:
        """A transaction has changed these channels, or none."""
        with self._lock:
            self.commits += 1
            self._channels |= channel_ids
        if channel_ids:
            self._ring()

    def heard(self, node: str, channels: frozenset[str]) -> None:
        """What a node says of itself counts where a target can depend on it; progress and phases do not."""
        said = {name: _essence(self._live.channel(node, name)) for name in channels}
        with self._lock:
            known = self._said.setdefault(node, {})
            if all(known.get(name) == essence for name, essence in said.items()):
                return
            known.update(said)
            self._nodes.add(node)
        self._ring()

    @contextlib.contextmanager
    def taken(self, *, urgent: bool = False) -> Iterator[tuple[set[str], set[str]]]:
        """(channel ids, node names) for one look; `urgent`: only channels that were woken by their ids."""
        with self._lock:
            channels = self._channels - {ALL} if urgent else set(self._channels)
            nodes = set() if urgent else set(self._nodes)
            self._channels -= channels
            self._nodes -= nodes
        try:
            yield channels, nodes
        except BaseException:  # a look that was cancelled as well: nothing that was woken is forgotten
            with self._lock:
                self._channels |= channels
                self._nodes |= nodes
            raise


def _essence(said: LiveChannel) -> tuple[object, ...]:
    return said.phase == "unknown", said.running, said.switching_to, said.failure and said.failure.identity

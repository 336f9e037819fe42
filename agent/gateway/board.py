"""What worker processes of one gateway have in common: a piece of shared memory where each puts its figures.

Nobody waits for anybody: a writer marks its place while it writes, a reader looks again. The place of a worker that has
died keeps what it said last, and the one that is started in its stead counts on from there.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
import time
from typing import Any

log = logging.getLogger(__name__)
PLACE_BYTES = 1024 * 1024  # only what is written is ever memory
TRIES = 20
ALIVE_SECONDS = 5.0
_HEAD = struct.Struct("=QQd")  # a number that is odd while it is written, the length, when


class Board:
    """`workers` places in the memory behind `fd` (see `create`), of which `own` may be written."""

    def __init__(self, fd: int, workers: int, own: int) -> None:
        self.workers, self.own = workers, own
        self._memory = mmap.mmap(fd, workers * PLACE_BYTES)
        self._number = _HEAD.unpack_from(self._memory, own * PLACE_BYTES)[0] & ~1

    @staticmethod
    def create(workers: int) -> int:
        """A new one's file descriptor, for the workers to be given."""
        fd = os.memfd_create("slotserve-gateway")
        os.ftruncate(fd, workers * PLACE_BYTES)
        return fd

    def write(self, content: dict[str, Any]) -> None:
        data = json.dumps(content, separators=(",", ":")).encode()
        if len(data) > PLACE_BYTES - _HEAD.size:
            log.error("figures too long for the board bytes=%s", len(data))
            return
        at = self.own * PLACE_BYTES
        self._number += 2
        _HEAD.pack_into(self._memory, at, self._number - 1, 0, 0.0)
        self._memory[at + _HEAD.size : at + _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, at, self._number, len(data), time.monotonic())

    def read(self, worker: int) -> dict[str, Any]:
        """What a worker said last; nothing where it has not yet."""
        at = worker * PLACE_BYTES
        for _ in range(TRIES):
            number, length, _when = _HEAD.unpack_from(self._memory, at)
            data = self._memory[at + _HEAD.size : at + _HEAD.size + length]
            if number % 2 == 0 and _HEAD.unpack_from(self._memory, at)[0] == number:
                try:
                    found = json.loads(data) if data else {}
                except ValueError:
                    continue
                return found if isinstance(found, dict) else {}
            time.sleep(0.0005)
        return {}  # it died while it wrote

    def others(self) -> list[dict[str, Any]]:
        return [self.read(worker) for worker in range(self.workers) if worker != self.own]

    def alive(self) -> int:
        """Workers that have written lately, with this one."""
        now = time.monotonic()
        seen = (when for worker, when in enumerate(self.written()) if worker != self.own)
        return 1 + sum(1 for when in seen if when > 0 and now - when < ALIVE_SECONDS)

    def written(self) -> list[float]:
        """When each worker wrote last, by the monotonic clock; 0 where it has not yet."""
        return [_HEAD.unpack_from(self._memory, worker * PLACE_BYTES)[2] for worker in range(self.workers)]

"""What worker processes of one gateway have in common: a piece of shared memory where each puts its figures.

Nobody waits for anybody: a worker writes into that half of its place which is not valid, and then makes it the valid one;
a reader that was overtaken by that looks again. The place of a worker that has died keeps what it said last, also where
it died while it wrote, and the one that is started in its stead counts on from there.
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
HALF_BYTES = 512 * 1024  # only what is written is ever memory
ALIVE_SECONDS = 5.0
_HEAD = struct.Struct("@Qd")  # of a place: how often it was written (odd: its second half is valid), when last
_LENGTH = struct.Struct("@Q")  # of a half
PLACE_BYTES = _HEAD.size + 2 * HALF_BYTES


class Board:
    """`workers` places in the memory behind `fd` (see `create`), of which `own` may be written."""

    def __init__(self, fd: int, workers: int, own: int) -> None:
        self.workers, self.own = workers, own
        self._memory = mmap.mmap(fd, workers * PLACE_BYTES)

    @staticmethod
    def create(workers: int) -> int:
        """A new one's file descriptor, for the workers to be given."""
        fd = os.memfd_create("slotserve-gateway")
        os.ftruncate(fd, workers * PLACE_BYTES)
        return fd

    def write(self, content: dict[str, Any]) -> None:
        data = json.dumps(content, separators=(",", ":")).encode()
        if len(data) > HALF_BYTES - _LENGTH.size:
            log.error("figures too long for the board bytes=%s", len(data))
            return
        number = self._head(self.own)[0] + 1
        at = _half(self.own, number)
        _LENGTH.pack_into(self._memory, at, len(data))
        self._memory[at + _LENGTH.size : at + _LENGTH.size + len(data)] = data
        _HEAD.pack_into(self._memory, self.own * PLACE_BYTES, number, time.monotonic())

    def read(self, worker: int) -> dict[str, Any]:
        """What a worker said last; nothing where it has not yet."""
        while True:
            number, _when = self._head(worker)
            if not number:
                return {}
            at = _half(worker, number)
            length = _LENGTH.unpack_from(self._memory, at)[0]
            data = self._memory[at + _LENGTH.size : at + _LENGTH.size + length]
            if self._head(worker)[0] == number:
                found: dict[str, Any] = json.loads(data)
                return found

    def others(self) -> list[dict[str, Any]]:
        return [self.read(worker) for worker in range(self.workers) if worker != self.own]

    def alive(self) -> int:
        """Workers that have written lately, with this one."""
        now = time.monotonic()
        seen = (when for worker, when in enumerate(self.written()) if worker != self.own)
        return 1 + sum(1 for when in seen if when > 0 and now - when < ALIVE_SECONDS)

    def written(self) -> list[float]:
        """When each worker wrote last, by the monotonic clock; 0 where it has not yet."""
        return [self._head(worker)[1] for worker in range(self.workers)]

    def _head(self, worker: int) -> tuple[int, float]:
        number, when = _HEAD.unpack_from(self._memory, worker * PLACE_BYTES)
        return number, when


def _half(worker: int, number: int) -> int:
    return worker * PLACE_BYTES + _HEAD.size + number % 2 * HALF_BYTES

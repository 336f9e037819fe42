"""Usage rows on the disk from the moment a request has ended, so that a gateway that is killed leaves what it owes.

Files of JSON lines beside the table, each held by a lock for as long as its writer lives: one that can be locked was left
behind, and whoever comes next takes it up. Nothing is synced: rows outlive the process, not a power cut.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
PART_BYTES = 1024 * 1024  # before the next file is begun
MOST_PARTS = 100
NAME = "rows-{}-{}.jsonl"
LEFT = "rows-*.jsonl"


class Journal:
    """`add` lines by growing numbers, `done` once everything below a number is taken."""

    def __init__(self, folder: Path, gateway_id: str) -> None:
        self._folder, self._id = folder, gateway_id
        self._fd = -1  # of the part that is written to
        self._path = folder
        self._parts: deque[tuple[int, Path, int]] = deque()  # before it: with the last row's number
        self._size = 0
        self._last = 0
        self._begun = 0
        self._failed = False

    def add(self, lines: str, number: int) -> None:
        """`number`: of the last of the lines."""
        self._last = number
        try:
            if self._fd < 0 or self._size > PART_BYTES:
                self._begin()
            self._size += os.write(self._fd, lines.encode())
            self._failed = False
        except OSError as err:
            if not self._failed:  # said once
                log.error("usage rows are not on the disk, only in memory folder=%s error=%s", self._folder, err)
            self._failed = True

    def done(self, oldest: int | None) -> None:
        """Rows below this number are not needed any more; None: none is."""
        while self._parts and (oldest is None or self._parts[0][2] < oldest or len(self._parts) > MOST_PARTS):
            self._end(*self._parts.popleft()[:2])
        if oldest is None and self._size:
            os.ftruncate(self._fd, 0)
            self._size = 0

    def close(self) -> None:
        """Nothing of it is needed any more."""
        while self._parts:
            self._end(*self._parts.pop()[:2])
        if self._fd >= 0:
            self._end(self._fd, self._path)
            self._fd = -1

    def _begin(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._begun += 1
        path = self._folder / NAME.format(self._id, self._begun)
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)  # before anybody can see it
        fresh.rename(path)
        if self._fd >= 0:
            self._parts.append((self._fd, self._path, self._last))
        self._fd, self._path, self._size = fd, path, 0

    def _end(self, fd: int, path: Path) -> None:
        path.unlink(missing_ok=True)
        os.close(fd)


@contextmanager
def left(path: Path) -> Iterator[dict[str, list[Any]]]:
    """The rows by their ids of a journal whose writer is gone; none where it lives. The file goes at the block's end,
    unless that raises. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield {}
            return
        if not os.fstat(fd).st_nlink:  # somebody else has taken it up
            yield {}
            return
        rows = {}
        for line in path.read_bytes().splitlines():
            try:
                row_id, *rest = json.loads(line)
            except (ValueError, TypeError):
                continue  # the last one, not whole
            rows[str(row_id)] = rest
        yield rows
        path.unlink(missing_ok=True)
    finally:
        os.close(fd)

"""What the controller has not acknowledged yet: load results, events, usage; kept over restarts, sent again until taken.

A file of JSON lines that only grows, rewritten when most of it is done with. One line {"id", "kind", "data"} an item
(`data` is the serialised message, base64), one {"taken": [ids]} an acknowledgement.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from protos.shared.files import write_private

log = logging.getLogger(__name__)
LIMIT = 100_000  # items; beyond it the oldest usage goes, for a controller may be away for weeks
REWRITE_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Item:
    """`kind` is the AgentMessage field; `data` the serialised message (of usage: one UsageRow)."""

    id: str
    kind: str
    data: bytes


class Spool:
    """Opened once a process. Thread-safe: it waits for the disk, so usage is added in a worker thread."""

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path, self._limit = path, limit
        self._items: dict[str, Item] = {}
        self._lines = 0
        self._lock = threading.RLock()
        self._read()

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[Item]:
        """Oldest first."""
        with self._lock:
            return list(self._items.values())

    def add(self, items: Iterable[Item]) -> list[Item]:
        """Keeps items; those whose id is kept already are passed over. Returns the new ones. Raises OSError: none kept."""
        with self._lock:
            fresh = {i.id: i for i in items if i.id not in self._items}
            if not fresh:
                return []
            self._append([_line(i) for i in fresh.values()])
            self._items |= fresh
            if (over := len(self._items) - self._limit) > 0:
                usage = [i.id for i in self._items.values() if i.kind == "usage"]
                gone = (usage or list(self._items))[:over]
                log.warning("spool full: oldest items dropped items=%s", len(gone))
                self.taken(gone)
            return list(fresh.values())

    def taken(self, ids: Iterable[str]) -> None:
        """Forgets what the controller has."""
        with self._lock:
            gone = [i for i in ids if self._items.pop(i, None)]
            if not gone:
                return
            try:
                self._append([json.dumps({"taken": gone})])
                if self._lines > REWRITE_LINES and self._lines > 4 * len(self._items):
                    self._rewrite()
            except OSError as err:  # sent once more after a restart, and known there by their ids
                log.error("spool not written path=%s error=%r", self._path, str(err))

    def _append(self, lines: list[str]) -> None:
        with self._path.open("a") as file:
            os.fchmod(file.fileno(), 0o600)
            size = file.tell()
            try:
                file.write("".join(line + "\n" for line in lines))
                file.flush()
                os.fdatasync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)  # half a line would spoil the next one
                raise
        self._lines += len(lines)

    def _rewrite(self) -> None:
        write_private(self._path, "".join(_line(i) + "\n" for i in self._items.values()).encode())
        self._lines = len(self._items)

    def _read(self) -> None:
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        bad = 0
        for line in lines:
            try:
                entry = json.loads(line)
                if "taken" in entry:
                    for taken in entry["taken"]:
                        self._items.pop(taken, None)
                else:
                    item = Item(entry["id"], entry["kind"], base64.b64decode(entry["data"]))
                    self._items[item.id] = item
            except (ValueError, KeyError, TypeError):
                bad += 1  # the last line of a process that was killed in the middle of it
        if bad:
            log.warning("spool lines ignored path=%s lines=%s", self._path, bad)
        self._rewrite()  # also ends a half-written last line


def _line(item: Item) -> str:
    return json.dumps({"id": item.id, "kind": item.kind, "data": base64.b64encode(item.data).decode()})

"""The engine output of a channel: the shim writes segments `<launch>.<offset>.log`, this reads them by absolute offset.

A launch id sorts by time. Beside its segments lies `<launch>.json` with what was started; it is written by the agent at
the start and at the end. The last `keep` launches stay, and the last failed one however old. Bytes are given as the
engine wrote them (progress bars with carriage returns too): folding is the reader's.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agent.core.types import Millis
from agent.runtime.files import read_json, write_json

log = logging.getLogger(__name__)
SEGMENT_BYTES = 8 << 20
SEGMENTS = 4
LAST_WORDS = 256 << 10


@dataclass(frozen=True, slots=True)
class LaunchLog:
    """One start of an engine. `size` counts from its first byte, also where the oldest segments are gone."""

    launch_id: str
    model: str
    preset: str | None
    identity: str
    reservation_id: str
    launched_at: Millis
    ended_at: Millis | None = None
    failed: bool = False
    size: int = 0
    first_offset: int = 0  # of what is still kept

    @property
    def ended(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class Piece:
    """`data` begins at `offset`, which is later than asked where the bytes asked for are gone."""

    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


class LogFolder:
    """The logs of one channel. Another process (the shim) writes; every call looks at the folder anew."""

    def __init__(self, path: Path, keep: int = 10) -> None:
        self.path, self.keep = path, keep
        self._unsaved: dict[str, LaunchLog] = {}  # ends that could not be written; they count all the same

    def begin(self, launch: LaunchLog) -> None:
        """Notes a start, before the shim writes. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._save(launch)
        for launch_id, ended in list(self._unsaved.items()):
            self._note(ended)
            log.info("end of a launch noted late launch=%s", launch_id)

    def end(self, launch_id: str, ended_at: Millis, failed: bool) -> None:
        """Notes the end once (a later call changes nothing) and removes what is too old."""
        found = self.get(launch_id)
        if found is not None and not found.ended:
            try:
                self._note(replace(found, ended_at=ended_at, failed=failed))
            except OSError as err:
                log.warning("end of a launch not noted launch=%s error=%s", launch_id, err)
        self.prune()

    def make_room(self) -> bool:
        """For a disk that is full: of launches that have ended only the last words of the newest and of the last failed
        one stay. False where there was nothing to remove. Raises OSError."""
        launches = [x for x in self.launches() if x.ended]
        precious = {x.launch_id for x in (*launches[-1:], *[y for y in launches if y.failed][-1:])}
        removed = False
        for old in launches:
            if old.launch_id not in precious:
                self._remove(old.launch_id)
                removed = True
            elif old.size - old.first_offset > LAST_WORDS:
                last = self.read(old.launch_id, -LAST_WORDS, LAST_WORDS)
                for _, path in self._segments(old.launch_id):
                    path.unlink(missing_ok=True)
                (self.path / f"{old.launch_id}.{last.offset:015d}.log").write_bytes(last.data)
                removed = True
        return removed

    def launches(self) -> list[LaunchLog]:
        """Oldest first."""
        names = self._names()
        found = (self._get(name.removesuffix(".json"), names) for name in names if name.endswith(".json"))
        return sorted((f for f in found if f is not None), key=lambda f: f.launch_id)

    def get(self, launch_id: str) -> LaunchLog | None:
        return self._get(launch_id, self._names())

    def _get(self, launch_id: str, names: list[str]) -> LaunchLog | None:
        meta = read_json(self.path / f"{launch_id}.json")
        if meta is None:
            return None
        segments = self._segments(launch_id, names)
        size = first = 0
        if segments:
            first = segments[0][0]
            size = segments[-1][0] + _size(segments[-1][1])
        if (ended := self._unsaved.get(launch_id)) is not None:
            return replace(ended, size=size, first_offset=first)
        try:
            return LaunchLog(**{**meta, "launch_id": launch_id}, size=size, first_offset=first)
        except TypeError as err:
            log.warning("file not usable path=%s error=%s", self.path / f"{launch_id}.json", err)
            return None

    def read(self, launch_id: str, offset: int = 0, limit: int = 1 << 16) -> Piece:
        """At most `limit` bytes from `offset` on; nothing there yet: an empty piece. A negative offset counts from the
        end."""
        segments = self._segments(launch_id)
        if not segments:
            return Piece(max(0, offset), b"")
        if offset < 0:
            offset = max(0, segments[-1][0] + _size(segments[-1][1]) + offset)
        offset = max(offset, segments[0][0])
        data = b""
        for start, path in segments:
            here = offset + len(data) - start
            if here < 0 or len(data) >= limit:
                break
            try:
                with path.open("rb") as f:
                    f.seek(here)
                    data += f.read(limit - len(data))
            except FileNotFoundError:
                return self.read(launch_id, offset, limit)  # rotated away under our hands: from what is kept
        return Piece(offset, data)

    def tail(self, launch_id: str, limit: int = 1 << 17) -> str:
        """The end of the output as text."""
        return self.read(launch_id, -limit, limit).data.decode("utf-8", "replace")

    def prune(self) -> None:
        """Removes launches before the last `keep`, but never the last failed one nor one that runs."""
        launches = self.launches()
        failed = [x.launch_id for x in launches if x.failed][-1:]
        for old in launches[: -self.keep]:
            if old.ended and old.launch_id not in failed:
                self._remove(old.launch_id)

    def _remove(self, launch_id: str) -> None:
        for path in [p for _, p in self._segments(launch_id)] + [self.path / f"{launch_id}.json"]:
            path.unlink(missing_ok=True)

    def _note(self, ended: LaunchLog) -> None:
        self._unsaved[ended.launch_id] = ended
        self._save(ended)
        del self._unsaved[ended.launch_id]

    def _save(self, launch: LaunchLog) -> None:
        meta = asdict(launch)
        for name in ("launch_id", "size", "first_offset"):
            del meta[name]
        write_json(self.path / f"{launch.launch_id}.json", meta)

    def _segments(self, launch_id: str, names: list[str] | None = None) -> list[tuple[int, Path]]:
        prefix = f"{launch_id}."
        found = []
        for name in self._names() if names is None else names:
            middle = name.removeprefix(prefix).removesuffix(".log")
            if name.startswith(prefix) and name.endswith(".log") and middle.isdigit():
                found.append((int(middle), self.path / name))
        return sorted(found)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

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

    def begin(self, launch: LaunchLog) -> None:
        """Notes a start, before the shim writes. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._save(launch)

    def end(self, launch_id: str, ended_at: Millis, failed: bool) -> None:
        """Notes the end once (a later call changes nothing) and removes what is too old."""
        found = self.get(launch_id)
        if found is not None and not found.ended:
            try:
                self._save(replace(found, ended_at=ended_at, failed=failed))
            except OSError as err:
                log.warning("end of a launch not noted launch=%s error=%s", launch_id, err)
        self.prune()

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
                for path in [p for _, p in self._segments(old.launch_id)] + [self.path / f"{old.launch_id}.json"]:
                    path.unlink(missing_ok=True)

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

"""The controller's copy of the engines' output: the last 10 MB a channel, as files, so that an offline node can be explained.

<dir>/<node>/<channel>/<launch>.json       what the launch was
<dir>/<node>/<channel>/<launch>.<offset>   its output from that byte on, in segments: the oldest go first

Offsets are bytes of the launch's whole output; they stay true when segments are gone.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from protos.shared.files import write_private

log = logging.getLogger(__name__)
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
CAP = 10_000_000
SEGMENT = 1_000_000
READ_LIMIT = 1_000_000
GAP = b"\n[slotserve: %d bytes of output are missing here, more was printed than could be kept]\n"
BEFORE = b"[slotserve: %d bytes of output came before this and are no longer kept]\n"
LAUNCHES = 50  # kept a channel: an engine that fails at once writes many short logs


@dataclass(frozen=True, slots=True)
class Launch:
    """What a log belongs to."""

    id: str
    launched_at: int
    model: str
    preset: str | None
    reservation_id: str
    ended: bool = False
    failed: bool = False


class LogStore:
    """Thread-safe. `cap` bytes a channel."""

    def __init__(self, folder: Path, cap: int = CAP, segment: int = SEGMENT) -> None:
        self._folder, self._cap, self._segment = folder, cap, segment
        self._lock = threading.Lock()

    def append(self, node: str, channel: str, launch: Launch, offset: int, data: bytes) -> int:
        """Keeps a piece and returns the offset after everything that is kept.

        Bytes that are there already are passed over; before a piece further on (the engine has printed more than could be
        kept) it is said how much is missing, in the place of the last of the bytes that are. Raises ValueError for names
        that could leave the folder.
        """
        folder = self._channel(node, channel)
        if not SAFE.fullmatch(launch.id):
            raise ValueError(f"launch_id {launch.id!r} is not a name")
        with self._lock:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._describe(folder, launch)
            segments = _segments(folder, launch.id)
            end = segments[-1][0] + segments[-1][2] if segments else 0
            if not data or offset + len(data) <= end:
                return end
            if offset < end:
                data, offset = data[end - offset :], end
            elif len(note := GAP % (offset - end)) <= offset - end:
                data, offset = note + data, offset - len(note)
            if segments and offset == end and segments[-1][2] < self._segment:
                path = segments[-1][1]
            else:
                path = folder / f"{launch.id}.{offset:016d}"
            with path.open("ab") as file:
                file.write(data)
            self._trim(folder)
            return offset + len(data)

    def read(self, node: str, channel: str, offset: int, limit: int, launch: str = "current") -> dict[str, Any] | None:
        """A part of a launch's output as text; see controller.context.EngineLogs."""
        with self._lock:
            chosen = self._choose(self._known(node, channel), launch)
            if chosen is None:
                return None
            segments = _segments(self._channel(node, channel), chosen.id)
            first = segments[0][0] if segments else 0
            end = segments[-1][0] + segments[-1][2] if segments else 0
            start = max(first, end + offset) if offset < 0 else min(max(first, offset), end)
            data, start = _bytes(segments, start, max(0, min(limit, READ_LIMIT)))
        if not (chosen.ended and start + len(data) == end):
            data = data[: len(data) - _unfinished(data)]
        return {
            "file": f"{channel}-{chosen.id}.log",
            "offset": start,
            "next_offset": start + len(data),
            "text": data.decode("utf-8", "replace"),
            "ended": chosen.ended,
        }

    def launches(self, node: str, channel: str) -> list[dict[str, Any]]:
        """Newest first: {id, launched_at, model, preset, reservation_id, ended, failed, size}."""
        with self._lock:
            folder = self._channel(node, channel)
            return [
                {**asdict(launch), "size": sum(s[2] for s in _segments(folder, launch.id))}
                for launch in self._known(node, channel)
            ]

    def line_at(self, node: str, channel: str, launch: str, offset: int) -> int:
        """The number (from 1) of the line that holds an offset, counted from the first that is kept."""
        with self._lock:
            count = 0
            for start, path, size in _segments(self._channel(node, channel), launch):
                if start >= offset:
                    break
                with path.open("rb") as file:
                    count += file.read(min(size, offset - start)).count(b"\n")
        return count + 1

    def find(self, node: str, channel: str, launch: str, text: str, most: int) -> tuple[list[tuple[int, int]], int]:
        """Lines with a text, whatever its case: ((offset, number) of the first `most`, how many there are)."""
        needle = text.lower().encode()
        found: list[tuple[int, int]] = []
        count, line, carried = 0, 1, b""
        with self._lock:
            segments = _segments(self._channel(node, channel), launch)
        for start, path, _ in segments:
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # trimmed meanwhile
                carried = b""
                continue
            whole = carried + data
            begin = start - len(carried)
            cut = whole.rfind(b"\n") + 1 if (start, path) != segments[-1][:2] else len(whole)
            count += _matches(whole[:cut].lower(), needle, begin, line, most, found)
            line += whole.count(b"\n", 0, cut)
            carried = whole[cut:]
        return found, count

    def prune(self, before: int) -> int:
        """Removes launches whose output last grew before an instant (ms); how many. What may still run stays."""
        gone = 0
        for folder in sorted(self._folder.glob("*/*")):
            with self._lock:
                for place, launch in enumerate(self._known(folder.parent.name, folder.name)):
                    if place == 0 and not launch.ended:
                        continue
                    segments = _segments(folder, launch.id)
                    newest = max((path.stat().st_mtime for _, path, _ in segments), default=launch.launched_at / 1000)
                    if max(newest * 1000, launch.launched_at) >= before:
                        continue
                    for path in (folder / f"{launch.id}.json", *(path for _, path, _ in segments)):
                        path.unlink(missing_ok=True)
                    gone += 1
        return gone

    def forget(self, node: str, channel: str) -> None:
        """Removes a channel's logs."""
        with self._lock:
            shutil.rmtree(self._channel(node, channel), ignore_errors=True)

    def _channel(self, node: str, channel: str) -> Path:
        for name in (node, channel):
            if not SAFE.fullmatch(name):
                raise ValueError(f"{name!r} is not a name")
        return self._folder / node / channel

    def _describe(self, folder: Path, launch: Launch) -> None:
        path = folder / f"{launch.id}.json"
        text = json.dumps(asdict(launch))
        if not path.exists() or path.read_text() != text:
            write_private(path, text.encode())

    def _known(self, node: str, channel: str) -> list[Launch]:
        found = []
        for path in self._channel(node, channel).glob("*.json"):
            try:
                found.append(Launch(**json.loads(path.read_text())))
            except (OSError, ValueError, TypeError) as err:
                log.warning("log record not readable path=%s error=%r", path, str(err))
        return sorted(found, key=lambda x: (x.launched_at, x.id), reverse=True)

    def _choose(self, known: list[Launch], launch: str) -> Launch | None:
        if launch == "current":
            return known[0] if known else None
        if launch == "previous":
            return next((x for x in known[1:] if x.failed), None)
        return next((x for x in known if x.id == launch), None)

    def _trim(self, folder: Path) -> None:
        """Removes the oldest segments over the cap; the last words of the newest failed launch stay longest."""
        known = self._known(folder.parent.name, folder.name)
        for launch in known[LAUNCHES:]:
            for _, path, _ in _segments(folder, launch.id):
                path.unlink(missing_ok=True)
        sizes = [(launch, s) for launch in reversed(known) for s in _segments(folder, launch.id)]
        total = sum(s[2] for _, s in sizes)
        failed = next((x.id for x in known if x.failed), None)
        kept = [s for x, s in sizes if x.id == failed][-1:] + [s for x, s in sizes if known and x.id == known[0].id][
            -1:
        ]
        shortened = set()
        for launch, segment in sizes:
            if total <= self._cap:
                break
            if segment not in kept:
                segment[1].unlink(missing_ok=True)
                total -= segment[2]
                shortened.add(launch.id)
        for launch_id in shortened:
            self._say_shortened(folder, launch_id)
        for launch in known[1:]:
            if not _segments(folder, launch.id):
                (folder / f"{launch.id}.json").unlink(missing_ok=True)

    def _say_shortened(self, folder: Path, launch_id: str) -> None:
        """What is left of a launch's output begins with how much came before it, in the place of the last bytes of that; the
        next time it goes first."""
        segments = _segments(folder, launch_id)
        if segments and len(note := BEFORE % segments[0][0]) <= segments[0][0]:
            (folder / f"{launch_id}.{segments[0][0] - len(note):016d}").write_bytes(note)


Segment = tuple[int, Path, int]  # offset, file, bytes


def _segments(folder: Path, launch_id: str) -> list[Segment]:
    found = []
    for path in folder.glob(f"{launch_id}.*"):
        tail = path.name[len(launch_id) + 1 :]
        if tail.isdigit():
            found.append((int(tail), path, path.stat().st_size))
    return sorted(found)


def _bytes(segments: list[Segment], start: int, limit: int) -> tuple[bytes, int]:
    """Up to `limit` bytes from `start` on, and where they really start (after a gap)."""
    out = bytearray()
    at = start
    for offset, path, size in segments:
        if offset + size <= at:
            continue
        if offset > at:
            if out:
                break  # a gap: the next call starts behind it
            at = start = offset
        with path.open("rb") as file:
            file.seek(at - offset)
            piece = file.read(limit - len(out))
        out += piece
        at += len(piece)
        if len(out) >= limit:
            break
    return bytes(out), start


def _matches(data: bytes, needle: bytes, begin: int, line: int, most: int, found: list[tuple[int, int]]) -> int:
    """Adds the places of lines with `needle` to `found`, `most` in all; how many such lines there are."""
    at = counted = matches = 0
    while (place := data.find(needle, at)) >= 0:
        matches += 1
        if len(found) < most:
            line += data.count(b"\n", counted, place)
            counted = place
            found.append((begin + data.rfind(b"\n", 0, place) + 1, line))
        end = data.find(b"\n", place)
        if end < 0:
            break
        at = end + 1
    return matches


def _unfinished(data: bytes) -> int:
    """Bytes at the end that begin a UTF-8 character without ending it."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 1 if byte < 0x80 else 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4 if byte >> 3 == 30 else 1
        return back if back < need else 0
    return 0

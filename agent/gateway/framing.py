"""The engine's answers on the wire: the head, parsed once, and the body's framing, followed but not changed.

Following tells three things: when the answer is over, whether it ended as it should, and where an event of a stream
ends at a chunk's end, which are the places at which a stream may be cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEAD_LIMIT = 64 * 1024
LINE_LIMIT = 4096
KNOWN_BYTES, KNOWN_LINES = 200, 1000  # of header lines that are known by sight
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"proxy-authenticate")
)


class FramingError(ValueError):
    """The engine does not speak HTTP as it should."""


@dataclass(slots=True)
class AnswerHead:
    """`lines`: the end-to-end headers that clients get, as they came, each with its CRLF; not the engine's own name and
    CORS rules. `length` None: chunked, or until the close."""

    status: int
    reason: bytes
    lines: list[bytes] = field(default_factory=list)
    chunked: bool = False
    length: int | None = None
    sse: bool = False


def parse_head(head: bytes) -> AnswerHead:
    """An answer's head without its last empty line. Raises FramingError."""
    first, *rest = head.split(b"\r\n")
    if _STATUS.fullmatch(first) is None:
        raise FramingError("the answer's head is malformed")
    answer = AnswerHead(int(first[9:12]), first[13:])
    lines = answer.lines
    for line in rest:
        kind, out = _LINES.get(line) or _line(line)
        if kind == "passed":
            lines.append(out)
        elif kind == "length":
            if not out.isdigit() or (answer.length is not None and answer.length != int(out)):
                raise FramingError("bad Content-Length")
            answer.length = int(out)
        elif kind == "coding":
            if out != b"chunked" or answer.chunked:
                raise FramingError("unknown Transfer-Encoding")
            answer.chunked = True
        elif kind == "events":
            answer.sse = True
            lines.append(out)
    if answer.chunked:
        answer.length = None
    if answer.sse:
        answer.lines = [x for x in lines if x[:14].lower() != b"cache-control:"]
    return answer


def gateways_own(head: bytes) -> list[bytes]:
    """Of a head that another gateway of the fleet has written: the lines of its own that clients are to have."""
    lines = (line for line in head.split(b"\r\n")[1:] if _LINE.fullmatch(line))
    return [line + b"\r\n" for line in lines if line[:12].lower() == b"x-slotserve-" and line[:17].lower() != _NODE]


def _line(line: bytes) -> tuple[str, bytes]:
    """What a header line is to the gateway. Most come again and again, and are known by sight then."""
    if _LINE.fullmatch(line) is None:
        raise FramingError("the answer's head is malformed")
    name, _, value = line.partition(b":")
    key = name.lower()
    if key == b"content-length":
        return "length", value.strip()
    if key in HOP_BY_HOP or key in _OURS or key.startswith(_OURS_BEGIN):
        found = "dropped", b""
    elif key == b"transfer-encoding":
        found = "coding", value.strip().lower()
    elif key == b"content-type" and value.strip()[:17].lower() == b"text/event-stream":
        found = "events", line + b"\r\n"
    else:
        found = "passed", line + b"\r\n"
    if len(line) < KNOWN_BYTES:
        if len(_LINES) >= KNOWN_LINES:
            _LINES.clear()
        _LINES[line] = found
    return found


_LINES: dict[bytes, tuple[str, bytes]] = {}
_TEXT = rb"[\t \x21-\x7e\x80-\xff]*"  # no bare CR or LF, which somebody else might take for a line's end
_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _TEXT
_STATUS = re.compile(rb"HTTP/1\.[01] [1-9]\d\d(?: " + _TEXT + rb")?")
_LINE = re.compile(_FIELD)
_TRAILER = re.compile(_FIELD + rb"\r\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;" + _TEXT + rb")?\r\n")
_OURS = frozenset((b"x-request-id", b"x-accel-buffering", b"server", b"date"))
_OURS_BEGIN = (b"x-slotserve-", b"access-control-")
_NODE = b"x-slotserve-node:"  # said by the one that relays


EVENT_END = b"\n\n\r\n"  # and its chunk's
SHORT = 4096  # bytes


def _beginnings() -> list[bytes]:
    """By the number of bytes of a piece, how it begins where it is one whole chunk."""
    found = [b"none"] * SHORT
    for length in range(1, SHORT):
        line = b"%x\r\n" % length
        if len(line) + length + 2 < SHORT:
            found[len(line) + length + 2] = line
    return found


ONE_CHUNK = _beginnings()


class Chunks:
    """Follows a chunked body. `boundary`: what has come so far ends at a chunk's end that is also an event's end."""

    __slots__ = ("_left", "_line", "_tail", "_trailer", "boundary", "done")

    def __init__(self) -> None:
        self._left = 0  # of the current chunk's data and its CRLF
        self._line = b""  # a size or trailer line that has come in part
        self._tail = b""  # the last four bytes of data
        self._trailer = False
        self.boundary = True  # nothing has come yet: as good a place as any
        self.done = False

    def at_event(self) -> bool:
        """Whether what comes next is a chunk, and behind an event's end. Pieces that are ONE_CHUNK and end in EVENT_END
        need not be fed then: they change nothing."""
        if self._left or self._line or self._trailer or not self.boundary or self.done:
            return False
        self._tail = EVENT_END[:2]  # as they leave it
        return True

    def feed(self, data: bytes, cut: bool = False) -> int:
        """How much of `data` belongs to the body: less than all after its end, or, with `cut`, behind the first boundary."""
        pos, size = 0, len(data)
        if self.one_whole(data):
            return size
        while pos < size:
            if self._left:
                pos = self._data(data, pos, size)
                if cut and self.boundary:
                    return pos
                continue
            eol = data.find(b"\n", pos)
            if eol < 0:
                self._line += data[pos:]
                self.boundary = False
                if len(self._line) > LINE_LIMIT:
                    raise FramingError("a chunk's size line is too long")
                return size
            line = self._line + data[pos : eol + 1] if self._line else data[pos : eol + 1]
            self._line = b""
            pos = eol + 1
            if line[-2:] != b"\r\n":
                raise FramingError("a chunk's size line does not end in CRLF")
            if self._trailer:
                if line == b"\r\n":
                    self.done = True
                    return pos
                if _TRAILER.fullmatch(line) is None:
                    raise FramingError("a trailer is malformed")
                continue
            match = _SIZE.fullmatch(line)
            if match is None:
                raise FramingError("a chunk without a size")
            length = int(match.group(1), 16)
            self.boundary = False
            if length == 0:
                self._trailer = True
            else:
                self._left = length + 2
        return size

    def strip(self, data: bytes, cut: bool = False) -> bytes:
        """The data of `data`'s chunks alone, for a client that knows no chunks. Otherwise as `feed`."""
        parts: list[bytes] = []
        pos, size = 0, len(data)
        while pos < size and not self.done:
            if self._left:
                begin = pos
                pos = self._data(data, pos, size)
                crlf = 2 - self._left if self._left < 2 else 0
                parts.append(data[begin : max(begin, pos - crlf)])
                if cut and self.boundary:
                    break
            else:  # one line, or what there is of it
                eol = data.find(b"\n", pos)
                end = size if eol < 0 else eol + 1
                self.feed(data[pos:end])
                pos = end
        return b"".join(parts)

    def one_whole(self, data: bytes) -> bool:
        """What nearly always comes: one chunk, whole, and nothing else. False: not that, and nothing was followed."""
        size = len(data)
        eol = data.find(b"\r\n", 0, 10)
        if eol < 1 or size < eol + 9 or self._left or self._line or self._trailer or data[-2:] != b"\r\n":
            return False
        try:
            length = int(data[:eol], 16)
        except ValueError:
            return False
        if length + eol + 4 != size or not data[:eol].isalnum() or data[1] | 0x20 == 0x78:  # int() takes +1, 1_0, 0x1
            return False
        tail = self._tail = data[-6:-2]
        self.boundary = tail[2:] == b"\n\n" or tail == b"\r\n\r\n"
        return True

    def _data(self, data: bytes, pos: int, size: int) -> int:
        take = min(self._left, size - pos)
        self._left -= take
        end = pos + take
        crlf = 2 - self._left if self._left < 2 else 0
        stop = end - crlf
        if crlf and data[max(pos, stop) : end] != b"\r\n"[max(pos, stop) - stop : crlf]:
            raise FramingError("a chunk does not end where it said")
        if stop - pos >= 4:
            self._tail = data[stop - 4 : stop]
        elif stop > pos:
            self._tail = (self._tail + data[pos:stop])[-4:]
        self.boundary = self._left == 0 and (self._tail[-2:] == b"\n\n" or self._tail == b"\r\n\r\n")
        return end

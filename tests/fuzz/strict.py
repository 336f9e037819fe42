"""A second opinion on HTTP/1.1: a parser of requests and answers that is strict to the letter, and shares no code with
the gateway. The fuzzer holds what the gateway forwards and answers against it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/(\d\.\d)")
_LENIENT_LINE = re.compile(rb"(" + _TOKEN + rb") +([\x21-\x7e]+) +HTTP/(\d\.\d)")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: ([\t \x21-\x7e\x80-\xff]*))?")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t \x21-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t \x21-\x7e\x80-\xff]*)?")


class Malformed(ValueError):
    """Not what the standard says; the message says where."""


@dataclass
class Message:
    """A request (`method`, `target`) or an answer (`status`). `complete`: its body has come whole. `framing`: none, length,
    chunked or close."""

    method: bytes = b""
    target: bytes = b""
    version: bytes = b"1.1"
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    framing: str = "none"
    complete: bool = False

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


def requests(data: bytes, of_client: bool = True) -> tuple[list[Message], str]:
    """All requests of a byte stream, the last one maybe incomplete, and how it ends: "", "incomplete", "malformed: why" or
    "upgrade" (a WebSocket is offered: what follows is in `body`, and no request if it is taken).

    `of_client`: what servers may pass over is passed over, empty lines before a request line and spaces inside it.
    """
    line_form = _LENIENT_LINE if of_client else _REQUEST_LINE
    found: list[Message] = []
    pos = 0
    while True:
        while of_client and data[pos : pos + 1] in (b"\r", b"\n"):
            pos += 1
        if pos >= len(data):
            return found, ""
        message = Message()
        try:
            head_end = data.find(b"\r\n\r\n", pos)
            if head_end < 0:
                _check_beginning(data[pos:])
                return found, "incomplete"
            line, *lines = data[pos:head_end].split(b"\r\n")
            match = line_form.fullmatch(line)
            if match is None:
                raise Malformed("request line")
            message.method, message.target, message.version = match.groups()
            if message.version not in (b"1.0", b"1.1"):
                raise Malformed("version")
            message.headers = _headers(lines)
            hosts = len(message.values(b"host"))
            if hosts > 1 or (hosts == 0 and message.version == b"1.1"):
                raise Malformed("Host")
            _framing(message, closes=False)
            found.append(message)  # what of its body comes before a fault may have been passed on
            pos = _body(message, data, head_end + 4)
        except Malformed as err:
            return found, f"malformed: {err}"
        if not message.complete:
            return found, "incomplete"
        if message.method == b"GET" and any(v.lower() == b"websocket" for v in message.values(b"upgrade")):
            message.body = data[pos:]
            return found, "upgrade"


def answers(data: bytes, methods: list[bytes], closed: bool, of_engine: bool = False) -> tuple[list[Message], str]:
    """All answers of a byte stream, interim ones among them, to requests with these methods; `closed`: nothing follows.

    `of_engine`: the same length twice, or one beside chunks, and chunks in HTTP/1.0 are passed over, as proxies may if they leave it out.
    """
    found: list[Message] = []
    asked = iter(methods)
    pos = 0
    while pos < len(data):
        message = Message()
        try:
            head_end = data.find(b"\r\n\r\n", pos)
            if head_end < 0:
                return found, "incomplete"
            line, *lines = data[pos:head_end].split(b"\r\n")
            match = _STATUS_LINE.fullmatch(line)
            if match is None:
                raise Malformed("status line")
            message.status, message.version = int(match.group(2)), b"1." + match.group(1)
            message.headers = _headers(lines)
            interim = 100 <= message.status < 200 and message.status != 101
            method = b"" if interim else next(asked, b"")
            if of_engine:
                _tidy(message)
                message.version = b"1.1"
            _framing(message, closes=True)
            if message.status == 101:
                message.framing, message.body, message.complete = "upgrade", data[head_end + 4 :], True
                return [*found, message], ""
            if interim or message.status in (204, 304) or method == b"HEAD":
                message.framing, message.complete, pos = "none", True, head_end + 4
            else:
                pos = _body(message, data, head_end + 4)
                if message.framing == "close":
                    message.complete = closed
        except Malformed as err:
            return found, f"malformed: {err}"
        found.append(message)
        if not message.complete:
            return found, "incomplete"
    return found, ""


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    headers = []
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Malformed(f"header {line[:40]!r}")
        headers.append((match.group(1).lower(), match.group(2)))
    return headers


def _tidy(message: Message) -> None:
    chunked = bool(message.values(b"transfer-encoding"))
    kept: list[tuple[bytes, bytes]] = []
    for key, value in message.headers:
        if key != b"content-length" or not (chunked or (key, value) in kept):
            kept.append((key, value))
    message.headers = kept


def _framing(message: Message, closes: bool) -> None:
    lengths, codings = message.values(b"content-length"), message.values(b"transfer-encoding")
    if lengths and codings:
        raise Malformed("both Content-Length and Transfer-Encoding")
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked" or message.version == b"1.0":
            raise Malformed("Transfer-Encoding")
        message.framing = "chunked"
    elif lengths:
        if len(lengths) > 1 or not re.fullmatch(rb"\d{1,19}", lengths[0]):
            raise Malformed("Content-Length")
        message.framing = "length"
    else:
        message.framing = "close" if closes else "none"


def _body(message: Message, data: bytes, pos: int) -> int:
    """Reads the body; where it goes on."""
    if message.framing == "none":
        message.complete = True
    elif message.framing == "close":
        message.body, pos = data[pos:], len(data)
    elif message.framing == "length":
        length = int(message.values(b"content-length")[0])
        message.body = data[pos : pos + length]
        message.complete, pos = len(message.body) == length, pos + len(message.body)
    else:
        pos = _chunks(message, data, pos)
    return pos


def _chunks(message: Message, data: bytes, pos: int) -> int:
    while True:
        eol = data.find(b"\r\n", pos)
        if eol < 0:
            return len(data)
        match = _CHUNK.fullmatch(data[pos:eol])
        if match is None:
            raise Malformed(f"chunk {data[pos:eol][:40]!r}")
        size, pos = int(match.group(1), 16), eol + 2
        if size == 0:
            break
        message.body += data[pos : pos + size]
        if len(data) < pos + size + 2:
            return len(data)
        if data[pos + size : pos + size + 2] != b"\r\n":
            raise Malformed("chunk's end")
        pos += size + 2
    while True:
        eol = data.find(b"\r\n", pos)
        if eol < 0:
            return len(data)
        if eol == pos:
            message.complete = True
            return eol + 2
        _headers([data[pos:eol]])
        pos = eol + 2


def _check_beginning(data: bytes) -> None:
    """A head without its end: whole lines must be right."""
    line, *lines = data.split(b"\r\n")
    if lines:
        if _LENIENT_LINE.fullmatch(line) is None:
            raise Malformed("request line")
        _headers(lines[:-1])

"""The `model` field of multipart/form-data, looked for as the form comes: each byte once."""

from __future__ import annotations

import re

from agent.gateway.body_found import NAME_BYTES, Found, said_twice
from agent.gateway.errors import bad_request

PART_HEAD_BYTES = 16 * 1024
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PARAMETER = re.compile(rb';[ \t]*([^\s=;"]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))[ \t]*')


class FormScanner:
    """`found`, `feed` and `finish` as JsonScanner's. Raises Refusal for what is no such form or names two models."""

    __slots__ = ("_at", "_boundary", "_delimiter", "_is_model", "_kept", "_over", "_step", "found")

    def __init__(self, content_type: bytes) -> None:
        """Raises Refusal where the boundary is not said."""
        self.found: Found | None = None
        self._boundary = boundary(content_type)
        self._delimiter = b"\r\n--" + self._boundary
        self._kept = b"\r\n"  # what the next piece begins with; the first delimiter may do without its line's end
        self._at = -2  # where it stands in the body
        self._is_model = False
        self._over = False
        self._step = self._content

    def feed(self, data: bytes) -> None:
        data = self._kept + data
        pos = 0
        while True:
            on = self._step(data, pos)
            if on is None:
                break
            pos = on
        self._at += len(data) - len(self._kept)

    def finish(self) -> Found:
        if not self._over:
            raise bad_request("The multipart body is cut short, or does not have its boundary.")
        assert self.found is not None
        return self.found

    # each goes on from `pos` and says how far it came, or keeps what must wait for more and says None

    def _content(self, data: bytes, pos: int) -> int | None:
        """What stands before a delimiter, from the line's end that begins it."""
        end = data.find(self._delimiter, pos)
        if self._is_model and (end == pos or (len(data) if end < 0 else end) - pos > NAME_BYTES):
            raise bad_request("The form's 'model' is empty or too long.", "model")
        if end < 0:
            self._kept = data[pos:] if self._is_model else data[max(pos, len(data) - len(self._delimiter) + 1) :]
            return None
        if self._is_model:
            if self.found is not None:
                raise said_twice()
            self.found = Found(_decoded(data[pos + 2 : end]), self._at + pos + 2, self._at + end)
        self._is_model = False
        self._step = self._behind
        return end + len(self._delimiter)

    def _behind(self, data: bytes, pos: int) -> int | None:
        """The rest of a delimiter's line."""
        end = pos
        while data[end : end + 1] in (b" ", b"\t"):
            end += 1
        sign = data[end : end + 2]
        if sign == b"--":
            self._over = True
            self.found = self.found or Found(None)
            self._step = self._epilogue
            return end
        if sign == b"\r\n":
            self._step = self._head
            return end
        if len(sign) == 2 or end - pos > NAME_BYTES:
            raise bad_request("The multipart body has its boundary in the middle of a line.")
        self._kept = data[pos:]
        return None

    def _head(self, data: bytes, pos: int) -> int | None:
        """A part's headers, from the line's end before them."""
        end = data.find(b"\r\n\r\n", pos)
        if (len(data) if end < 0 else end) - pos > PART_HEAD_BYTES:
            raise bad_request("A part of the multipart body has too long a head.")
        if end < 0:
            self._kept = data[pos:]
            return None
        self._is_model = _part_name(data[pos + 2 : end]) == b"model"
        self._step = self._content
        return end + 2  # a part without content ends at once

    def _epilogue(self, data: bytes, pos: int) -> int | None:
        self._kept = b""
        return None


def boundary(content_type: bytes) -> bytes:
    """What stands between the parts. Raises Refusal where it is not said, or said twice."""
    found = _parameters(content_type, b"boundary")
    if len(found) != 1 or not 0 < len(found[0]) <= 200:
        raise bad_request("multipart/form-data needs one boundary.")
    return found[0]


def _part_name(head: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-disposition:"):
            return next(iter(_parameters(line, b"name")), None)
    return None


def _parameters(line: bytes, name: bytes) -> list[bytes]:
    """A header's parameters of this name."""
    first = line.find(b";")
    found, pos = [], len(line) if first < 0 else first
    while match := _PARAMETER.match(line, pos):
        pos = match.end()
        if match.group(1).lower() == name:
            quoted, plain = match.group(2), match.group(3)
            found.append(plain if quoted is None else _ESCAPE.sub(rb"\1", quoted))
    return found


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise bad_request("'model' must be UTF-8.", "model") from None

"""The top-level `model` of a JSON object, looked for as the object comes: each byte once, and none kept."""

from __future__ import annotations

import json
import re

from agent.gateway.body_found import NAME_BYTES, Found, said_twice
from agent.gateway.errors import bad_request

_SPACES = re.compile(rb"[ \t\r\n]*")
_SOLID = re.compile(rb"[^ \t\r\n]")
_TOP = re.compile(rb'["{}\[\],]')
_DEEP = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_LITERAL = re.compile(rb"[^,}\s]*")
_KEY_BYTES = 64  # a key that is longer is not "model", however it is escaped


class JsonScanner:
    """Looks for the top-level `model` of a JSON object. `found` is set as soon as it is known; `feed` and `finish` raise
    Refusal for what is no JSON object or names two models."""

    __slots__ = ("_at", "_captured", "_depth", "_escaped", "_start", "_step", "_want_key", "found")

    def __init__(self) -> None:
        self.found: Found | None = None
        self._at = 0  # where the piece at hand begins in the body
        self._depth = -1  # before the object; 0: behind it
        self._want_key = False
        self._escaped = False  # the piece before ended in a backslash
        self._captured = bytearray()  # of a key, of the model's name
        self._start = 0  # where the model's value begins
        self._step = self._free

    def feed(self, data: bytes) -> None:
        pos, size = 0, len(data)
        while pos < size:
            pos = self._step(data, pos, size)
        self._at += size

    def finish(self) -> Found:
        if self._depth:
            raise bad_request("The body is not JSON: it ends too early.")
        assert self.found is not None
        return self.found

    # each goes on from `pos` and says how far it came

    def _free(self, data: bytes, pos: int, size: int) -> int:
        while pos < size:
            if self._depth <= 0:
                solid = _SOLID.search(data, pos)
                if solid is None:
                    return size
                if self._depth == 0 or solid.group() != b"{":
                    raise bad_request("The body must be a JSON object.")
                self._depth, self._want_key, pos = 1, True, solid.end()
                continue
            top = self._depth == 1
            match = (_TOP if top else _DEEP).search(data, pos)
            if match is None:
                return size
            pos = match.end()
            sign = data[pos - 1]
            if sign == 0x22:
                if top and self._want_key:
                    self._want_key = False
                    self._captured.clear()
                    self._step = self._key
                    return pos
                end = _STRING.match(data, pos).end()  # type: ignore[union-attr]
                if end >= size or data[end] != 0x22:
                    self._step = self._skipped
                    return pos
                pos = end + 1
            elif sign == 0x2C:
                self._want_key = True
            elif sign in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0 and self.found is None:
                    self.found = Found(None)
        return pos

    def _string(self, data: bytes, pos: int, size: int) -> tuple[int, bool]:
        """Where the string that is being read goes on to, and whether it ends there (behind its last sign)."""
        if self._escaped:
            self._escaped = False
            pos += 1
        end = _STRING.match(data, pos).end()  # type: ignore[union-attr]
        if end < size and data[end] != 0x22:
            self._escaped = True  # a backslash whose second half has not come
            return size, False
        return end, end < size

    def _skipped(self, data: bytes, pos: int, size: int) -> int:
        end, over = self._string(data, pos, size)
        if over:
            self._step = self._free
        return end + over

    def _key(self, data: bytes, pos: int, size: int) -> int:
        end, over = self._string(data, pos, size)
        if len(self._captured) <= _KEY_BYTES:
            self._captured += data[pos : min(end, pos + _KEY_BYTES + 1)]
        if over:
            self._step = self._colon
        return end + over

    def _colon(self, data: bytes, pos: int, size: int) -> int:
        pos = _SPACES.match(data, pos).end()  # type: ignore[union-attr]
        if pos == size:
            return size
        if data[pos] != 0x3A:
            raise bad_request("The body is not JSON: a key is not followed by ':'.")
        key = bytes(self._captured)
        is_model = key == b"model" or (b"\\" in key and len(key) <= _KEY_BYTES and _text(b'"%b"' % key) == "model")
        self._step = self._value if is_model else self._free
        return pos + 1

    def _value(self, data: bytes, pos: int, size: int) -> int:
        pos = _SPACES.match(data, pos).end()  # type: ignore[union-attr]
        if pos == size:
            return size
        self._captured.clear()
        self._start = self._at + pos
        if data[pos] != 0x22:
            self._step = self._literal
            return pos
        self._step = self._name
        return pos + 1

    def _name(self, data: bytes, pos: int, size: int) -> int:
        end, over = self._string(data, pos, size)
        self._captured += data[pos:end]
        if len(self._captured) > NAME_BYTES:
            raise bad_request("The model's name is too long.", "model")
        if over:
            self._set(_text(b'"%b"' % bytes(self._captured)), self._at + end + 1)
        return end + over

    def _literal(self, data: bytes, pos: int, size: int) -> int:
        end = _LITERAL.match(data, pos).end()  # type: ignore[union-attr]
        self._captured += data[pos : min(end, pos + 8)]
        if not b"null".startswith(self._captured):
            raise bad_request("'model' must be a string.", "model")
        if end < size:
            if self._captured != b"null":
                raise bad_request("'model' must be a string.", "model")
            self._set(None, self._at + end)
        return end

    def _set(self, model: str | None, end: int) -> None:
        if self.found is not None:
            raise said_twice()
        self.found = Found(model, self._start, end)
        self._step = self._free


def _text(quoted: bytes) -> str:
    try:
        text = json.loads(quoted)
        text.encode()  # lone surrogates are no text
    except ValueError as err:
        raise bad_request(f"The body is not JSON: {err}.") from None
    return text

"""The `model` of a request's body: found where it stands, and rewritten in place, every other byte as it came.

A body is scanned, not rebuilt, piece by piece, each byte once, and nothing of it is kept here: a body whose model is known
goes through as it comes, whatever its size. The scan goes on to the body's end all the same: of two models engines take
the last, the gateway the first, so a second one is refused, before the engine has the whole. A JSON body that has come
whole and is small is also checked to be JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from agent.gateway.errors import Refusal, bad_request

CHECKED_BYTES = 64 * 1024  # bodies up to this size are parsed, larger ones only scanned
NAME_BYTES = 16 * 1024  # of a model's name as it is written
PART_HEAD_BYTES = 16 * 1024
_SPACE = b" \t\r\n"
_SPACES = re.compile(rb"[ \t\r\n]*")
_SOLID = re.compile(rb"[^ \t\r\n]")
_TOP = re.compile(rb'["{}\[\],]')
_DEEP = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_LITERAL = re.compile(rb"[^,}\s]*")
_MENTION = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*")')
_KEY_BYTES = 64  # a key that is longer is not "model", however it is escaped
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PARAMETER = re.compile(rb';[ \t]*([^\s=;"]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))[ \t]*')


@dataclass(frozen=True, slots=True)
class Found:
    """The model as the client spelled it (None: absent or null), and where its value stands; `start` < 0: nowhere."""

    model: str | None
    start: int = -1
    end: int = -1


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
            raise _too_long()
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
            raise _twice()
        self.found = Found(model, self._start, end)
        self._step = self._free


class FormScanner:
    """The same for the `model` field of multipart/form-data."""

    __slots__ = ("_at", "_boundary", "_delimiter", "_is_model", "_kept", "_over", "_step", "found")

    def __init__(self, content_type: bytes) -> None:
        """Raises Refusal where the boundary is not said."""
        self.found: Found | None = None
        self._boundary = _boundary(content_type)
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
                raise _twice()
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


Scanner = JsonScanner | FormScanner


def scanner(content_type: bytes) -> Scanner:
    """For a body of this type: a form's, else JSON. Raises Refusal."""
    return FormScanner(content_type) if is_form(content_type) else JsonScanner()


def is_form(content_type: bytes) -> bool:
    return content_type[:19].lower() == b"multipart/form-data"


def find(content_type: bytes, body: bytes) -> Found:
    """The model of a whole body. Raises Refusal (400) where it cannot be read or names two models."""
    if not is_form(content_type) and len(body) <= CHECKED_BYTES:
        return _find_checked(body)
    scan = scanner(content_type)
    scan.feed(body)
    return scan.finish()


def rewrite(content_type: bytes, found: Found, model: str, body: bytes) -> bytes:
    """`body` (or its beginning, as far as it has come) saying `model`; every other byte as it was."""
    form = is_form(content_type)
    value = model.encode() if form else json.dumps(model, ensure_ascii=False).encode()
    if found.start >= 0:
        return body[: found.start] + value + body[found.end :]
    if form:
        opening = b"--" + _boundary(content_type)
        field = opening + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + value + b"\r\n"
        return field + body[body.index(opening) :]
    brace = body.index(b"{") + 1
    comma = b"" if body[brace : brace + 1024].lstrip(_SPACE)[:1] == b"}" else b","
    return body[:brace] + b'"model":' + value + comma + body[brace:]


def _find_checked(body: bytes) -> Found:
    if not body.strip(_SPACE):
        raise bad_request("The body is empty; a JSON object is expected.")
    try:
        content = _parsed(body)
    except (ValueError, RecursionError) as err:
        raise bad_request(f"The body is not JSON: {err}.") from None
    if not isinstance(content, dict):
        raise bad_request("The body must be a JSON object.")
    model = content.get("model")
    if model is not None and not isinstance(model, str):
        raise bad_request("'model' must be a string.", "model")
    found = _only_mention(body, model)
    if found is None:
        scan = JsonScanner()
        scan.feed(body)
        found = scan.finish()
    return found


def _parsed(body: bytes) -> object:
    """As json.loads, which takes its time to find out about encodings."""
    if body[:1] == b"{":
        try:
            text = body.decode()
            content, end = _decode(text)
        except ValueError:
            return json.loads(body)  # which may know better, and says what it is
        if end == len(text) or not text[end:].strip(" \t\r\n"):
            return content
    return json.loads(body)


_decode = json.JSONDecoder().raw_decode


def _only_mention(body: bytes, model: str | None) -> Found | None:
    """Where the model stands in a body that is known to be JSON and to have this model: at once, where "model" is
    written once and nothing is escaped (an escape could spell the key as well)."""
    if model is None or (b"\\" in body and b"\\u" in body):
        return None
    at = body.find(b'"model"')
    if at < 0 or body.find(b'"model"', at + 7) >= 0:
        return None
    match = _MENTION.match(body, at)
    return Found(model, match.start(1), match.end(1)) if match else None


def _boundary(content_type: bytes) -> bytes:
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


def _text(quoted: bytes) -> str:
    try:
        text = json.loads(quoted)
        text.encode()  # lone surrogates are no text
    except ValueError as err:
        raise bad_request(f"The body is not JSON: {err}.") from None
    return text


def _too_long() -> Refusal:
    return bad_request("The model's name is too long.", "model")


def _twice() -> Refusal:
    return bad_request("The body says 'model' more than once.", "model")

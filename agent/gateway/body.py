"""The `model` of a request's body: found where it stands, and rewritten in place, every other byte as it came.

A JSON body is scanned, not rebuilt: the scanner goes over each byte once, also where the body comes in pieces and holds
strings of many megabytes. A body that has come whole and is small is also checked to be JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from agent.gateway.errors import bad_request

CHECKED_BYTES = 64 * 1024  # bodies up to this size are parsed, larger ones only scanned
_SPACE = b" \t\r\n"
_STRUCTURE = re.compile(rb'["{}\[\],]')
_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_MENTION = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*")')
_VALUE = re.compile(rb"[^,}\s]+")


@dataclass(frozen=True, slots=True)
class Found:
    """The model as the client spelled it (None: absent or null), and where its value stands; `start` < 0: nowhere."""

    model: str | None
    start: int = -1
    end: int = -1


class ModelScanner:
    """Looks for the top-level `model` in a growing JSON body. `scan` goes on where the last call stopped."""

    def __init__(self) -> None:
        self._pos = 0
        self._depth = 0
        self._string: int | None = None  # where the string that is being read began
        self._key: bytes | None = None  # the last string at depth 1 where a key may stand
        self._want_key = False
        self._found: Found | None = None

    def scan(self, data: bytes | bytearray, complete: bool) -> Found | None:
        """What was found; None while more must come. Raises Refusal for what is not a JSON object."""
        size = len(data)
        while True:
            if self._string is not None:
                self._pos = end = _STRING.match(data, self._pos).end()  # type: ignore[union-attr]
                if end >= size or data[end] != 0x22:  # also a backslash whose second half has not come
                    return self._more(complete)
                start, self._string = self._string, None
                self._pos = end + 1
                if self._depth == 1 and self._want_key:
                    self._key, self._want_key = bytes(data[start : end + 1]), False
                continue
            if self._key is not None:
                done = self._value(data, size, complete)
                if done is None:
                    return self._more(complete)
                if self._found is not None:
                    return self._found
                continue
            match = _STRUCTURE.search(data, self._pos)
            if self._depth == 0:
                begun = bytes(data[self._pos : match.start() if match else size]).strip(_SPACE)
                if begun or (match and match.group() != b"{"):
                    raise bad_request("The body must be a JSON object.")
            if match is None:
                self._pos = size
                return self._more(complete)
            self._pos = match.end()
            sign = match.group()
            if sign == b'"':
                self._string = match.start()
            elif sign in b"{[":
                self._depth += 1
                self._want_key = self._depth == 1
            elif sign == b",":
                self._want_key = self._depth == 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return Found(None)

    def _value(self, data: bytes | bytearray, size: int, complete: bool) -> bool | None:
        """Behind a key at depth 1: True once it is dealt with, None while more must come."""
        pos = self._pos
        while pos < size and data[pos] in _SPACE:
            pos += 1
        if pos < size and data[pos] != 0x3A:
            raise bad_request("The body is not JSON: a key is not followed by ':'.")
        pos += 1
        while pos < size and data[pos] in _SPACE:
            pos += 1
        if pos >= size:
            return None
        assert self._key is not None
        if b"\\" not in self._key and self._key != b'"model"':
            self._key, self._pos = None, pos
            return True
        if _text(self._key) != "model":
            self._key, self._pos = None, pos
            return True
        if data[pos] == 0x22:
            end = _STRING.match(data, pos + 1).end()  # type: ignore[union-attr]
            if end >= size or data[end] != 0x22:
                if size - pos > CHECKED_BYTES:
                    raise bad_request("The model's name is too long.", "model")
                return None
            self._found = Found(_text(bytes(data[pos : end + 1])), pos, end + 1)
            return True
        match = _VALUE.match(data, pos)
        if match is None or (match.end() >= size and not complete):
            return None
        if match.group() != b"null":
            raise bad_request("'model' must be a string.", "model")
        self._found = Found(None, match.start(), match.end())
        return True

    @staticmethod
    def _more(complete: bool) -> None:
        if complete:
            raise bad_request("The body is not JSON: it ends too early.")


def find_model(body: bytes) -> Found:
    """The model of a whole JSON body. Raises Refusal (400) where it is not JSON, not an object, or names two models."""
    if not body.strip(_SPACE):
        raise bad_request("The body is empty; a JSON object is expected.")
    if len(body) > CHECKED_BYTES:
        return ModelScanner().scan(body, True) or Found(None)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as err:
        raise bad_request(f"The body is not JSON: {err}.") from None
    if not isinstance(content, dict):
        raise bad_request("The body must be a JSON object.")
    model = content.get("model")
    if model is not None and not isinstance(model, str):
        raise bad_request("'model' must be a string.", "model")
    found = _only_mention(body, model) or ModelScanner().scan(body, True) or Found(None)
    if found.model != model:
        raise bad_request("The body says 'model' more than once.", "model")
    return found


def _only_mention(body: bytes, model: str | None) -> Found | None:
    """Where the model stands in a body that is known to be JSON and to have this model: at once, where "model" is
    written once and nothing is escaped (an escape could spell the key as well)."""
    if model is None or b"\\u" in body or body.count(b'"model"') != 1:
        return None
    match = _MENTION.match(body, body.index(b'"model"'))
    return Found(model, match.start(1), match.end(1)) if match else None


def rewrite(found: Found, model: str, body: bytes) -> bytes:
    """`body` (or its beginning, as far as it has come) saying `model`; every other byte as it was."""
    value = json.dumps(model, ensure_ascii=False).encode()
    if found.start >= 0:
        return body[: found.start] + value + body[found.end :]
    brace = body.index(b"{") + 1
    comma = b"" if body[brace : brace + 1024].lstrip(_SPACE)[:1] == b"}" else b","
    return body[:brace] + b'"model":' + value + comma + body[brace:]


def find_model_multipart(content_type: bytes, body: bytes) -> tuple[Found, bytes]:
    """The `model` field of a whole multipart body. Raises Refusal where the form cannot be read."""
    boundary = _boundary(content_type)
    opening = b"--" + boundary
    pos = 0 if body.startswith(opening) else body.find(b"\r\n" + opening)
    if pos < 0:
        raise bad_request("The multipart body does not begin with its boundary.")
    pos = pos + len(opening) if pos == 0 else pos + 2 + len(opening)
    while body[pos : pos + 2] == b"\r\n":
        head_end = body.find(b"\r\n\r\n", pos)
        if head_end < 0:
            break
        end = body.find(b"\r\n" + opening, head_end + 2)
        if end < 0:
            break
        if _part_name(body[pos + 2 : head_end]) == b"model":
            start = head_end + 4
            return Found(body[start:end].decode("utf-8", "replace"), start, end), boundary
        pos = end + 2 + len(opening)
    if body[pos : pos + 2] != b"--":
        raise bad_request("The multipart body is cut short.")
    return Found(None), boundary


def rewrite_multipart(found: Found, boundary: bytes, model: str, body: bytes) -> bytes:
    """The body with its `model` field saying `model`; a field is put first where there was none."""
    if found.start >= 0:
        return body[: found.start] + model.encode() + body[found.end :]
    field = b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + model.encode() + b"\r\n"
    return b"--" + boundary + field + body[body.index(b"--" + boundary) :]


def _boundary(content_type: bytes) -> bytes:
    match = re.search(rb'boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', content_type, re.IGNORECASE)
    if match is None:
        raise bad_request("multipart/form-data without a boundary.")
    return match.group(1) or match.group(2)


def _part_name(head: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-disposition:"):
            match = re.search(rb'[;\s]name=(?:"([^"]*)"|([^\s;]+))', line)
            return (match.group(1) or match.group(2)) if match else None
    return None


def _text(quoted: bytes) -> str:
    try:
        text = json.loads(quoted)
        text.encode()  # lone surrogates are no text
    except ValueError as err:
        raise bad_request(f"The body is not JSON: {err}.") from None
    return text

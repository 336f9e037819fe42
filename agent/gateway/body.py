"""The `model` of a request's body: found where it stands, and rewritten in place, every other byte as it came.

A body is scanned, not rebuilt, piece by piece, each byte once, and nothing of it is kept here: a body whose model is known
goes through as it comes, whatever its size. The scan goes on to the body's end all the same: of two models engines take
the last, the gateway the first, so a second one is refused, before the engine has the whole. A JSON body that has come
whole and is small is also checked to be JSON.
"""

from __future__ import annotations

import json
import re

from agent.gateway.body_form import FormScanner, boundary
from agent.gateway.body_found import Found
from agent.gateway.body_json import JsonScanner
from agent.gateway.errors import bad_request

CHECKED_BYTES = 64 * 1024  # bodies up to this size are parsed, larger ones only scanned
_SPACE = b" \t\r\n"
_MENTION = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*")')

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
        opening = b"--" + boundary(content_type)
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

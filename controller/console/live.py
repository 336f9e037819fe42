"""The live parts of a page: small pieces of HTML by name, polled by static/console.js every 2 s and swapped where changed.

A page names its address in `data-live`; `answer` makes what stands there. 304 while nothing but times has changed. Who
says which parts they have (the tag of their last answer, in If-None-Match) is sent only those that differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from flask import Response, current_app, request
from flask_babel import get_locale

from controller.console import language
from controller.console.kept import Kept
from controller.context import Context
from controller.rights import Actor

# What ticks in the browser is no change: countdowns, and how far a bar has come.
_TICKS = re.compile(r'(<span data-tick="[^>]*>)[^<]*|(?<=<progress)( [^>]*?) value="[^"]*"')
Parts = dict[str, str]
Piece = tuple[str, str]  # mark, HTML


def answer(
    ctx: Context, actor: Actor, what: tuple[Any, ...], now: int, make: Callable[[], tuple[Parts, int]]
) -> Response:
    """The parts of a page for `actor`. `make()` gives (name -> HTML, until when it is good if nothing is changed)."""
    whole = ("parts", *what, actor.id, actor.role, str(get_locale()), language.chosen_zone().key)

    def read() -> tuple[dict[str, tuple[str, str]], int]:
        parts, until = make()
        return {name: (part_hash(html), html) for name, html in parts.items()}, until

    return marked(now, ctx.polled.get(ctx.store, ctx.live, whole, None, now, read, lambda made: made))


def marked(now: int, parts: Mapping[str, tuple[str, str]]) -> Response:
    """The same for parts whose marks (part_hash) are known."""
    marks = {name: mark for name, (mark, _html) in parts.items()}
    return told(now, parts, marks, tag_of(marks))


def told(now: int, parts: Mapping[str, tuple[str, str]], marks: dict[str, str], tag: str) -> Response:
    """The same where the tag is known as well: nothing is looked at while it is what the browser has."""
    asked = request.headers.get("If-None-Match", "").removeprefix("W/").strip('"')
    if asked == tag:
        answer = Response(status=304)
    else:
        had: dict[str, str] | None = _sent.known(asked)
        _sent.put(tag, marks)
        changed = {n: parts[n] for n, m in marks.items() if had is None or had.get(n) != m}
        names = None if had is not None and had.keys() == marks.keys() else list(marks)
        body = {"now": now, "parts": changed, "names": names}
        answer = Response(json.dumps(body, ensure_ascii=False), mimetype="application/json")
    answer.set_etag(tag, weak=True)
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.headers["Vary"] = "Cookie, Accept-Language"
    answer.headers["X-SlotServe-Now"] = str(now)
    return answer


def sent(marks: dict[str, str]) -> str:
    """The tag of parts that a page carries itself: its browser's first poll gets only what differs from them."""
    tag = tag_of(marks)
    _sent.put(tag, marks)
    return tag


def signed_out() -> Response:
    """What a poll is told when the session has ended."""
    return Response(json.dumps({"login": "/login?next=/"}), 401, mimetype="application/json")


def hashes(parts: Parts, marked_parts: Mapping[str, tuple[str, str]] | None = None) -> str:
    """For a page's `data-hashes`, so that the first poll swaps nothing."""
    known = {name: mark for name, (mark, _html) in (marked_parts or {}).items()}
    return json.dumps({**known, **{name: part_hash(html) for name, html in parts.items()}}, separators=(",", ":"))


def render(name: str, **values: Any) -> str:
    """console/_<name>.html with the words of times, without what only whole pages need."""
    words: dict[str, Any] = current_app.extensions["slotserve.words"]()
    return current_app.jinja_env.get_template(f"console/_{name}.html").render(**words, **values)


def part_hash(html: str) -> str:
    """What the browser compares: of the part without what ticks."""
    if "data-tick" in html or "<progress" in html:
        html = _TICKS.sub(r"\1\2", html)
    return hashlib.blake2b(html.encode(), digest_size=8).hexdigest()


def tag_of(marks: dict[str, str]) -> str:
    """The tag of a set of parts."""
    return hashlib.blake2b("".join(m + n for n, m in marks.items()).encode(), digest_size=10).hexdigest()


# What was sent lately: tag -> marks of its parts. Forgotten ones cost the browser a whole answer, nothing else.
_sent = Kept(512)

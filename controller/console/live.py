"""The live parts of a page: small pieces of HTML by name, polled by static/console.js every 2 s and swapped where changed.

A page names its address in `data-live`; `answer` makes what stands there. 304 while nothing but times has changed. Who
says which parts they have (the tag of their last answer, in If-None-Match) is sent only those that differ.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flask import Response, request
from flask_babel import get_locale

from controller.console import language
from controller.context import Context
from controller.rights import Actor

# What ticks in the browser is no change: countdowns, and how far a bar has come.
_TICKS = re.compile(r'(<span data-tick="[^>]*>)[^<]*|(?<=<progress)( [^>]*?) value="[^"]*"')
Parts = dict[str, str]


def answer(
    ctx: Context, actor: Actor, what: tuple[Any, ...], now: int, make: Callable[[], tuple[Parts, int]]
) -> Response:
    """The parts of a page for `actor`. `make()` gives (name -> HTML, until when it is good if nothing is changed)."""
    whole = ("parts", *what, actor.id, actor.role, str(get_locale()), language.chosen_zone().key)

    def read() -> tuple[tuple[dict[str, str], Parts, str], int]:
        parts, until = make()
        marks = {name: part_hash(html) for name, html in parts.items()}
        return (marks, parts, tag_of(marks)), until

    marks, parts, tag = ctx.polled.get(ctx.store, ctx.live, whole, None, now, read, lambda made: made)
    had = _sent.get(request.if_none_match.to_header().strip('W/"')) if request.if_none_match else None
    _sent.put(tag, marks)
    if had is not None:
        changed = {n: [m, parts[n]] for n, m in marks.items() if had.get(n) != m}
        body = {"now": now, "parts": changed, "names": None if had.keys() == marks.keys() else list(marks)}
    else:
        body = {"now": now, "parts": {n: [m, parts[n]] for n, m in marks.items()}, "names": list(marks)}
    told = Response(json.dumps(body, ensure_ascii=False), mimetype="application/json")
    told.set_etag(tag, weak=True)
    told.headers["Cache-Control"] = "private, no-cache"
    told.headers["Vary"] = "Cookie, Accept-Language"
    told.headers["X-SlotServe-Now"] = str(now)
    told.make_conditional(request)
    return told


def signed_out() -> Response:
    """What a poll is told when the session has ended."""
    return Response(json.dumps({"login": "/login?next=/"}), 401, mimetype="application/json")


def hashes(parts: Parts) -> str:
    """For a page's `data-hashes`, so that the first poll swaps nothing."""
    return json.dumps({name: part_hash(html) for name, html in parts.items()})


def part_hash(html: str) -> str:
    """What the browser compares: of the part without what ticks."""
    if "data-tick" in html or "<progress" in html:
        html = _TICKS.sub(r"\1\2", html)
    return hashlib.blake2b(html.encode(), digest_size=8).hexdigest()


def tag_of(marks: dict[str, str]) -> str:
    """The tag of a set of parts."""
    return hashlib.blake2b("".join(m + n for n, m in marks.items()).encode(), digest_size=10).hexdigest()


class _Sent:
    """What was sent lately: tag -> marks of its parts. Forgotten ones cost the browser a whole answer, nothing else."""

    def __init__(self, kept: int = 512) -> None:
        self._kept, self._known, self._lock = kept, OrderedDict[str, dict[str, str]](), threading.Lock()

    def get(self, tag: str) -> dict[str, str] | None:
        with self._lock:
            return self._known.get(tag)

    def put(self, tag: str, marks: dict[str, str]) -> None:
        with self._lock:
            self._known[tag] = marks
            self._known.move_to_end(tag)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)


_sent = _Sent()

"""The REST API's sentences in the reader's language.

The API speaks English to everybody; what it says is made of sentences with places, marked where they stand. Here the
sentence that a text was made of is found again, translated, and its values filled in. A text that is made of none is
shown as it is.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from flask_babel import get_locale
from flask_babel import gettext as _

from controller.context import Context
from controller.words import N_

# What the rules say is marked in their modules (MARKED); these are the refusals of acts.
ACTS = (
    N_("%(channel)s is booked at that time; take another time or another channel"),
    N_("say why: this is somebody else's booking, and its holder is told"),
    N_("say why, the requester will read it"),
    N_("version: the booking was changed meanwhile (it is at version %(version)s); look at it again"),
    N_("the booking was changed meanwhile; look at it again"),
    N_("the booking is %(status)s; nothing can be changed"),
    N_("the booking is %(status)s; only a pending one can be decided"),
    N_("there is nobody with the id or name %(name)s"),
    N_("there is no channel %(channel)s; name it node/channel"),
    N_("node %(node)s is away; it goes on by its plan and hears nothing until it is back"),
    N_("Node %(node)s is away at present: what it runs cannot be seen from here."),
    N_("This booking waits for an approver; it holds the time until then."),
    N_("starts_at was up to a minute in the past: it counts as now."),
    N_("Over a limit, which you may pass: %(limit)s."),
    N_("%(skipped)s of %(all)s clash and are left out."),
    N_("only an administrator may do this"),
    N_("only an administrator may book for somebody else"),
    N_("this is somebody else's booking; only its holder or an administrator may change it"),
    N_("needs an approver's word, and the booking runs: ask one"),
    N_("this booking has begun; end it and book the other channel"),
    N_("The channel is no longer there: this booking cannot be served."),
)
MARKED = ("booking_rules", "hints", "policies")
_PLACE = re.compile(r"%\((\w+)\)[sd]")


def register(app: Flask, ctx: Context) -> None:
    """What the API answers to the console's own calls is in the person's language. Keys get English, and so do readings:
    they carry no sentences but data."""

    @app.after_request
    def _translate(answer: Response) -> Response:
        own = request.path.startswith("/api/v1/") and "Authorization" not in request.headers
        if not own or answer.mimetype != "application/json" or (request.method == "GET" and answer.status_code < 400):
            return answer
        if not str(get_locale() or "en").startswith("en"):
            answer.set_data(json.dumps(_told(json.loads(answer.get_data())), ensure_ascii=False))
        return answer


def _told(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: spoken(v) if k == "message" and isinstance(v, str) else _told(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_told(each) for each in data]
    return data


def spoken(text: str) -> str:
    """In the request's language; a limit inside a sentence as well."""
    if str(get_locale() or "en").startswith("en"):
        return text
    for pattern, sentence in _patterns():
        if match := pattern.fullmatch(text):
            told = str(_(sentence))
            values = {k: spoken(v) if k == "limit" else v.strip("'\"") for k, v in match.groupdict().items()}
            return _PLACE.sub(r"%(\1)s", told) % values
    return text


def sentences() -> Iterable[str]:
    """All that are known, the ones with fewer places first."""
    found = list(ACTS)
    for name in MARKED:
        module = import_module(f"controller.scheduling.{name}")
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "N_" and node.args:
                said = node.args[0]
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    found.append(said.value)
    return sorted(dict.fromkeys(found), key=lambda s: (len(_PLACE.findall(s)), -len(s)))


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((_pattern(s), s) for s in sentences())


def _pattern(sentence: str) -> re.Pattern[str]:
    parts, last = [], 0
    for place in _PLACE.finditer(sentence):
        parts += [re.escape(sentence[last : place.start()]), f"(?P<{place[1]}>.+?)"]
        last = place.end()
    return re.compile("".join([*parts, re.escape(sentence[last:])]), re.DOTALL)

"""What the controller says of a request, in the reader's language.

The API speaks English to everybody. What it says are sentences that know what they are made of (controller/said.py), so
for a person who is signed in to the console they are put together anew out of the reader's catalogue: in the JSON that
the page's own script asked for, and in the page itself.
"""

from __future__ import annotations

from typing import Any

from flask import Flask, has_request_context, request
from flask.json.provider import DefaultJSONProvider
from flask_babel import get_locale
from flask_babel import gettext as _
from werkzeug.sansio.response import Response

from controller.context import Context
from controller.said import told, told_in


class Spoken(DefaultJSONProvider):
    """JSON whose sentences are in the reader's language; who comes with a key reads English."""

    sort_keys, ensure_ascii = False, False

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """An answer only: the session's cookie is JSON as well, and is read before anybody knows whose language it is."""
        if _foreign():
            args, kwargs = told_in(args, _), told_in(kwargs, _)
        return super().response(*args, **kwargs)


def register(app: Flask, ctx: Context) -> None:
    """Everything that the application answers as JSON goes through it."""
    app.json = Spoken(app)


def spoken(text: str) -> str:
    """For a page: the sentence in the request's language, other text as it is."""
    return told(text, _) if _foreign() else text


def _foreign() -> bool:
    if not has_request_context() or "Authorization" in request.headers:
        return False
    return not str(get_locale() or "en").startswith("en")

"""What can go wrong in a call, as one small hierarchy; and the one place that turns it into an answer.

Under /api/v1 every error is JSON `{"error": {"code", "message", "details"}}`, whatever raised it: ours, Flask's (404,
405, 413, 415 …) or a fault of ours (500: logged with an id, no traceback to the person). Elsewhere the console may set
`app.extensions["slotserve.error_page"] = f(status, message) -> response`.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from flask import Flask, g, jsonify, request
from flask.typing import ResponseReturnValue
from sqlalchemy.exc import DBAPIError, TimeoutError
from werkzeug.exceptions import HTTPException

from controller.said import fault, say
from controller.store.session import answers_not, why_not

log = logging.getLogger(__name__)
NOT_ASKED = "database_not_asked"  # in flask.g: the answer is made without the database, which fails


class ApiError(Exception):
    """A refusal fit for people. `extra` are members that stand beside `error` in the body (conflicts, problems …)."""

    status = 400
    code = "bad_request"

    def __init__(self, message: str, *, details: dict[str, Any] | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.extra = extra

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "details": self.details}, **self.extra}


class BadRequest(ApiError):
    """The request cannot be read at all."""


class Unauthorized(ApiError):
    status, code = 401, "unauthorized"


class Forbidden(ApiError):
    status, code = 403, "forbidden"


class NotFound(ApiError):
    status, code = 404, "not_found"


class Conflict(ApiError):
    """Somebody was faster, or what is asked for does not fit what is there."""

    status, code = 409, "conflict"


class Invalid(ApiError):
    """Bad input: `details` maps each field to what is wrong with it."""

    status, code = 422, "invalid"

    @classmethod
    def field(cls, name: str, message: str, **extra: Any) -> Invalid:
        """One field's fault; the message is made to name it."""
        return cls(fault(name, message), details={name: message}, **extra)


class TooMany(ApiError):
    status, code = 429, "too_many_requests"


class Unavailable(ApiError):
    status, code = 503, "unavailable"


def register(app: Flask) -> None:
    """Error handlers of the whole application."""

    @app.errorhandler(ApiError)
    def _ours(err: ApiError) -> ResponseReturnValue:
        answer = app.make_response(_answer(app, err.status, err.body()))
        if err.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        if "retry_after" in err.details:
            answer.headers["Retry-After"] = str(err.details["retry_after"])
        return answer

    @app.errorhandler(HTTPException)
    def _flask(err: HTTPException) -> ResponseReturnValue:
        status = err.code or 500
        if status < 400:
            return err.get_response()
        code = (err.name or "error").lower().replace(" ", "_")
        body = {"error": {"code": code, "message": _words(err), "details": {}}}
        answer = app.make_response(_answer(app, status, body))
        valid_methods = getattr(err, "valid_methods", None)
        if valid_methods:
            answer.headers["Allow"] = ", ".join(sorted(valid_methods))
        return answer

    @app.errorhandler(DBAPIError)
    @app.errorhandler(TimeoutError)  # every connection is in use
    def _database(err: DBAPIError | TimeoutError) -> ResponseReturnValue:
        if not answers_not(err):
            return _fault(err)
        said = why_not(err)
        setattr(g, NOT_ASKED, True)
        log.error("database failed method=%s path=%s error=%s", request.method, request.path, said)
        again = Unavailable(_sorry(said))
        answer = app.make_response(_answer(app, again.status, again.body()))
        answer.headers["Retry-After"] = "5"
        return answer

    @app.errorhandler(Exception)
    def _fault(err: Exception) -> ResponseReturnValue:
        number = secrets.token_hex(4)
        log.exception("request failed fault=%s method=%s path=%s", number, request.method, request.path, exc_info=err)
        message = say(
            "something went wrong here, not in your request; the controller's log has it under %(number)s",
            number=number,
        )
        return _answer(app, 500, {"error": {"code": "internal", "message": message, "details": {"fault": number}}})


def _sorry(said: str) -> str:
    """What is the matter with the database, for people; its own words are in the log."""
    low = said.lower()
    if "full" in low or "no space" in low or "disk i/o" in low:
        why: str = say(
            "the controller's disk is full or fails, so nothing can be written; an administrator has to make room"
        )
    elif "locked" in low or "lock timeout" in low:
        why = say("somebody else keeps the database locked (a migration, a shell that was left open)")
    elif "readonly" in low or "read-only" in low:
        why = say("the database can only be read at present")
    else:
        why = say("the database does not answer")
    return say("%(why)s. Nothing was changed. What runs goes on by its timetable; try again in a while", why=why)


def _answer(app: Flask, status: int, body: dict[str, Any]) -> ResponseReturnValue:
    page = app.extensions.get("slotserve.error_page")
    if page is not None and not request.path.startswith("/api/"):
        return app.make_response((page(status, body["error"]["message"]), status))
    return jsonify(body), status


def _words(err: HTTPException) -> str:
    if err.code == 404:
        return say("there is no %(path)s", path=request.path)
    if err.code == 405:
        return say("%(method)s is not possible on %(path)s", method=request.method, path=request.path)
    if err.code == 413:
        return say("the request is larger than this server takes (1 MiB)")
    return err.description or err.name or say("the request failed")

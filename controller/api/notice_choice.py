"""What a person is told, and by which ways: their own choice, the defaults beside it."""

from __future__ import annotations

import threading
from typing import Any

from pydantic import Field

from controller.api.route import Body, Call, Route
from controller.errors import Conflict, Invalid, NotFound, TooMany
from controller.notify import delivery
from controller.notify.delivery import Letter
from controller.notify.kinds import KINDS, WAYS, chosen, concerns, ways
from controller.notify.ways import chat
from controller.notify.ways.message import NotDelivered
from controller.said import say, words_of
from controller.store import targets, users
from controller.store.tables import User, new_id

_tests = threading.BoundedSemaphore(2)  # a test waits for its answer: not with every thread of the web side


class Choice(Body):
    kinds: dict[str, list[str] | None] = Field(
        max_length=100, description=f"kind -> ways ({', '.join(WAYS)}); null: the default again"
    )


def look(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        user = _person(session, call)
        return _shape(call, user, targets.count(session, user.id))


def choose(call: Call) -> dict[str, Any]:
    with call.ctx.store.write() as session:
        user = _person(session, call)
        try:
            user.notify = chosen(user.notify, call.body(Choice).kinds)
        except ValueError as err:
            raise Invalid.field("kinds", words_of(err)) from None
        return _shape(call, user, targets.count(session, user.id))


def try_mail(call: Call) -> dict[str, Any]:
    ctx = call.ctx
    with ctx.store.read() as session:
        user = _person(session, call)
    if not user.email:
        raise Conflict(say("your account has no e-mail address; set it first"))
    letter = delivery.to_person(ctx.settings, user, new_id(), f"test:{user.id}", "test", "", {}, call.now)
    if letter is None:
        raise Conflict(delivery.NO_SERVER)
    return sent_now(call, letter)


def sent_now(call: Call, letter: Letter) -> dict[str, Any]:
    """A test, sent while its sender waits: {ok, error}."""
    if not _tests.acquire(blocking=False):
        raise TooMany(say("other tests are being sent at this moment; try again in a few seconds"))
    try:
        delivery.send(call.ctx.settings, letter, call.now)
    except NotDelivered as err:
        return {"ok": False, "error": str(err)}
    finally:
        _tests.release()
    return {"ok": True, "error": None}


def _shape(call: Call, user: User, own_targets: int) -> dict[str, Any]:
    return {
        "ways": [{"way": way, "available": not why, "why": why} for way, why in _available(call, user, own_targets)],
        "email": user.email,
        "kinds": [
            {
                "kind": kind.name,
                "title": kind.title,
                "group": kind.group,
                "ways": list(ways(user.notify, kind.name)),
                "default": list(kind.default),
                "own": kind.name in (user.notify or {}),
                "roles": list(kind.roles) if kind.roles else None,
            }
            for kind in KINDS.values()
            if concerns(kind, user.role)
        ],
    }


def _available(call: Call, user: User, own_targets: int) -> list[tuple[str, str]]:
    """Each way, and why it brings nothing at present."""
    no_mail = (
        delivery.NO_SERVER if not call.ctx.settings.smtp_host else "" if user.email else say("no e-mail address is set")
    )
    none = "" if own_targets else say("no target of this kind yet")
    return [("in_app", ""), ("email", no_mail), ("webhook", none), ("chat", chat.available() or none)]


def _person(session: Any, call: Call) -> User:
    user = users.get(session, call.actor.id)
    if user is None:
        raise NotFound(say("the account is gone"))
    return user


ROUTES = (
    Route("GET", "/me/notifications", look, "What one is told, and by which ways"),
    Route("PATCH", "/me/notifications", choose, "Chooses ways for kinds of notices", body=Choice),
    Route("POST", "/me/notifications/test", try_mail, "Sends a test mail to oneself, at once",
          answers={409: "No address, or no mail server", 429: "Other tests are under way"}),
)  # fmt: skip

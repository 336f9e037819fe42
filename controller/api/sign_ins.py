"""One's own sessions in the console: seen, and ended one by one or all at once."""

from __future__ import annotations

from typing import Any

from controller import sessions
from controller.api import auth
from controller.api.route import Call, Route
from controller.errors import NotFound
from controller.said import say
from controller.store import audit, web_sessions
from controller.store.tables import WebSession
from controller.times import text_of


def list_sessions(call: Call) -> dict[str, Any]:
    current = auth.session_id(call.ctx, call.actor)
    idle, most = sessions.limits(call.ctx.settings)
    with call.ctx.store.read() as session:
        rows = web_sessions.of_person(session, call.actor.id, call.now, idle, most)
    return {"items": [_shape(r, current, idle, most) for r in rows], "next": None}


def end_session(call: Call) -> None:
    with call.ctx.store.write() as session:
        if not web_sessions.end(session, call.args["id"], call.now, call.actor.id):
            raise NotFound(say("there is no such session of yours"))
        audit.add(session, call.actor.id, "session.end", call.actor.id, call.now, before={"session": call.args["id"]})


def end_others(call: Call) -> None:
    with call.ctx.store.write() as session:
        count = web_sessions.end_all(session, call.actor.id, call.now, auth.session_id(call.ctx, call.actor))
        if count:
            audit.add(session, call.actor.id, "session.end", call.actor.id, call.now, before={"sessions": count})


def _shape(row: WebSession, current: str, idle: int, most: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "current": row.id == current,
        "way": row.way,
        "created_at": text_of(row.created_at),
        "seen_at": text_of(row.seen_at),
        "expires_at": text_of(min(row.seen_at + idle, row.created_at + most)),
        "address": row.address,
        "agent": row.agent,
    }


ROUTES = (
    Route("GET", "/me/sessions", list_sessions, "One's own sessions in the console", action="session.use"),
    Route("DELETE", "/me/sessions", end_others, "Signs out everywhere else (with a key: everywhere)", status=204,
          action="session.use"),
    Route("DELETE", "/me/sessions/<id>", end_session, "Ends one of one's own sessions", status=204,
          action="session.use", answers={404: "No such session"}),
)  # fmt: skip

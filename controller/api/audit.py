"""Who did what, newest first, in words and with what it changed: for administrators."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import acts, shapes
from controller.api.route import Call, Page, Route, cursor, listed, place
from controller.errors import Invalid
from controller.said import say
from controller.store import audit, users
from controller.times import Instant


class AuditPage(Page):
    actor: str | None = Field(None, max_length=200, description="Id or name; `system` = SlotServe itself")
    action: str | None = Field(
        None, max_length=64, description="Such as reservation.create; `reservation.*` = all of them"
    )
    subject: str | None = Field(
        None, max_length=600, description="Id of what it was done to, or node/channel, or a node"
    )
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")


def list_audit(call: Call) -> dict[str, Any]:
    query = call.query(AuditPage)
    before = place(query.cursor, str)
    action = query.action.removesuffix("*") if query.action else None
    with call.ctx.store.read() as session:
        actor = None
        if query.actor is not None and query.actor != "system":
            actor = users.find(session, query.actor)
            if actor is None:
                raise Invalid.field("actor", say("there is nobody with the id or name %(name)s", name=query.actor))
        rows = audit.page(
            session,
            query.limit + 1,
            before[0] if before else None,
            action or None,
            query.subject,
            audit.SYSTEM if query.actor == "system" else actor.id if actor else None,
            (query.start, query.end),
        )
        names = users.names(session, {r.actor_id for r in rows})
        called = acts.subjects(session, rows)
        values = acts.Values(session, rows)

    def shape(row: Any) -> dict[str, Any]:
        subject = called.get(row.id, (row.subject, ""))[0]
        return {
            **shapes.audit(row, names),
            "subject_name": subject,
            "changes": [
                {"field": what, "before": values.said(what, old) or None, "after": values.said(what, new) or None}
                for what, old, new in acts.changes(row.before, row.after)
            ],
            "text": acts.sentence(row, names.get(row.actor_id or "", ""), subject),
        }

    return listed(rows, query.limit, shape, lambda r: cursor(r.id))


def list_actions(_call: Call) -> dict[str, Any]:
    return {"items": [{"action": action, "text": words} for action, words in acts.ACTIONS.items()], "next": None}


ROUTES = (
    Route("GET", "/audit", list_audit, "The audit trail", query=AuditPage, action="audit.see"),
    Route("GET", "/audit/actions", list_actions, "What is written down, in words", action="audit.see"),
)

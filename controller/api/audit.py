"""Who did what, newest first: for administrators."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import shapes
from controller.api.route import Call, Page, Route, cursor, listed, place
from controller.errors import Invalid
from controller.store import audit, users
from controller.times import Instant


class AuditPage(Page):
    action: str | None = Field(None, max_length=64, description="Exactly, or all that begin so where it ends in a dot")
    subject: str | None = Field(None, max_length=600)
    actor: str | None = Field(None, max_length=200, description="Who did it: id or name")
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")


def list_audit(call: Call) -> dict[str, Any]:
    query = call.query(AuditPage)
    before = place(query.cursor, str)
    with call.ctx.store.read() as session:
        actor = None
        if query.actor is not None and (actor := users.find(session, query.actor)) is None:
            raise Invalid.field("actor", f"there is nobody with the id or name {query.actor}")
        rows = audit.page(
            session,
            query.limit + 1,
            before[0] if before else None,
            query.action,
            query.subject,
            actor.id if actor else None,
            (query.start, query.end),
        )
        names = users.names(session, {r.actor_id for r in rows})
    return listed(rows, query.limit, lambda r: shapes.audit(r, names), lambda r: cursor(r.id))


ROUTES = (Route("GET", "/audit", list_audit, "The audit trail", query=AuditPage, action="audit.see"),)

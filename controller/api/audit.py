"""Who did what, newest first: for administrators."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller import shapes
from controller.api.route import Call, Page, Route, cursor, listed, place
from controller.store import audit, users


class AuditPage(Page):
    action: str | None = Field(None, max_length=64)
    subject: str | None = Field(None, max_length=600)


def list_audit(call: Call) -> dict[str, Any]:
    query = call.query(AuditPage)
    before = place(query.cursor, str)
    with call.ctx.store.read() as session:
        rows = audit.page(session, query.limit + 1, before[0] if before else None, query.action, query.subject)
        names = users.names(session, {r.actor_id for r in rows})
    return listed(rows, query.limit, lambda r: shapes.audit(r, names), lambda r: cursor(r.id))


ROUTES = (Route("GET", "/audit", list_audit, "The audit trail", query=AuditPage, action="audit.see"),)

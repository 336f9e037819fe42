"""What every page of a signed-in person goes through: the log-in, the right, and the API's own handlers for its data.

A page shows what the REST API would answer to the same person, so that there is one filter of what may be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import quote

from flask import Flask, redirect, render_template, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from controller.api.route import Call, Handler, Query
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.rights import Actor, may
from controller.store import users

View = Callable[..., ResponseReturnValue]


def page(
    app: Flask, ctx: Context, path: str, *, action: str | None = None, methods: tuple[str, ...] = ("GET",)
) -> Callable[[View], View]:
    """Registers `view(actor, **args)`: others are sent to the log-in, and who lacks the right is told whom to ask."""

    def register(view: View) -> View:
        @wraps(view)
        def visited(**args: Any) -> ResponseReturnValue:
            who = person()
            if who is None:
                return redirect(f"/login?next={quote(here())}")
            actor = actor_of(who)
            if action is not None and not may(actor, action):
                return no_permission(ctx)
            return view(actor, **args)

        app.add_url_rule(path, endpoint=f"console {path} {methods}", view_func=visited, methods=list(methods))
        return view

    return register


def ask(
    ctx: Context,
    actor: Actor,
    handler: Handler,
    query: BaseModel | None = None,
    body: BaseModel | None = None,
    **args: str,
) -> Any:
    """What the API's handler answers to `actor`. Raises what it raises (errors.py makes a page of it)."""
    return handler(Call(ctx, actor, ctx.clock(), args, body, query))


def everything(
    ctx: Context, actor: Actor, handler: Handler, kind: type[Query], most: int = 5000, **wanted: Any
) -> list[dict[str, Any]]:
    """All items of a paged list, `most` at most."""
    items: list[dict[str, Any]] = []
    cursor = None
    while len(items) < most:
        told = ask(ctx, actor, handler, kind.model_validate({**wanted, "limit": 1000, "cursor": cursor}))
        items += told["items"]
        cursor = told["next"]
        if cursor is None:
            break
    return items[:most]


def no_permission(ctx: Context) -> ResponseReturnValue:
    """The page for who may not see it: who can be asked."""
    with ctx.store.read() as db:
        admins = [u.name for u in users.page(db, 1000) if u.role == "admin" and u.disabled_at is None]
    return render_template("console/forbidden.html", admins=admins[:5]), 403


def here() -> str:
    """This page's path with its query."""
    return request.full_path.rstrip("?")

"""REST, base /api/v1: every route is registered here, and every request takes the same way: who, what, may, do, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request

from controller.api import (
    audit,
    auth,
    bookings,
    channels,
    decisions,
    feeds,
    history,
    keys,
    log,
    models,
    nodes,
    notice_choice,
    notifications,
    openapi,
    overrides,
    people,
    plan,
    presets,
    settings,
    sign_ins,
    slots,
    targets,
    usage,
    watches,
)
from controller.api.route import Answer, Call, Ready, Route, parse_body, parse_query
from controller.context import Context
from controller.errors import BadRequest, Forbidden, Invalid
from controller.rights import Actor, may
from controller.said import fault, say

BASE = "/api/v1"
MODULES = (
    people, sign_ins, keys, feeds, nodes, channels, overrides, plan, history, log, models, presets, bookings, decisions, slots,
    notifications, notice_choice, targets, watches, audit, usage, settings,
)  # fmt: skip
ROUTES: tuple[Route, ...] = tuple(route for module in MODULES for route in module.ROUTES)
_NOBODY = Actor("", "", "", "none")


def register(app: Flask, ctx: Context) -> None:
    """Puts the API into the application."""
    blueprint = Blueprint("api", __name__, url_prefix=BASE)
    for route in (*ROUTES, *openapi.routes(ROUTES)):
        name = f"{route.method.lower()}_{route.path}".replace(".", "_")
        blueprint.add_url_rule(
            route.path, endpoint=name, view_func=_view(ctx, route), methods=[route.method], strict_slashes=False
        )
    app.register_blueprint(blueprint)
    app.add_url_rule("/feed/<token>.ics", "feed", lambda token: feeds.serve(ctx, token))


def _view(ctx: Context, route: Route) -> Callable[..., Response]:
    def view(**args: str) -> Response:
        if any("\x00" in a for a in args.values()):
            raise BadRequest(say("the path must not hold NUL characters"))
        now = ctx.clock()
        actor = _NOBODY if route.public else auth.authenticate(ctx, request, now)
        if route.action is not None:
            verdict = may(actor, route.action)
            if not verdict:
                raise Forbidden(verdict.why)
        call = Call(ctx, actor, now, args)
        try:
            return _answer(route, _handled(route, call))
        except Invalid as err:
            if route.path.startswith("/reservations") and "problems" not in err.extra:
                err.extra["problems"] = [_problem(field, words) for field, words in err.details.items()]
            raise

    return view


def _handled(route: Route, call: Call) -> Any:
    if route.query is not None:
        call._query = parse_query(route.query, request.args.items(multi=True))
    if route.body is not None:
        call._body = parse_body(route.body, _json_bytes())
    return route.handler(call)


def _problem(field: str, words: Any) -> dict[str, Any]:
    """A fault in a body, in the shape of a rule that was broken."""
    return {
        "field": field,
        "code": "invalid",
        "message": fault(field, words),
        "overridable": False,
        "requestable": False,
    }


def _json_bytes() -> bytes:
    raw = request.get_data()
    if raw.strip() and not request.is_json:
        raise UnsupportedBody(say("the body must be JSON: send Content-Type: application/json"))
    return raw


class UnsupportedBody(BadRequest):
    """A body of another kind."""

    status, code = 415, "unsupported_media_type"


def _answer(route: Route, result: Any) -> Response:
    status = route.status
    if isinstance(result, Response):
        return result
    if isinstance(result, Answer):
        result, status = result.data, result.status
    if result is None:
        return Response(status=204)
    made = result if isinstance(result, Ready) else None
    response = jsonify(result) if made is None else Response(made.body, mimetype="application/json")
    response.status_code = status
    if request.method in ("GET", "HEAD") and status == 200:
        response.headers["Cache-Control"] = "private, no-cache"
        if made is None:
            response.add_etag()
        else:
            response.set_etag(made.etag)
        response.make_conditional(request)
    return response

"""/try: a small chat box against a channel. The browser talks to this site only, and what it says goes on to the gateway
of the channel's node with a short-lived key of the person (controller/tryit.py).

So no key is ever in a page, the content policy stays at 'self', a gateway needs no CORS, and a console reached by https may
use a gateway that speaks http. The price is a thread of the web side for each answer: few at a time, and not for long.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any, Literal

import httpx
from flask import Flask, Response, current_app, render_template, request, stream_with_context
from flask.typing import ResponseReturnValue
from pydantic import Field

from controller import tryit
from controller.api import auth
from controller.api.route import Body, parse_body
from controller.channel_view import see
from controller.console.asking import page
from controller.context import Context
from controller.errors import Conflict, NotFound, TooMany
from controller.fleet.addresses import base_url
from controller.rights import Actor
from controller.said import say
from controller.store import channels

log = logging.getLogger(__name__)
LONGEST_SECONDS = 180.0
KNOWN_AFTER_SECONDS = 6.0  # a gateway hears of a new key within 2 s
KEPT = ("X-SlotServe-Channel", "X-SlotServe-Model", "X-SlotServe-Fallback", "X-SlotServe-Ends-In", "X-Request-Id")


class Message(Body):
    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=200_000)


class Chat(Body):
    messages: list[Message] = Field(min_length=1, max_length=200)
    temperature: float | None = Field(None, ge=0, le=5, allow_inf_nan=False)
    max_tokens: int | None = Field(1024, ge=1, le=32_768)


def register(app: Flask, ctx: Context) -> None:
    """The page, and the way through to the gateway."""
    keys = tryit.TryKeys(ctx)

    @page(app, ctx, "/try")
    def try_it(actor: Actor) -> ResponseReturnValue:
        with ctx.store.read() as db:
            rows = [r for r in channels.page(db, 2000) if r[0].gone_at is None]
            shapes = see(db, ctx, rows, ctx.clock()).shapes(actor, ctx.clock())
        wanted = request.args.get("channel", "")
        usable = sorted(shapes, key=lambda c: (not _open(c), c["id"]))
        chosen = next((c["id"] for c in usable if c["id"] == wanted), usable[0]["id"] if usable else "")
        options = [{"id": c["id"], "open": _open(c), "phase": c["phase"], "model": _model(c)} for c in usable]
        return render_template("console/try.html", options=options, chosen=chosen)

    @app.post("/api/console/try/<node>/<name>")  # below /api, so that its refusals are JSON
    def chat(node: str, name: str) -> ResponseReturnValue:
        actor = auth.authenticate(ctx, request, ctx.clock())
        body = parse_body(Chat, request.get_data())
        assert isinstance(body, Chat)
        url = _gateway(ctx, node, name)
        if not keys.enter(actor.id):
            raise TooMany(
                say("an answer to you, or several to others, are under way here; try again when one has ended")
            )
        with contextlib.ExitStack() as opened:  # closed here where nothing comes of it, else with the answer's end
            opened.callback(keys.leave, actor.id)
            client = opened.enter_context(
                httpx.Client(timeout=httpx.Timeout(LONGEST_SECONDS, connect=5), trust_env=False)
            )
            wish = {**body.model_dump(exclude_none=True), "model": "auto", "stream": True}
            wish["stream_options"] = {"include_usage": True}
            try:
                upstream = _ask(client, url, keys, actor.id, wish)
            except httpx.HTTPError as err:
                log.warning("gateway not reached url=%s error=%r", url, str(err))
                raise Conflict(
                    say("the controller cannot reach this node's gateway at %(url)s: %(err)s", url=url, err=str(err))
                ) from None
            opened.callback(upstream.close)
            close = opened.pop_all().close

        def pieces() -> Iterator[bytes]:
            deadline = time.monotonic() + LONGEST_SECONDS
            try:
                for piece in upstream.iter_raw():
                    yield piece
                    if time.monotonic() > deadline:
                        yield _error("too_long", say("cut off after %(seconds)s s", seconds=LONGEST_SECONDS))
                        return
            except httpx.HTTPError as err:
                yield _error("broken", say("the answer broke off: %(err)s", err=str(err)))

        answer = Response(stream_with_context(pieces()), upstream.status_code)
        answer.headers["Content-Type"] = upstream.headers.get("content-type", "application/json")
        answer.headers["Cache-Control"] = "no-store"
        for header in KEPT:
            if header in upstream.headers:
                answer.headers[header] = upstream.headers[header]
        answer.call_on_close(close)
        return answer


def _ask(client: httpx.Client, url: str, keys: tryit.TryKeys, user_id: str, wish: dict[str, Any]) -> httpx.Response:
    """The gateway's answer, its body not read yet. A key that has just been made may not be known there for a moment."""
    loan, began, renewed = keys.loan(user_id), time.monotonic(), False
    while True:
        headers = {"Authorization": f"Bearer {loan.secret}", "Accept-Encoding": "identity"}
        made = client.build_request("POST", f"{url}/chat/completions", json=wish, headers=headers)
        answer = client.send(made, stream=True)
        if answer.status_code != 401 or time.monotonic() - began > KNOWN_AFTER_SECONDS:
            return answer
        answer.close()
        if not renewed and time.monotonic() - began > KNOWN_AFTER_SECONDS / 2:
            loan, renewed = keys.loan(user_id, renew=True), True
        time.sleep(0.2)


def _gateway(ctx: Context, node_name: str, name: str) -> str:
    """The base URL of a channel. Raises NotFound, Conflict."""
    with ctx.store.read() as db:
        row = channels.find(db, node_name, name)
    if row is None or row[0].gone_at is not None:
        raise NotFound(say("there is no channel %(node)s/%(name)s", node=node_name, name=name))
    found = base_url(ctx.live.node(node_name), row[1], name)
    if found is None:
        raise Conflict(say("node %(node)s has not said yet where its gateway listens", node=node_name))
    return found


def _open(shape: dict[str, Any]) -> bool:
    """Whether the viewer may call it now, as far as this page knows (the gateway decides)."""
    booking = shape["booking"]
    return shape["phase"] == "ready" and (booking is None or booking["mine"])


def _model(shape: dict[str, Any]) -> str:
    target = shape["running"] or shape["target"]
    return str(target["model"]) if target else ""


def _error(code: str, message: str) -> bytes:
    """An event of the stream."""
    data = {"error": {"message": message, "code": code}}
    return f"\n\ndata: {current_app.json.dumps(data)}\n\n".encode()

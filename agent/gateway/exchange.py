"""One request from its head to the end of its answer: admitted, routed, spliced to an engine, and accounted for.

The request's body is held back until its `model` is found; then the rest goes through as it comes. How it gets to the
engine is in onward.py, the answer's half in reply.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.core import routing
from agent.core.admission import Admission, ends_at
from agent.gateway import body as bodies
from agent.gateway import elsewhere, own_answers, routes, websocket
from agent.gateway.body_found import Found
from agent.gateway.errors import Refusal
from agent.gateway.onward import Onward
from agent.gateway.reply import SWALLOW_BYTES
from agent.gateway.request import RequestHead

if TYPE_CHECKING:
    from agent.gateway.connection import ClientConnection

log = logging.getLogger(__name__)
SCAN_BYTES = 64 * 1024  # longer bodies are scanned for their model as they come
BODY_SECONDS = 60.0  # a body may be so far behind BODY_RATE, whether it pauses or drips
BODY_RATE = 500  # bytes a second
REFUSED_SECONDS = 5.0  # for the rest of a body that is refused already


class Exchange(Onward):
    """The request's half, and the whole: what a connection hands its requests to."""

    __slots__ = (
        "_buffer",
        "_frames",
        "_looked",
        "_opening",
        "_patience",
        "_scanner",
    )

    def __init__(self, connection: ClientConnection, head: RequestHead) -> None:
        super().__init__(connection, head)
        self._buffer = bytearray()
        self._scanner: bodies.Scanner | None = None
        self._opening = False  # a WebSocket is asked for
        self._frames: websocket.ClientFrames | None = None
        self._patience = BODY_SECONDS
        self._looked = (self.begun, 0)  # at the body, and what had come of it

    # the request, as it comes

    def begin(self) -> None:
        """The head has come: what can be refused now is, before anything of the body is read."""
        head, gateway = self.head, self.gateway
        if not head.has_body:
            self.request_complete = True
        route = head.route
        if route is not None and route.kind == "health" and head.method in routes.allowed(route):
            self._own(own_answers.health(self))
            return
        if head.method == b"OPTIONS" and self._asks_for_a_page():
            return
        self.key = gateway.keys.find_hash(head.key_hash, gateway.clock.now_ms())
        if route is not None and route.kind == "metrics" and own_answers.may_see_metrics(self):
            self._own(own_answers.metrics(self))
            return
        refusal = own_answers.door(self)
        if refusal is not None:
            self.refuse(refusal)
        elif route is not None and head.method == b"OPTIONS":
            self._own((204, b"", b""), own_answers.allow(route) + self.for_page())
        elif route is not None and route.kind in ("models", "model"):
            self._own(own_answers.models(self))
        elif route is not None and route.kind == "realtime":
            self._open_websocket()
        elif head.expects_continue and not self.request_complete:
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _asks_for_a_page(self) -> bool:
        """Whether a browser asks (without a key, for browsers send none here) if a page may call; it is answered then."""
        head, cors = self.head, self.gateway.cors
        if head.origin is None or head.asked_headers is None or head.route is None or not cors.allows(head.origin):
            return False
        self._own((204, b"", b""), cors.preflight(head.origin, routes.allowed(head.route), head.asked_headers))
        return True

    def body(self, data: bytes) -> None:
        self.bytes_in += len(data)
        if self.done:
            return
        if self._refusal is not None:
            if self.bytes_in > SWALLOW_BYTES:
                self._write_refusal(close=True)
            return
        try:
            if self.endpoint is not None:
                if self._scanner is not None:
                    self._scanner.feed(data)
                self._send(data)
            else:
                self._hold(data)
        except Refusal as refusal:
            self.broken_request(refusal)

    def body_complete(self) -> None:
        self.request_complete = True
        if self.done or self._opening:
            return
        if self._refusal is not None:
            self._write_refusal()
            return
        if self.endpoint is not None:
            if self._up_length is None:
                self._send_raw(b"0\r\n\r\n")
            return
        data = bytes(self._buffer)
        self._buffer.clear()
        try:
            kind = self.head.content_type
            found = self._scanner.finish() if self._scanner is not None else bodies.find(kind, data)
            if not self._route(found) or self.endpoint is None:
                return
            if found.model != self.endpoint.model and not self.places:
                data = bodies.rewrite(kind, found, self.endpoint.model, data)
        except Refusal as refusal:
            self.refuse(refusal)
            return
        self._connect(data, len(data))

    def broken_request(self, refusal: Refusal) -> None:
        """What the client sends is no HTTP any more: told if nothing was answered yet; an answer that runs goes on to
        its end where the request had come whole."""
        if self.done:
            return
        if self.answer is None and not self.request_complete:
            self.refuse(refusal, close=True)
        elif not self.request_complete:
            self._abort("bad_request")

    def check_client(self, now: float) -> None:
        """Gives up a client that does not go on with its body, or only drips (not while it waits for the engine)."""
        if self.request_complete:
            return
        (at, size), self._looked = self._looked, (now, self.bytes_in)
        if not self.connection.transport.is_reading():
            return
        most = BODY_SECONDS if self._refusal is None else REFUSED_SECONDS
        self._patience = min(most, self._patience + (self.bytes_in - size) / BODY_RATE) - (now - at)
        if self._patience >= 0:
            return
        if self._refusal is not None:
            self._write_refusal(close=True)
        else:
            self.broken_request(Refusal(408, "request_timeout", "The request's body took too long."))

    def last_of_connection(self) -> None:
        """The connection ends with this answer, which says so if it has not begun."""
        self.closes = True

    def client_gone(self) -> None:
        """In whatever phase: the engine's work for it ends at once, unless it is to be let alone."""
        upstream = self.upstream
        absorbs = self.gateway.absorbs and not self.places  # else the node that serves it does, by its own setting
        if absorbs and upstream is not None and self.request_complete and not self._opening:
            self.unheard = True
            self.connection.paused = upstream.straight = False
            self.resume_engine()
            return
        self._finish("ok" if self.is_websocket else "client_gone")

    def from_client(self, data: bytes) -> None:
        """Bytes behind the head of a request for a WebSocket."""
        self.bytes_in += len(data)
        if not self.done and self._frames is not None and (passed := self._frames.feed(data)):
            self._send_raw(passed)

    # routing

    def _hold(self, data: bytes) -> None:
        """Holds the body back until its model is known; a long one then goes through as it comes. Raises Refusal."""
        self._buffer += data
        if self._scanner is not None:
            self._scanner.feed(data)
        elif self.bytes_in > SCAN_BYTES:
            self._scanner = bodies.scanner(self.head.content_type)
            self._scanner.feed(bytes(self._buffer))
        found = self._scanner.found if self._scanner is not None else None
        if found is None:
            if self.bytes_in > self.gateway.body_limit:
                raise self._too_large()
            return
        if not self._route(found) or self.endpoint is None:
            return
        begun = bytes(self._buffer)
        before = len(begun)
        self._buffer.clear()
        if found.model != self.endpoint.model and not self.places:
            begun = bodies.rewrite(self.head.content_type, found, self.endpoint.model, begun)
        length = self.head.length
        self._connect(begun, None if length is None else length + len(begun) - before)

    def _route(self, found: Found) -> bool:
        """Chooses the channel; False where the request is refused (and answered)."""
        gateway, head, key = self.gateway, self.head, self.key
        assert key is not None
        assert head.route is not None
        now = gateway.clock.now_ms()
        named = head.route.channel or head.channel
        route, full = gateway.route(key, found.model, named, now)
        view = route.channel
        self.channel = route.about
        if full is not None:
            self.refuse(full)
            return False
        if view is None:
            return self._elsewhere(found.model, named, route.admission)
        self.endpoint = gateway.table.endpoints.get(view.name)
        if self.endpoint is None or view.serving is None:
            self.refuse(Refusal(503, "model_failed", f"Channel {view.name} cannot be reached just now.", retry_after=5))
            return False
        self.model = view.serving.model
        self.fallback = route.admission.fallback
        end = ends_at(view, key.caller, now)
        self.ends_in = None if end is None else max(0, (end - now) // 1000)
        gateway.admitted(self)
        return True

    def _elsewhere(self, model: str | None, named: str | None, admission: Admission) -> bool:
        """No channel of this node: another node, where requests are relayed, or the refusal, which says where."""
        gateway, key = self.gateway, self.key
        assert key is not None
        verdict = elsewhere.instead(gateway, key, model, named, admission, self.connection.for_relay)
        if not verdict.places or gateway.relays is None or gateway.relays.client is None:
            self.refuse(verdict.refusal)
            return False
        self.places = verdict.places
        self.goes_to(verdict.places[0])
        gateway.running.relaying.add(self)
        return True

    def _open_websocket(self) -> None:
        head, gateway = self.head, self.gateway
        assert head.route is not None
        self._opening = self.closes = True
        found = Found(websocket.model_of(head.query))
        if not self._route(found) or self.endpoint is None:
            return
        names: frozenset[str] = frozenset()
        if self.key is not None and not self.places:
            view, now = gateway.table.views[self.channel], gateway.clock.now_ms()
            names = routing.names_of(view, self.key.caller, now)
        self._frames = websocket.ClientFrames(names, self.endpoint.model)
        query = head.query
        if found.model is not None and found.model != self.endpoint.model and not self.places:
            query = websocket.with_model(query, self.endpoint.model)
        ours = b"X-Request-Id: %b\r\n\r\n" % self.id.encode()
        line = b"GET %b%b HTTP/1.1\r\n" % (head.route.path, query)
        self._dial_with([b"".join((line, self.endpoint.upgrade_head, head.onward, ours))])

    def _too_large(self) -> Refusal:
        limit = f"{self.gateway.body_limit / (1024 * 1024):.3g}"
        return Refusal(
            413, "body_too_large", f"No 'model' in the first {limit} MiB of the body; put 'model' first.", param="model"
        )

    def _release(self) -> None:
        self._buffer = bytearray()
        super()._release()

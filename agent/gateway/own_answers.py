"""What the gateway answers by itself: the model list, health, metrics, and everything that is refused at the door."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from agent.core import routing
from agent.core.admission import Admission
from agent.gateway import elsewhere, routes
from agent.gateway.errors import Refusal, encode

if TYPE_CHECKING:
    from agent.gateway.reply import Reply

JSON = b"application/json"


def allow(route: routes.Route) -> bytes:
    """The header that says what may be asked there."""
    return b"Allow: %b\r\n" % b", ".join((*routes.allowed(route), b"OPTIONS"))


def door(exchange: Reply) -> Refusal | None:
    """Why a request is refused before its body is read; None where it may come in. Without a key everything is 401."""
    head, route, gateway = exchange.head, exchange.head.route, exchange.gateway
    if exchange.connection.for_metrics and (route is None or route.kind != "metrics"):
        return Refusal(404, "not_found", "Here is only /metrics.")
    if exchange.key is None and not exchange.connection.for_metrics:
        presented = head.key or exchange.connection.for_relay
        if presented and not gateway.keys.known:
            return Refusal(
                503, "not_ready", "This gateway does not know any keys yet; try again shortly.", retry_after=5
            )
        said = "The API key is unknown, expired or revoked" if presented else "An API key is needed"
        return Refusal(401, "invalid_api_key", f"{said}: send 'Authorization: Bearer sk-ss-…' or 'x-api-key'.")
    if route is None:
        path = head.target.partition(b"?")[0][:200]
        meant = routes.meant(path)
        hint = f"did you mean {meant!r}?" if meant else "the API begins at /v1/."
        return Refusal(404, "not_found", f"There is no {path.decode('latin-1')!r} here; {hint}")
    if exchange.connection.for_relay and route.kind not in ("engine", "realtime"):
        return Refusal(404, "not_found", "Only requests to engines are relayed from node to node.")
    if head.method == b"OPTIONS":
        return None
    if head.method not in routes.allowed(route):
        said = " or ".join(m.decode() for m in routes.allowed(route))
        return Refusal(405, "method_not_allowed", f"{head.method.decode()} is not possible here; use {said}.")
    if head.encoded and head.has_body:
        return Refusal(
            415, "unsupported_media_type", "The body is compressed, so its 'model' cannot be found; send it as it is."
        )
    if route.kind == "realtime" and (not head.websocket or head.has_body):
        return Refusal(400, "invalid_request", "This is a WebSocket's address: send 'Upgrade: websocket'.")
    if route.kind == "metrics" and gateway.metrics_apart:
        return Refusal(404, "not_found", "Metrics have an address of their own on this node.")
    if route.kind == "metrics":
        return Refusal(403, "forbidden", "Metrics are for administrators' keys, or for the node itself.")
    if head.channel and gateway.node:
        head.channel = head.channel.removeprefix(f"{gateway.node}/")
    if route.channel and head.channel and route.channel != head.channel:
        return Refusal(400, "invalid_request", "The path and X-SlotServe-Channel name different channels.")
    if head.channel and not routes.CHANNEL.fullmatch(head.channel):
        return Refusal(400, "invalid_request", "X-SlotServe-Channel is not a channel's name.", param="channel")
    if route.kind in ("engine", "realtime") and gateway.refusing:
        return Refusal(503, "restarting", "This gateway process is being replaced; try again.", retry_after=1)
    return None


def models(exchange: Reply) -> tuple[int, bytes, bytes]:
    """`GET /v1/models`, and one of them by name."""
    gateway, head, route, key = exchange.gateway, exchange.head, exchange.head.route, exchange.key
    assert key is not None
    assert route is not None
    named = route.channel or head.channel
    views = [v for v in gateway.table.order if named is None or v.name == named]
    if named is not None and not views:
        return _error(exchange, Refusal(404, "channel_not_found", f"There is no channel {named!r} on this node."))
    now = gateway.clock.now_ms()
    items = routing.models(views, key.caller, now)
    if gateway.relays is not None and named is None:
        auto = items.pop()
        items += [*elsewhere.models(gateway.directory, key.caller, now, [i["id"] for i in items]), auto]
    if route.kind == "models":
        return 200, JSON, encode({"object": "list", "data": items})
    item = next((i for i in items if i["id"] == route.name), None)
    if item is None:
        there = ", ".join(i["id"] for i in items)
        message = f"The model {route.name!r} is not served here. What there is for you now: {there}."
        missing = Admission("refuse", 404, elsewhere.UNKNOWN, message)
        return _error(exchange, elsewhere.instead(gateway, key, route.name, named, missing, False).refusal)
    return 200, JSON, encode(item)


def health(exchange: Reply) -> tuple[int, bytes, bytes]:
    """The process answers."""
    return 200, JSON, encode(exchange.gateway.health())


def metrics(exchange: Reply) -> tuple[int, bytes, bytes]:
    return 200, b"text/plain; version=0.0.4; charset=utf-8", exchange.gateway.metrics_text().encode()


def may_see_metrics(exchange: Reply) -> bool:
    """Administrators' keys, and whoever calls from the node itself (not through a proxy on it); everybody at the address
    that is for them alone, and then nobody elsewhere."""
    if exchange.head.method not in (b"GET", b"HEAD") or exchange.connection.for_relay:
        return False
    if exchange.gateway.metrics_apart:
        return exchange.connection.for_metrics
    if exchange.key is not None and exchange.key.caller.role == "admin":
        return True
    if exchange.head.forwarded:
        return False
    peer = exchange.connection.transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return True  # a Unix socket
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _error(exchange: Reply, refusal: Refusal) -> tuple[int, bytes, bytes]:
    return refusal.status, JSON, encode(refusal.body(exchange.id))

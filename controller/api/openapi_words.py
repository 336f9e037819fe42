"""What the OpenAPI document says in words and by example, of all routes alike: about it, tags, places in paths, refusals."""

from __future__ import annotations

from typing import Any

ABOUT = """Time slots for shared GPU machines.

Times are RFC 3339 and answered in UTC with `Z`; one without a zone is refused. Ids are strings. Lists take `limit` (at
most 1,000) and `cursor`, which is `next` of the page before. Every error is `{"error": {"code", "message", "details"}}`;
`details` names the fields. Answers may gain members."""
TAGS = {
    "me": "The caller: account, sessions in the console, ways of being told",
    "users": "People",
    "keys": "API keys, which open this API and the gateways",
    "reservations": "Bookings",
    "slots": "Free windows",
    "watches": "Being told when a slot gets free",
    "channels": "Channels: what runs, what comes, what is set",
    "models": "Models of the fleet",
    "presets": "Engine parameters with a name",
    "nodes": "GPU machines",
    "notifications": "Notices, and messages outside",
    "notification-targets": "Webhooks and chat services",
    "feeds": "Calendar feeds and wall displays",
    "audit": "Who did what",
    "usage": "Hours, requests and tokens",
    "settings": "The controller's settings",
    "health": "Probes and this document",
}
TAG_OF = {"feed": "feeds", "openapi": "health", "healthz": "health", "readyz": "health"}
PLACES = {
    "node": "Name of the node",
    "name": "Its name",
    "token": "The feed's secret",
    "id": "Its id",
}
PLACE_EXAMPLES = {
    ("nodes", "name"): "gpu2",
    ("models", "name"): "org/model",
    ("channels", "node"): "gpu1",
    ("channels", "name"): "a",
    ("users", "id"): "noor",
}
COMMON = {400: "Cannot be read", 401: "Who are you?", 403: "Not allowed", 422: "Bad input; `details` names the field"}
ALWAYS = {500: "A fault of the controller; its log has it under `details.fault`", 503: "The database does not answer"}
FAULTS: dict[int, tuple[str, str, dict[str, Any]]] = {
    400: ("bad_request", "the body is not JSON: Expecting value: line 1 column 1 (char 0)", {}),
    401: ("unauthorized", "this API key is not known here, was revoked or has expired; make another with a log-in", {}),
    403: ("forbidden", "only an administrator may do this", {}),
    404: ("not_found", "there is no channel gpu1/z", {}),
    409: ("conflict", "gpu1/a is booked at that time; take another time or another channel", {"starts_at": "overlaps"}),
    413: ("request_entity_too_large", "the request is larger than this server takes (1 MiB)", {}),
    415: ("unsupported_media_type", "the body must be JSON: send Content-Type: application/json", {}),
    422: ("invalid", "ends_at: is missing", {"ends_at": "is missing"}),
    429: ("too_many_requests", "too often; try again in 12 s", {"retry_after": 12}),
    500: ("internal", "something went wrong here, not in your request", {"fault": "5f0c2a1b"}),
    503: ("unavailable", "the database does not answer in time; nothing was changed, try again", {}),
}
SECURITY = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key (sk-ss-…)"},
    "session": {"type": "apiKey", "in": "cookie", "name": "slotserve", "description": "The console's session"},
    "csrf": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token", "description": "The page's token, to change things"},
}  # fmt: skip

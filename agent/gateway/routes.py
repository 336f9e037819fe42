"""Which paths there are: the gateway's own, and the engines' inference calls. Whatever is not here is 404.

The engine is sent the path as it stands here, never as the client wrote it, so no spelling reaches anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_to_bytes

INFERENCE = (
    "chat/completions",
    "completions",
    "responses",
    "embeddings",
    "rerank",
    "score",
    "messages",
    "messages/count_tokens",
)
HELPERS = ("tokenize", "detokenize", "apply-template", "infill", "completion", "embedding", "pooling", "classify")
FAMILY = re.compile(r"/v1/(?:audio|images)/[a-z][a-z_-]{0,40}")
CHANNEL = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")

Kind = Literal["engine", "models", "model", "health", "metrics", "realtime"]


@dataclass(frozen=True, slots=True)
class Route:
    """`path`: what the engine is sent, or how the log calls it. `channel`: named by the path. `name`: the model of /v1/models/NAME."""

    kind: Kind
    path: bytes = b""
    channel: str | None = None
    name: str = ""

    @property
    def anthropic(self) -> bool:
        return self.path.startswith(b"/v1/messages")


_ENGINE = {f"/v1/{p}": f"/v1/{p}".encode() for p in INFERENCE}
_ENGINE |= {f"/v1/{p}": f"/{p}".encode() for p in HELPERS}
_ENGINE |= {f"/{p}": f"/{p}".encode() for p in HELPERS}
METHODS = {"engine": (b"POST",), "realtime": (b"GET",)}
_CACHE: dict[bytes, Route] = {}


def find(target: bytes) -> tuple[Route | None, bytes]:
    """The route of a request target (origin form) and its query with the question mark."""
    path, mark, query = target.partition(b"?")
    route = _CACHE.get(path) or _find(path)
    return route, mark + query


def allowed(route: Route) -> tuple[bytes, ...]:
    return METHODS.get(route.kind, (b"GET", b"HEAD"))


def meant(path: bytes) -> str | None:
    """What a path that is not here was probably to be: doubled slashes, /v1 twice, cut or left out, another case, escapes."""
    parts = [p for p in unquote_to_bytes(path).decode("latin-1").lower().split("/") if p not in ("", ".")]
    prefix = "/".join(parts[:2]) if parts[:1] == ["channels"] else ""
    rest = parts[2:] if prefix else parts
    while rest[:1] in (["v"], ["v1"], ["api"], ["openai"]):
        rest = rest[1:]
    text = (f"/{prefix}" if prefix else "") + "/v1/" + "/".join(rest)
    return text if ".." not in parts and _find(text.encode("latin-1")) is not None else None


def _find(path: bytes) -> Route | None:
    try:
        text = path.decode("ascii")
    except UnicodeDecodeError:
        return None
    if text == "/healthz":
        return Route("health", b"/healthz")
    if text == "/metrics":
        return Route("metrics", b"/metrics")
    channel = None
    if text.startswith("/channels/"):
        channel, slash, rest = text[len("/channels/") :].partition("/")
        if not slash or not CHANNEL.fullmatch(channel):
            return None
        text = "/" + rest
    route = _below(text, channel)
    if route is not None and route.kind == "engine" and len(_CACHE) < 4096:
        _CACHE[path] = route
    return route


def _below(text: str, channel: str | None) -> Route | None:
    engine = _ENGINE.get(text)
    if engine is not None:
        return Route("engine", engine, channel)
    if FAMILY.fullmatch(text):
        return Route("engine", text.encode(), channel)
    if text == "/v1/models":
        return Route("models", b"/v1/models", channel)
    if text.startswith("/v1/models/") and len(text) > len("/v1/models/"):
        try:
            name = unquote_to_bytes(text[len("/v1/models/") :]).decode()
        except UnicodeDecodeError:
            return None
        return Route("model", b"/v1/models/", channel, name)
    if text == "/v1/realtime":
        return Route("realtime", b"/v1/realtime", channel)
    return None

"""A request's head: what of it is refused at the door, and what of it goes on to the engine.

The parser (httptools) refuses most of what smuggles: both length headers, two lengths, folded headers, bare LF. Here is
the rest, and the choice of headers: hop-by-hop ones, credentials and Accept-Encoding do not go upstream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.gateway import keys, routes
from agent.gateway.errors import Refusal, bad_request

HEAD_LIMIT = 32 * 1024
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%\[\]:-]*")
_HASH, _ID = re.compile(rb"[0-9a-f]{64}"), re.compile(rb"[A-Za-z0-9_-]{1,64}")
_DROP, _HOST_HEADER, _LENGTH, _CODING, _AUTHORIZATION, _X_API_KEY, _CONNECTION, _CHANNEL, _EXPECT, _TYPE = range(10)
_FORWARDED, _UPGRADE, _ORIGIN, _ENCODING, _ASKED, _ASKED_HEADERS, _RELAY, _REQUEST_ID = range(10, 18)
_SPECIAL = {
    b"host": _HOST_HEADER,
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"authorization": _AUTHORIZATION,
    b"x-api-key": _X_API_KEY,
    b"connection": _CONNECTION,
    b"x-slotserve-channel": _CHANNEL,
    b"expect": _EXPECT,
    b"content-type": _TYPE,
    b"x-forwarded-for": _FORWARDED,
    b"forwarded": _FORWARDED,
    b"upgrade": _UPGRADE,
    b"origin": _ORIGIN,
    b"content-encoding": _ENCODING,
    b"access-control-request-method": _ASKED,
    b"access-control-request-headers": _ASKED_HEADERS,
    b"x-slotserve-relay": _RELAY,
    b"x-request-id": _REQUEST_ID,
} | dict.fromkeys(
    (
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"http2-settings",
        b"sec-websocket-extensions",  # messages that are compressed could not be read
        b"accept-encoding",
        b"cookie",
        b"x-slotserve-node",
        b"x-slotserve-model",
        b"x-slotserve-fallback",
        b"x-slotserve-ends-in",
    ),
    _DROP,
)


@dataclass(slots=True)
class RequestHead:
    """A head that may go on. `length` None and not `chunked`: no body. `websocket`: it asks for one. `asked_headers`: of
    a browser that asks whether a page may call (CORS), None where it does not. `encoded`: the body is compressed.
    `relay`, `request_id`: what another node's gateway says of the request; believed of nobody else (see `believe`)."""

    method: bytes
    target: bytes
    http10: bool
    keep_alive: bool
    passed: list[bytes] = field(default_factory=list)
    host: bytes | None = None
    length: int | None = None
    chunked: bool = False
    authorization: bytes | None = None
    x_api_key: bytes | None = None
    channel: str | None = None
    expects_continue: bool = False
    content_type: bytes = b""
    forwarded: bool = False
    websocket: bool = False
    route: routes.Route | None = None
    query: bytes = b""
    origin: bytes | None = None
    asked_headers: bytes | None = None
    encoded: bool = False
    relay: bytes = b""
    request_id: bytes = b""
    _key_hash: str | None = None
    _onward: bytes | None = None

    @property
    def key_hash(self) -> str:
        """SHA-256 of the key, "" where there is none; heads that come again and again have it ready."""
        if self._key_hash is None:
            self._key_hash = keys.hash_of(key) if (key := self.key) else ""
        return self._key_hash

    def believe(self) -> str:
        """The request comes from another node's gateway: the key's hash is as it says, and so is the id that this returns
        ("" where it is none)."""
        self._key_hash = self.relay.decode() if _HASH.fullmatch(self.relay) else ""
        return self.request_id.decode() if _ID.fullmatch(self.request_id) else ""

    @property
    def onward(self) -> bytes:
        """The headers that go on to the engine."""
        if self._onward is None:
            self._onward = b"".join(self.passed)
        return self._onward

    @property
    def key(self) -> bytes | None:
        return keys.presented(self.authorization, self.x_api_key)

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)


def read(
    method: bytes, target: bytes, version: str, keep_alive: bool, headers: list[tuple[bytes, bytes]]
) -> tuple[RequestHead, Refusal | None]:
    """The head, and why it is refused where it is (the connection is then closed, for its framing is not to be trusted)."""
    head = RequestHead(method, target, version == "1.0", keep_alive and version == "1.1")
    if version not in ("1.1", "1.0"):
        return head, Refusal(505, "http_version_not_supported", f"HTTP/{version} is not spoken here; use HTTP/1.1.")
    hop: list[bytes] | None = None
    hosts = 0
    upgrade = b""
    for name, value in headers:
        key = name.lower()
        kind = _SPECIAL.get(key)
        if kind is None:
            if not key.startswith(b"x-stainless-"):
                head.passed.append(name + b": " + value + b"\r\n")
        elif kind == _HOST_HEADER:
            hosts += 1
            head.host = value.strip()
        elif kind == _TYPE:
            head.content_type = value
            head.passed.append(b"Content-Type: " + value + b"\r\n")
        elif kind == _LENGTH:
            head.length = int(value)
        elif kind == _AUTHORIZATION:
            if head.authorization is not None:
                return head, bad_request("Two Authorization headers.")
            head.authorization = value
        elif kind == _X_API_KEY:
            if head.x_api_key is not None:
                return head, bad_request("Two x-api-key headers.")
            head.x_api_key = value
        elif kind == _CONNECTION:
            tokens = [t.strip().lower() for t in value.split(b",")]
            head.websocket = head.websocket or b"upgrade" in tokens
            hop = (hop or []) + [t for t in tokens if t not in (b"keep-alive", b"close", b"upgrade", b"")]
        elif kind == _CODING:
            if value.strip().lower() != b"chunked" or head.chunked or head.http10:
                return head, bad_request("Of transfer codings only 'chunked' is understood, once, and in HTTP/1.1.")
            head.chunked = True
        elif kind == _CHANNEL:
            head.channel = value.strip().decode("latin-1") or None
        elif kind == _EXPECT:
            if value.strip().lower() != b"100-continue":
                return head, Refusal(417, "expectation_failed", "Of expectations only '100-continue' is understood.")
            head.expects_continue = not head.http10
        elif kind == _UPGRADE:
            upgrade = value.strip().lower()
        elif kind == _FORWARDED:
            head.forwarded = True
            head.passed.append(name + b": " + value + b"\r\n")
        elif kind == _ORIGIN:
            head.origin = value.strip()
            head.passed.append(name + b": " + value + b"\r\n")
        elif kind == _ENCODING:
            head.encoded = head.encoded or value.strip().lower() not in (b"identity", b"")
        elif kind == _ASKED:
            head.asked_headers = head.asked_headers or b""
        elif kind == _ASKED_HEADERS:
            head.asked_headers = value.strip()
        elif kind == _REQUEST_ID:
            head.request_id = value.strip()
        elif kind == _RELAY:
            head.relay = value.strip()
    head.websocket = head.websocket and upgrade == b"websocket" and method == b"GET" and version == "1.1"
    if hop:
        head.passed = [x for x in head.passed if x.partition(b":")[0].lower() not in hop]
    if hosts > 1 or (hosts == 0 and not head.http10):
        return head, bad_request("Exactly one Host header is needed.")
    if head.host is not None and not _HOST.fullmatch(head.host):
        return head, bad_request("The Host header is malformed.")
    if head.chunked and head.length is not None:
        return head, bad_request("Both Content-Length and Transfer-Encoding.")
    if not target.startswith(b"/"):
        return head, bad_request("The request target must be a path, such as /v1/chat/completions.")
    head.route, head.query = routes.find(target)
    return head, None

"""Which web pages may call the gateway from a browser (CORS): none, unless the setting names their origins.

Keys go by header, never by cookie, so a page can only do what the key that it was given may do. What the gateway tells
its own machine without a key (/metrics) is for no page.
"""

from __future__ import annotations

import re

from agent.settings import origins

_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1000}")
EXPOSED = (
    b"X-Request-Id, X-SlotServe-Channel, X-SlotServe-Model, X-SlotServe-Fallback, X-SlotServe-Ends-In, Retry-After"
)
MAX_AGE_SECONDS = 600


class Cors:
    """`lines`: the headers that an answer to a page of this origin gets; none where it may not call."""

    def __init__(self, text: str = "") -> None:
        self._origins = frozenset(origins(text))

    def allows(self, origin: bytes) -> bool:
        return "*" in self._origins or origin.decode("latin-1") in self._origins

    def lines(self, origin: bytes) -> bytes:
        if not self._origins:
            return b""
        if not self.allows(origin):
            return b"Vary: Origin\r\n"
        return (
            b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Expose-Headers: %b\r\nVary: Origin\r\n"
            % (b"*" if "*" in self._origins else origin, EXPOSED)
        )  # fmt: skip

    def preflight(self, origin: bytes, methods: tuple[bytes, ...], names: bytes) -> bytes:
        """The headers of the answer to a browser that asks whether it may; `names`: the headers that it would send."""
        allowed = b"Access-Control-Allow-Headers: %b\r\n" % names if _NAMES.fullmatch(names) else b""
        return (
            b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Allow-Methods: %b\r\n"
            b"%bAccess-Control-Max-Age: %d\r\nVary: Origin, Access-Control-Request-Headers\r\n"
            % (b"*" if "*" in self._origins else origin, b", ".join(methods), allowed, MAX_AGE_SECONDS)
        )

"""A request's head that a connection has seen: clients send the same one again and again but for the body's length.

The bytes before and behind the length's digits are kept, with what the parser has made of them: it would make the same
of the same bytes, and a comparison costs a tenth of that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.gateway.request import RequestHead

LEARNT_BYTES = 4096  # the longest head that is kept
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,15})\r\n")


@dataclass(slots=True)
class KnownHead:
    """`head`: as parsed; its `length` is set anew with each match."""

    before: bytes
    behind: bytes
    head: RequestHead

    def match(self, data: bytes) -> int | None:
        """Where the body begins, if `data` begins with this head, whole."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        end = data.find(b"\r", at, at + 16)
        digits = data[at:end]
        if not digits.isdigit() or not data.startswith(self.behind, end):
            return None
        self.head.length = int(digits)
        return end + len(self.behind)


def learn(data: bytes, head: RequestHead, lines: int) -> KnownHead | None:
    """The head that `data` begins with, of so many `lines`, where it can be told again by its bytes alone."""
    end = data.find(b"\r\n\r\n") + 4
    if not 4 <= end <= LEARNT_BYTES or head.length is None or not head.keep_alive:
        return None
    found = _LENGTH.search(data, 0, end)
    if found and head.route and head.route.kind == "engine" and data.count(b"\n", 0, end) == lines:
        return KnownHead(data[: found.start(1)], data[found.end(1) : end], head)
    return None

"""The `Date` of answers, which HTTP wants of every server that has a clock; made once a second."""

from __future__ import annotations

import time
from email.utils import formatdate

_made = 0, b""


def line() -> bytes:
    """With its line's end."""
    global _made
    now = int(time.time())
    if now != _made[0]:
        _made = now, b"Date: " + formatdate(now, usegmt=True).encode() + b"\r\n"
    return _made[1]

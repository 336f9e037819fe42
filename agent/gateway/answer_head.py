"""The head of an answer: of the gateway's own, and of an engine's, whose lines go through with ours behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.gateway import date
from agent.gateway.errors import REASONS

if TYPE_CHECKING:
    from agent.gateway.reply import Reply
    from agent.gateway.upstream import Answer


def own(status: int, content_type: bytes, size: int, request_id: str, lines: bytes, closes: bool) -> bytes:
    """`lines`: further headers, each with its line's end."""
    described = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (content_type, size) if content_type else b""
    return b"".join(
        (
            f"HTTP/1.1 {status} {REASONS.get(status, 'OK')}\r\n".encode(),
            date.line(),
            described,
            f"X-Request-Id: {request_id}\r\n".encode(),
            lines,
            b"Connection: close\r\n\r\n" if closes else b"\r\n",
        )
    )


def of(reply: Reply, answer: Answer) -> bytes:
    """Of an engine's answer, as the client gets it. Settles how the body is framed for this client (`answer.mode`), and
    whether its connection ends with it (`reply.closes`)."""
    endpoint = reply.endpoint
    assert endpoint is not None
    parts = [
        b"HTTP/1.1 %d %b\r\n" % (answer.head.status, answer.head.reason),
        date.line(),
        *answer.head.lines,
        endpoint.answer_head,
    ]
    if reply.fallback:
        parts.append(b"X-SlotServe-Fallback: true\r\n")
    if reply.ends_in is not None:
        parts.append(b"X-SlotServe-Ends-In: %d\r\n" % reply.ends_in)
    parts.append(b"X-Request-Id: " + reply.id.encode() + b"\r\n")
    if reply.head.origin is not None:
        parts.append(reply.for_page())
    if answer.head.sse:
        parts.append(b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n")
    if answer.mode == "frames":
        parts.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
    elif answer.mode == "length":
        parts.append(b"Content-Length: %d\r\n" % answer.left)
    elif answer.mode in ("chunked", "close"):
        if reply.head.http10:
            answer.mode = "strip" if answer.mode == "chunked" else "raw"
            reply.closes = True
        else:
            parts.append(b"Transfer-Encoding: chunked\r\n")
    if answer.mode != "frames" and (reply.closes or reply.gateway.stopping or not reply.request_complete):
        reply.closes = True
        parts.append(b"Connection: close\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)

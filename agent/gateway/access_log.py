"""One line a request, without prompt text and without keys; gathered, and written in one go twice a second.

The same form and keys as every other log line of the agent (see agent/logs.py), made by hand for the sake of speed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.gateway.reply import Reply

KEPT = 4096
PIPE_BYTES = 4096  # a pipe takes so many as one
LOGGER = "agent.gateway.access"


class AccessLog:
    """Lines to stderr, as text (key=value) or JSON. `enabled` False: none. `shared`: others write to the same file, so
    it goes out in pieces that are written whole."""

    def __init__(self, as_json: bool = False, enabled: bool = True, shared: bool = False) -> None:
        self._shared = shared
        self._lines: list[str] = []
        self._json = as_json
        self._enabled = enabled
        self._second = 0
        self._second_text = ""

    def add(self, exchange: Reply, outcome: str, at_ms: int, duration: float) -> None:
        """Says that a request has ended."""
        if not self._enabled:
            return
        head, key = exchange.head, exchange.key
        path = head.route.path.decode() if head.route and head.route.path else "-"
        if self._json:
            fields: dict[str, Any] = {
                "time": self._time(),
                "level": "info",
                "logger": LOGGER,
                "message": "request",
                "id": exchange.id,
                "at_ms": at_ms,
                "method": head.method.decode(),
                "path": path,
                "status": exchange.status,
                "outcome": outcome,
                "channel": exchange.channel,
                "model": exchange.model,
                "key": key.id if key else "",
                "seconds": round(duration, 4),
                "bytes_in": exchange.bytes_in,
                "bytes_out": exchange.bytes_out,
            }
            self._lines.append(json.dumps(fields, ensure_ascii=False))
        else:
            self._lines.append(
                f"{self._time()} INFO {LOGGER} request id={exchange.id} at_ms={at_ms} method={head.method.decode()} "
                f"path={path} status={exchange.status} outcome={outcome} channel={exchange.channel or '-'} "
                f"model={exchange.model!r} key={key.id if key else '-'} seconds={duration:.4f} "
                f"bytes_in={exchange.bytes_in} bytes_out={exchange.bytes_out}"
            )
        if len(self._lines) >= KEPT:
            self.flush()

    def flush(self) -> None:
        """Writes what was gathered."""
        if not self._lines:
            return
        pieces = _pieces(self._lines) if self._shared else ["\n".join(self._lines) + "\n"]
        self._lines.clear()
        try:
            for piece in pieces:
                sys.stderr.write(piece)
                sys.stderr.flush()
        except (BlockingIOError, BrokenPipeError):
            return  # nobody reads the log: requests go on

    def _time(self) -> str:
        now = time.time_ns() // 1_000_000
        second, millis = divmod(now, 1000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{millis:03d}Z"


def _pieces(lines: list[str]) -> list[str]:
    """As few as possible, each of whole lines and at most PIPE_BYTES (a longer line is one by itself)."""
    pieces, size = [""], 0
    for line in lines:
        length = len(line.encode(errors="replace")) + 1
        if size and size + length > PIPE_BYTES:
            pieces.append("")
            size = 0
        pieces[-1] += line + "\n"
        size += length
    return pieces

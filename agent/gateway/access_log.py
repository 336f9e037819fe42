"""One line a request, without prompt text and without keys; gathered and written in one go, twice a second."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.gateway.reply import Reply

KEPT = 4096


class AccessLog:
    """Lines to stderr, as text (key=value) or JSON."""

    def __init__(self, as_json: bool = False, enabled: bool = True) -> None:
        self._lines: list[str] = []
        self._json = as_json
        self._enabled = enabled

    def add(self, exchange: Reply, outcome: str, at_ms: int, duration: float) -> None:
        if not self._enabled:
            return
        head, key = exchange.head, exchange.key
        path = head.route.path.decode() if head.route and head.route.path else "-"
        if self._json:
            self._lines.append(
                json.dumps(
                    {
                        "event": "request",
                        "at_ms": at_ms,
                        "id": exchange.id,
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
                    },
                    ensure_ascii=False,
                )
            )
        else:
            self._lines.append(
                f"request at_ms={at_ms} id={exchange.id} method={head.method.decode()} path={path} "
                f"status={exchange.status} outcome={outcome} channel={exchange.channel or '-'} "
                f"model={exchange.model or '-'!r} key={key.id if key else '-'} seconds={duration:.4f} "
                f"in={exchange.bytes_in} out={exchange.bytes_out}"
            )
        if len(self._lines) >= KEPT:
            self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        text = "\n".join(self._lines) + "\n"
        self._lines.clear()
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (BlockingIOError, BrokenPipeError):
            return  # nobody reads the log: requests go on

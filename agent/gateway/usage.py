"""Usage rows: one a request that reached a channel, kept until the agent has written them down."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.gateway.reply import Reply

log = logging.getLogger(__name__)
KEPT = 200_000  # rows kept while the agent is away; beyond, the oldest go
BATCH = 500


class Usage:
    """`add` after a request, `batch` for what is to be sent next, `taken` once the agent has it."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Any, ...]] = {}
        self._sent: set[str] = set()
        self._lost = 0

    def add(self, exchange: Reply, outcome: str, at_ms: int, duration: float) -> None:
        key = exchange.key
        self._rows[exchange.id] = (
            exchange.channel,
            exchange.model,
            key.id if key else "",
            key.caller.user_id if key else "",
            at_ms,
            duration,
            exchange.first_byte,
            exchange.status,
            outcome,
            exchange.bytes_in,
            exchange.bytes_out,
        )
        if len(self._rows) > KEPT:
            oldest = next(iter(self._rows))
            del self._rows[oldest]
            self._sent.discard(oldest)
            self._lost += 1
            if self._lost % 10_000 == 1:
                log.warning("usage rows dropped, the agent takes none lost=%s", self._lost)

    def batch(self) -> list[dict[str, Any]]:
        """Rows that were not sent yet, at most BATCH of them; they count as sent until `resend`."""
        if len(self._sent) == len(self._rows):
            return []
        picked = []
        for row_id, row in self._rows.items():
            if row_id not in self._sent:
                picked.append({"id": row_id, **dict(zip(_FIELDS, row, strict=True))})
                if len(picked) == BATCH:
                    break
        self._sent.update(r["id"] for r in picked)
        return picked

    def taken(self, ids: list[str]) -> None:
        for row_id in ids:
            self._rows.pop(row_id, None)
            self._sent.discard(row_id)

    def resend(self) -> None:
        """The connection was lost: whatever was not taken is to be sent again."""
        self._sent.clear()

    def __len__(self) -> int:
        return len(self._rows)


_FIELDS = (
    "channel",
    "model",
    "key_id",
    "user_id",
    "at_ms",
    "duration_seconds",
    "first_byte_seconds",
    "status",
    "outcome",
    "bytes_in",
    "bytes_out",
)

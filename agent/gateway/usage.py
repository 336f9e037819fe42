"""Usage rows: one a request that reached a channel, kept until the agent has written them down.

A gateway that ends while the agent is away leaves its rows in a file, one that is killed in its journal (journal.py);
the next gateway hands them over. A row's id is its request's, so that one that is handed over twice is counted once.
"""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.gateway import journal
from agent.gateway.tokens import Tokens
from protos.shared.files import write_private

if TYPE_CHECKING:
    from agent.gateway.reply import Reply

log = logging.getLogger(__name__)
KEPT = 200_000  # rows kept while the agent is away; beyond, the oldest go
BATCH = 500
LENGTHS = (11, 13)  # of rows: before there were tokens, and now
LEFT = "usage-*.json"  # in the folder of the table and the keys


class Usage:
    """`add` after a request, `batch` for what is to be sent next, `taken` once the agent has it. A row: its fields, then
    its number, which grows. `journal`: where rows are written down meanwhile."""

    def __init__(self) -> None:
        self.journal: journal.Journal | None = None
        self._numbers = count(1)
        self._waiting: dict[str, tuple[Any, ...]] = {}
        self._sent: dict[str, tuple[Any, ...]] = {}
        self._lost = 0

    def add(self, exchange: Reply, outcome: str, at_ms: int, duration: float) -> None:
        key = exchange.key
        key_id, user_id = (key.id, key.caller.user_id) if key else ("", "")
        number = next(self._numbers)
        if self.journal is not None:
            self.journal.add(
                f'["{exchange.id}","{exchange.channel}",{_quoted(exchange.model)},{_quoted(key_id)},{_quoted(user_id)},'
                f'{at_ms},{duration:.6f},{exchange.first_byte:.6f},{exchange.status},"{outcome}",{exchange.bytes_in},'
                f"{exchange.bytes_out}]\n",
                number,
            )
        self._waiting[exchange.id] = (
            exchange.channel,
            exchange.model,
            key_id,
            user_id,
            at_ms,
            duration,
            exchange.first_byte,
            exchange.status,
            outcome,
            exchange.bytes_in,
            exchange.bytes_out,
            None,
            None,
            number,
        )
        if len(self._waiting) + len(self._sent) > KEPT:
            rows = self._sent or self._waiting
            del rows[next(iter(rows))]
            self._lost += 1
            if self._lost % BATCH == 0:
                self._clear_journal()
            if self._lost % 10_000 == 1:
                log.warning("usage rows dropped, the agent takes none lost=%s", self._lost)

    def tokens(self, row_id: str, found: Tokens) -> None:
        """Said of a row before it is sent."""
        row = self._waiting.get(row_id)
        if row is not None:
            self._waiting[row_id] = (*row[:-3], *found, row[-1])

    def batch(self) -> list[tuple[Any, ...]]:
        """Rows by FIELDS that were not sent yet, at most BATCH of them; they count as sent until `resend`."""
        picked = list(islice(self._waiting, BATCH))
        rows = []
        for row_id in picked:
            row = self._sent[row_id] = self._waiting.pop(row_id)
            rows.append((row_id, *row[:-1]))
        return rows

    def taken(self, ids: list[str]) -> None:
        for row_id in ids:
            self._sent.pop(row_id, None)
        self._clear_journal()

    def resend(self) -> None:
        """The connection was lost: whatever was not taken is to be sent again."""
        if self._sent:
            self._waiting = {**self._sent, **self._waiting}
            self._sent = {}

    def leave(self, folder: Path, gateway_id: str) -> None:
        """At the end: what nobody has taken, for the next gateway."""
        self.resend()
        if not self._waiting:
            if self.journal is not None:
                self.journal.close()
            return
        path = folder / LEFT.replace("*", gateway_id)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, json.dumps({k: row[:-1] for k, row in self._waiting.items()}).encode())
            if self.journal is not None:
                self.journal.close()
        except OSError as err:
            log.error("usage rows lost rows=%s file=%s error=%s", len(self), path, err)

    def find(self, folder: Path) -> None:
        """At the start: what gateways before have left. A file that cannot be read stays, and is said."""
        for path in sorted(folder.glob(LEFT)):
            try:
                rows = json.loads(path.read_bytes())
                found = {str(k): row for k, row in rows.items() if len(row) in LENGTHS}
                path.unlink()
                self._take_up(found)
            except FileNotFoundError:
                continue  # another gateway, started at the same time, has taken it
            except (OSError, ValueError, TypeError, AttributeError) as err:
                log.error("usage rows of an earlier gateway cannot be used file=%s error=%s", path, err)
        for path in sorted(folder.glob(journal.LEFT)):
            try:
                with journal.left(path) as rows:
                    if rows:
                        log.info("usage rows of a gateway that was killed rows=%s file=%s", len(rows), path)
                    self._take_up({k: row for k, row in rows.items() if len(row) in LENGTHS})
            except FileNotFoundError:
                continue
            except OSError as err:
                log.error("usage rows of a gateway that was killed cannot be used file=%s error=%s", path, err)

    def _take_up(self, rows: dict[str, Any]) -> None:
        number = 0
        for row_id, fields in rows.items():
            number = next(self._numbers)
            self._waiting[row_id] = (*(*fields, None, None)[: len(FIELDS) - 1], number)
        if self.journal is not None and rows:
            self.journal.add("".join(json.dumps([row_id, *fields]) + "\n" for row_id, fields in rows.items()), number)

    def _clear_journal(self) -> None:
        if self.journal is not None:
            oldest = next(iter(self._sent.values()), None) or next(iter(self._waiting.values()), None)
            self.journal.done(None if oldest is None else oldest[-1])

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return json.dumps(text)


FIELDS = (
    "id",
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
    "prompt_tokens",
    "completion_tokens",
)

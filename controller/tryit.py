"""A short-lived key with which the console calls a gateway for a person, so that nobody's secret enters a browser.

The gateway judges the call exactly as it judges the person's own keys. The key is kept in this process' memory, expires by
itself, and its row is used again: one a person and process, called what it is in the list of keys.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.context import Context
from controller.store import audit, keys
from controller.store.tables import ApiKey

NAME = "Try it (console)"
LIFE_MS = 15 * 60_000
FRESH_MS = 3 * 60_000  # a key with less life left is renewed first
MOST = 3  # answers at a time through this process: each holds one of the web side's threads


@dataclass(frozen=True, slots=True)
class Loan:
    """A key's secret, and since when it is known."""

    key_id: str
    secret: str
    made_at: int
    expires_at: int


class TryKeys:
    """Thread-safe."""

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._lock = ctx, threading.Lock()
        self._loans: dict[str, Loan] = {}
        self._running: set[str] = set()

    def enter(self, user_id: str) -> bool:
        """A place for one answer; False where the person has one under way, or too many are. `leave` gives it back."""
        with self._lock:
            if user_id in self._running or len(self._running) >= MOST:
                return False
            self._running.add(user_id)
            return True

    def leave(self, user_id: str) -> None:
        with self._lock:
            self._running.discard(user_id)

    def loan(self, user_id: str, renew: bool = False) -> Loan:
        """The person's key; `renew`: a gateway did not know the one from before."""
        ctx, now = self._ctx, self._ctx.clock()
        with self._lock:
            held = self._loans.get(user_id)
            if held is not None and not renew and held.expires_at - now > FRESH_MS:
                return held
            made = self._make(user_id, held.key_id if held else None, now)
            self._loans[user_id] = made
        ctx.keys_changed()
        return made

    def _make(self, user_id: str, key_id: str | None, now: int) -> Loan:
        expires = now + LIFE_MS
        with self._ctx.store.write() as db:
            row = db.get(ApiKey, key_id) if key_id else self._unused(db, user_id, now)
            if row is None or row.revoked_at is not None:
                row, secret = keys.create(db, user_id, NAME, now, expires)
                audit.add(db, user_id, "key.create", row.id, now, after={"name": NAME})
            else:
                secret = keys.PREFIX + secrets.token_urlsafe(32)
                row.sha256, row.prefix, row.expires_at = keys.digest(secret), secret[:12], expires
            return Loan(row.id, secret, now, expires)

    @staticmethod
    def _unused(db: Session, user_id: str, now: int) -> ApiKey | None:
        """A key of this kind that has run out (of a process that is gone)."""
        query = (
            select(ApiKey)
            .where(
                ApiKey.user_id == user_id,
                ApiKey.name == NAME,
                ApiKey.revoked_at.is_(None),
                ApiKey.expires_at < now,
            )
            .limit(1)
        )
        return db.scalars(query).first()

"""API keys: random, stored as SHA-256, shown once. The same key opens REST and the gateways."""

from __future__ import annotations

import hashlib
import secrets
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, String, bindparam, or_, select, update
from sqlalchemy.orm import Session

from controller.errors import Invalid
from controller.said import say
from controller.store.guard import changed
from controller.store.tables import ApiKey, User

PREFIX = "sk-ss-"
LAST_USE_MS = 300_000  # how exact "last used" is kept


def create(session: Session, user_id: str, name: str, now: int, expires_at: int | None = None) -> tuple[ApiKey, str]:
    """A new key and its secret, which nobody can read again later. Raises Invalid."""
    name = name.strip()
    if not name or len(name) > 200:
        raise Invalid.field("name", say("must have 1 to 200 characters"))
    if expires_at is not None and expires_at <= now:
        raise Invalid.field("expires_at", say("is in the past"))
    secret = PREFIX + secrets.token_urlsafe(32)
    row = ApiKey(
        user_id=user_id, name=name, prefix=secret[:12], sha256=digest(secret), created_at=now, expires_at=expires_at
    )
    session.add(row)
    session.flush()
    return row, secret


def digest(secret: str) -> str:
    """What is stored of a secret: 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class Opened(NamedTuple):
    """What a key's secret opens: whose account, and when the key was used last."""

    key_id: str
    last_used_at: int | None
    user_id: str
    user_name: str
    role: str


def authenticate(session: Session, secret: str, now: int) -> Opened | None:
    """The key and its person, if it opens anything now."""
    row = session.execute(_by_secret(), {"digest": digest(secret)}).one_or_none()
    if row is None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return Opened(row.id, row.last_used_at, row.user_id, row.name, row.role)


@cache
def _by_secret() -> Select[*tuple[Any, ...]]:
    """Made once: every call begins with it. Plain columns, for the same reason."""
    key, user = ApiKey.__table__.c, User.__table__.c
    return (
        select(key.id, key.expires_at, key.last_used_at, key.user_id, user.name, user.role)
        .join_from(ApiKey.__table__, User.__table__, user.id == key.user_id)
        .where(
            key.sha256 == bindparam("digest", type_=String),
            key.revoked_at.is_(None),
            user.disabled_at.is_(None),
        )
    )


def used(session: Session, key_id: str, now: int) -> None:
    """Notes the last use, exact to five minutes."""
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == key_id, or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < now - LAST_USE_MS))
        .values(last_used_at=now)
    )


def page(session: Session, user_id: str | None, limit: int, after_id: str | None = None) -> list[ApiKey]:
    """Keys of a person (None: of everybody), oldest first, revoked ones too."""
    query = select(ApiKey).order_by(ApiKey.id).limit(limit)
    if user_id is not None:
        query = query.where(ApiKey.user_id == user_id)
    if after_id:
        query = query.where(ApiKey.id > after_id)
    return list(session.scalars(query))


def revoke(session: Session, key_id: str, now: int) -> bool:
    """False where it was revoked already."""
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=now)
    return changed(session, statement) == 1

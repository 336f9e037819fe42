"""Secret, revocable addresses: an iCal feed (of a person's own bookings, or of a channel) and the wall display. A link
looks with the eyes of the person it belongs to; only the hash of its secret is kept."""

from __future__ import annotations

import secrets

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from controller.errors import Invalid
from controller.said import say
from controller.store.guard import changed
from controller.store.keys import digest
from controller.store.tables import SecretLink, User

KINDS = ("feed", "wall")
LAST_USE_MS = 300_000  # how exact "last used" is kept


def create(
    session: Session, user_id: str, kind: str, now: int, channel_id: str | None = None, name: str = ""
) -> tuple[SecretLink, str]:
    """A new link and its secret, which nobody can read again later. Raises Invalid."""
    if kind not in KINDS:
        raise Invalid.field("kind", say("must be one of %(list)s", list=", ".join(KINDS)))
    secret = secrets.token_urlsafe(32)
    row = SecretLink(
        kind=kind,
        user_id=user_id,
        channel_id=channel_id,
        name=name.strip()[:200],
        prefix=secret[:6],
        sha256=digest(secret),
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row, secret


def resolve(session: Session, secret: str, kind: str) -> tuple[SecretLink, User] | None:
    """The link and its enabled person; None where it is unknown, revoked, or the person is disabled. One statement."""
    row = session.execute(
        select(SecretLink, User)
        .join(User, User.id == SecretLink.user_id)
        .where(
            SecretLink.sha256 == digest(secret),
            SecretLink.kind == kind,
            SecretLink.revoked_at.is_(None),
            User.disabled_at.is_(None),
        )
    ).one_or_none()
    return (row[0], row[1]) if row is not None else None


def stale(row: SecretLink, now: int) -> bool:
    """Whether its last use is to be noted."""
    return row.last_used_at is None or row.last_used_at < now - LAST_USE_MS


def used(session: Session, link_id: str, now: int) -> None:
    """Notes the last use, exact to five minutes."""
    session.execute(
        update(SecretLink)
        .where(
            SecretLink.id == link_id,
            or_(SecretLink.last_used_at.is_(None), SecretLink.last_used_at < now - LAST_USE_MS),
        )
        .values(last_used_at=now)
    )


def page(session: Session, user_id: str | None, limit: int, after_id: str | None = None) -> list[SecretLink]:
    """Links of a person (None: of everybody), oldest first, revoked ones too."""
    query = select(SecretLink).order_by(SecretLink.id).limit(limit)
    if user_id is not None:
        query = query.where(SecretLink.user_id == user_id)
    if after_id:
        query = query.where(SecretLink.id > after_id)
    return list(session.scalars(query))


def live(session: Session, user_id: str) -> int:
    """How many of a person's links have not been revoked."""
    query = select(func.count()).where(SecretLink.user_id == user_id, SecretLink.revoked_at.is_(None))
    return int(session.scalar(query) or 0)


def revoke(session: Session, link_id: str, now: int) -> bool:
    """False where it was revoked already."""
    statement = update(SecretLink).where(SecretLink.id == link_id, SecretLink.revoked_at.is_(None))
    return changed(session, statement.values(revoked_at=now)) == 1

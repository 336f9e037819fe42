"""People: accounts, passwords (argon2), roles. Names are compared exactly; a disabled person keeps their history."""

from __future__ import annotations

import base64
import secrets
import unicodedata
from collections.abc import Iterable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from argon2.low_level import ARGON2_VERSION
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from controller.errors import Conflict, Invalid
from controller.rights import ROLES
from controller.said import say
from controller.store.tables import User

MIN_PASSWORD = 8
_hasher = PasswordHasher()


def _nobodys(hasher: PasswordHasher) -> str:
    """A hash of no password, at the hasher's cost: checked so that an unknown name takes as long as a known one."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (hasher.salt_len, hasher.hash_len)
    )
    cost = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v={ARGON2_VERSION}${cost}${salt}${digest}"


_NOBODY = _nobodys(_hasher)


def create(session: Session, name: str, password: str | None, role: str, now: int, *, email: str | None = None) -> User:
    """A new account; without a password only keys (or another log-in) open it. Raises Invalid, Conflict."""
    name = clean_name(name)
    if role not in ROLES:
        raise Invalid.field("role", say("must be one of %(list)s", list=", ".join(ROLES)))
    if by_name(session, name) is not None:
        raise Conflict(
            say("name: there is already somebody called %(name)s", name=name), details={"name": say("is taken")}
        )
    row = User(name=name, password_hash=hash_password(password), role=role, email=email, created_at=now)
    session.add(row)
    session.flush()
    return row


def clean_name(name: str) -> str:
    """A name as it is stored: trimmed, one line, no control characters. Raises Invalid."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name) > 200:
        raise Invalid.field("name", say("must have 1 to 200 characters"))
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name):
        raise Invalid.field("name", say("must not have line breaks or control characters"))
    return name


def clean_email(email: str | None) -> str | None:
    """An address as mails go to it; empty is none. Raises Invalid."""
    email = (email or "").strip()
    if not email:
        return None
    before, at, host = email.rpartition("@")
    if not (before and at and host) or any(c.isspace() or not c.isprintable() or c in '<>,;:"()[]\\' for c in email):
        raise Invalid.field(
            "email", say("%(what)s is no e-mail address; write it as maya@example.org", what=repr(email[:100]))
        )
    return email


def hash_password(password: str | None) -> str | None:
    """The argon2id hash; None stays None. Raises Invalid."""
    if password is None:
        return None
    if not MIN_PASSWORD <= len(password) <= 1000:
        raise Invalid.field("password", say("must have %(least)s to 1000 characters", least=MIN_PASSWORD))
    return _hasher.hash(password)


def check_password(session: Session, name: str, password: str) -> User | None:
    """The enabled person whose password this is, else None; takes as long for a name that is not there."""
    user = by_name(session, unicodedata.normalize("NFC", name).strip())
    known = user.password_hash if user is not None else None
    try:
        _hasher.verify(known or _NOBODY, password)
    except (VerifyMismatchError, VerificationError, InvalidHashError, UnicodeEncodeError):
        return None
    return user if user is not None and known and user.disabled_at is None else None


def get(session: Session, user_id: str) -> User | None:
    return session.get(User, user_id)


def by_name(session: Session, name: str) -> User | None:
    return session.scalars(select(User).where(User.name == name)).one_or_none()


def find(session: Session, id_or_name: str) -> User | None:
    """By id, else by name."""
    return get(session, id_or_name) or by_name(session, id_or_name)


def find_all(session: Session, ids_or_names: Iterable[str]) -> dict[str, User]:
    """Those that exist, by what they were called; an id wins over a name. One statement."""
    wanted = set(ids_or_names)
    rows = list(session.scalars(select(User).where(or_(User.id.in_(wanted), User.name.in_(wanted)))))
    return {**{u.name: u for u in rows if u.name in wanted}, **{u.id: u for u in rows if u.id in wanted}}


def names(session: Session, ids: Iterable[str | None]) -> dict[str, str]:
    """id -> name of those that exist."""
    wanted = {i for i in ids if i}
    if not wanted:
        return {}
    return {row.id: row.name for row in session.execute(select(User.id, User.name).where(User.id.in_(wanted)))}


def page(session: Session, limit: int, after_name: str | None = None) -> list[User]:
    """By name; `after_name` is where the last page ended."""
    query = select(User).order_by(User.name).limit(limit)
    return list(session.scalars(query.where(User.name > after_name) if after_name else query))


def administrators(session: Session) -> list[str]:
    """Ids of the enabled administrators."""
    return list(session.scalars(select(User.id).where(User.role == "admin", User.disabled_at.is_(None))))


def deciders(session: Session) -> list[str]:
    """Ids of the enabled people who may approve."""
    return list(
        session.scalars(select(User.id).where(User.role.in_(("approver", "admin")), User.disabled_at.is_(None)))
    )


def any_administrator(session: Session) -> bool:
    """Whether an enabled administrator exists (else `slotserve user add --admin` is the first step)."""
    return bool(session.scalar(select(func.count()).where(User.role == "admin", User.disabled_at.is_(None))))

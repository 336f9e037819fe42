"""Who somebody is here that an identity provider has named: may they come in, in which role, by which account.

The rule of accounts, in this order: the account that this (provider, subject) opened before; the account of a signed-in
person who asks to be connected; with SLOTSERVE_OIDC_LINK=email the only account with the same verified e-mail address
that is connected to nobody; a new account, where SLOTSERVE_OIDC_CREATE allows it. Where groups are mapped to roles they
decide at every sign-in, but the last administrator stays one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller.errors import ApiError
from controller.oidc import OidcError
from controller.settings import Settings
from controller.store import audit, users
from controller.store.tables import User


@dataclass(frozen=True, slots=True)
class Named:
    """A person as the provider names them; `email` only where it is verified."""

    subject: str  # "issuer|sub"
    name: str
    email: str | None
    groups: frozenset[str]


def named(claims: Mapping[str, Any], settings: Settings) -> Named:
    """Out of verified claims. Pure."""
    email = claims.get("email")
    verified = claims.get("email_verified")
    known = isinstance(email, str) and "@" in email and (verified in (True, "true") or (
        verified is None and settings.oidc_trust_email
    ))  # fmt: skip
    names = (claims.get(settings.oidc_name_claim), claims.get("name"), claims.get("email"), claims.get("sub"))
    return Named(
        subject=f"{claims['iss']}|{claims['sub']}",
        name=next(clean for n in names if isinstance(n, str) and (clean := _clean(n))),
        email=str(email).strip() if known else None,
        groups=frozenset(_groups(claims, settings.oidc_groups_claim)),
    )


def refusal(who: Named, settings: Settings) -> str:
    """Why a person may not come in ("group", "domain"); "" = they may. Pure."""
    groups = listed(settings.oidc_allowed_groups)
    if groups and not groups & who.groups:
        return "group"
    domains = {d.lower().lstrip("@") for d in listed(settings.oidc_allowed_domains)}
    if domains and (who.email or "").rpartition("@")[2].lower() not in domains:
        return "domain"
    return ""


def role(who: Named, settings: Settings) -> str | None:
    """The role that the groups give; None where no group is mapped. Pure."""
    admins, approvers = listed(settings.oidc_admin_groups), listed(settings.oidc_approver_groups)
    if not admins and not approvers:
        return None
    return "admin" if admins & who.groups else "approver" if approvers & who.groups else "user"


def account(session: Session, who: Named, settings: Settings, now: int, connect: str | None = None) -> User:
    """The account of somebody who may come in, brought up to date; `connect` = the id of a signed-in person who wants
    this sign-in for their own account. Raises OidcError ("group", "domain", "disabled", "account", "taken")."""
    if why := refusal(who, settings):
        raise OidcError(why, f"{who.name}: not of an allowed {why}")
    user = session.scalars(select(User).where(User.subject == who.subject)).one_or_none()
    if user is not None and connect not in (None, user.id):
        raise OidcError("taken", f"{who.subject} opens the account of {user.name} already")
    if user is None:
        user = _to_connect(session, who, settings, connect)
        if user is not None:
            user.subject = who.subject
            audit.add(session, user.id, "user.connect", user.id, now, after={"subject": who.subject})
        elif settings.oidc_create:
            user = users.create(session, _free_name(session, who), None, "user", now, email=who.email)
            user.subject = who.subject
            audit.add(session, user.id, "user.create", user.id, now, after={"name": user.name, "subject": who.subject})
        else:
            raise OidcError("account", f"{who.subject} fits no account")
    if user.disabled_at is not None:
        raise OidcError("disabled", f"the account of {user.name} is disabled")
    _update(session, user, who, settings, now)
    return user


def listed(text: str) -> set[str]:
    """The words of a setting with commas."""
    return {word.strip() for word in text.split(",") if word.strip()}


def _to_connect(session: Session, who: Named, settings: Settings, connect: str | None) -> User | None:
    if connect is not None:
        user = users.get(session, connect)
        if user is None or user.subject is not None:
            raise OidcError("taken", "the account is connected to another sign-in already")
        return user
    if settings.oidc_link != "email" or who.email is None:
        return None
    same = select(User).where(func.lower(User.email) == who.email.lower(), User.subject.is_(None))
    found = list(session.scalars(same.limit(2)))
    return found[0] if len(found) == 1 else None


def _update(session: Session, user: User, who: Named, settings: Settings, now: int) -> None:
    before = {"role": user.role, "email": user.email}
    if who.email is not None:
        user.email = who.email
    if (wanted := role(who, settings)) is not None:
        user.role = wanted
        session.flush()
        if not users.any_administrator(session):
            user.role = before["role"] or "user"
    after = {"role": user.role, "email": user.email}
    if after != before:
        audit.add(
            session,
            None,
            "user.change",
            user.id,
            now,
            before=before,
            after=after,
            reason="as the identity provider says",
        )
    session.flush()


def _free_name(session: Session, who: Named) -> str:
    """The name, or the first like it that nobody has."""
    for name in _like(who.name):
        if users.by_name(session, name) is None:
            return name
    raise OidcError("account", f"{who.name}: every such name is taken")


def _like(name: str) -> Iterator[str]:
    yield name
    for number in range(2, 1000):
        yield f"{name[:190]} {number}"


def _clean(name: str) -> str:
    """What of a name can be stored; "" where nothing can."""
    kept = "".join(
        c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029"
    )
    try:
        return users.clean_name(kept[:200])
    except ApiError:
        return ""


def _groups(claims: Mapping[str, Any], path: str) -> list[str]:
    """The groups at `realm_access.roles` or under that very name: a list of texts, or one text."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found]
    return [g for g in found if isinstance(g, str)] if isinstance(found, list) else []

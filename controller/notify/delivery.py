"""From a row of the outbox to a message for one place: whose words, whose zone, which address. And its sending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from controller.notify import wording
from controller.notify.language import language_of, zone_of
from controller.notify.ways import chat, mail, webhook
from controller.notify.ways.message import Message, Refused, TryAgain
from controller.said import say
from controller.settings import Settings
from controller.store.tables import NotificationTarget, Outbox, User
from controller.vault import Locked, Vault

NO_SERVER = say("no mail server is set (SLOTSERVE_SMTP_HOST)")


@dataclass(frozen=True, slots=True)
class Letter:
    """A message and where it goes: `address` is an e-mail address or a URL. `private`: that may be inside the network."""

    message: Message
    way: str
    name: str
    address: str
    secret: str = ""
    private: bool = False
    locked: str = ""  # why its address cannot be read, in words


def letter(session: Session, settings: Settings, vault: Vault, row: Outbox) -> Letter | str:
    """What to send for a row, or why nothing can be sent, in words."""
    payload = row.payload or {}
    facts, at = payload.get("facts") or {}, int(payload.get("at") or row.created_at)
    subject = str(payload.get("subject") or "")
    user = session.get(User, row.user_id) if row.user_id else None
    if row.way == "email":
        if user is None or not user.email:
            return "no e-mail address"
        return to_person(settings, user, row.id, row.event_id, row.kind, subject, facts, at) or NO_SERVER
    target = session.get(NotificationTarget, row.address)
    if target is None:
        return "the target is gone"
    return to_target(settings, vault, target, user, row.id, row.event_id, row.kind, subject, facts, at)


def to_person(
    settings: Settings, user: User, id_: str, event_id: str, kind: str, subject: str, facts: Mapping[str, Any], at: int
) -> Letter | None:
    """An e-mail; None where there is no mail server."""
    if not settings.smtp_host or not user.email:
        return None
    made = _message(settings, user.locale, user.zone, id_, event_id, kind, subject, facts, at)
    return Letter(made, "email", user.name, user.email)


def to_target(
    settings: Settings,
    vault: Vault,
    target: NotificationTarget,
    owner: User | None,
    id_: str,
    event_id: str,
    kind: str,
    subject: str,
    facts: Mapping[str, Any],
    at: int,
) -> Letter:
    """A message for a webhook or a chat service, in the target's own language or its owner's."""
    locale = target.language or (owner.locale if owner else None)
    zone = target.zone or (owner.zone if owner else None)
    made = _message(settings, locale, zone, id_, event_id, kind, subject, facts, at)
    private = may_be_private(settings, target, owner)
    try:
        secret = vault.open(target.secret) if target.secret else ""
        return Letter(made, target.way, target.name, vault.open(target.url), secret, private)
    except Locked as err:
        return Letter(made, target.way, target.name, "", private=private, locked=str(err))


def may_be_private(settings: Settings, target: NotificationTarget, owner: User | None) -> bool:
    """Whether a target may lie inside the network: administrators' may."""
    return target.user_id is None or settings.notify_private_targets or (owner is not None and owner.role == "admin")


def send(settings: Settings, letter: Letter, now: int, mailer: mail.Mailer | None = None) -> None:
    """One try. Raises Refused or TryAgain. `mailer`: a connection that is open already."""
    if letter.locked:
        raise TryAgain(letter.locked)  # another controller, or this one with its key back, may open it
    if letter.way == "email":
        made = mail.build(settings, letter.message, letter.name, letter.address, now)
        if mailer is not None:
            mailer.send(made)
            return
        with mail.Mailer(settings) as own:
            own.send(made)
    elif letter.way == "webhook":
        webhook.post(letter.address, letter.secret, letter.message, now, letter.private)
    elif letter.way == "chat":
        chat.send(letter.address, letter.message, letter.private)
    else:
        raise Refused(f"there is no way {letter.way}")


def link(settings: Settings, path: str) -> str:
    """A page of the console as others reach it; "" where that is not set."""
    return f"{settings.public_url.rstrip('/')}{path}" if settings.public_url and path else ""


def _message(
    settings: Settings,
    locale: str | None,
    zone: str | None,
    id_: str,
    event_id: str,
    kind: str,
    subject: str,
    facts: Mapping[str, Any],
    at: int,
) -> Message:
    language = language_of(locale, settings.notify_language)
    said = wording.render(kind, facts, language, zone_of(zone, settings.notify_zone))
    about, own = link(settings, said.link), link(settings, wording.LINKS["settings"])
    return Message(id_, event_id, kind, at, subject, facts, said, language, about, own)

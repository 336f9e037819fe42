"""Answers about people, their keys, sessions and feeds; the audit trail."""

from __future__ import annotations

from typing import Literal

from controller.api.contract.base import Object, Shape, Time

Role = Literal["user", "approver", "admin"]


class User(Shape):
    """A person; the private part is there for themselves and administrators."""

    id: str
    name: str
    role: Role
    disabled: bool
    email: str | None = None
    locale: str | None = None
    zone: str | None = None
    created_at: Time | None = None
    disabled_at: Time | None = None
    has_password: bool | None = None
    password_temporary: bool | None = None


class KeyName(Shape):
    id: str
    name: str
    prefix: str


class Me(User):
    via: Literal["key", "session"]
    key: KeyName | None
    """The one that is used for this call"""
    must_change_password: bool
    sign_in: Literal["local", "oidc", "both", "none"]
    """How this person signs in to the console"""
    unread_notifications: int


class BookingOfSomebody(Shape):
    id: str
    channel: str
    starts_at: Time
    ends_at: Time
    running: bool


class DisablePreview(Shape):
    """What disabling a person would do."""

    user: User
    keys: int
    """API keys that would open nothing any more"""
    sessions: int
    feeds: int
    ends: list[BookingOfSomebody]
    cancels: list[BookingOfSomebody]


class Session(Shape):
    """A session in the console."""

    id: str
    current: bool
    way: str
    created_at: Time
    seen_at: Time
    expires_at: Time
    address: str | None
    agent: str | None


class Key(Shape):
    """An API key without its secret."""

    id: str
    name: str
    prefix: str
    """How the secret begins"""
    user_id: str
    user: str | None
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None
    active: bool


class KeyMade(Key):
    secret: str
    """Shown in this answer only"""


class Feed(Shape):
    """A calendar's (or a wall display's) secret address."""

    id: str
    kind: Literal["feed", "wall"]
    name: str
    channel: str | None
    """null: the person's own bookings"""
    user_id: str
    user: str | None
    prefix: str
    created_at: Time
    revoked_at: Time | None
    last_used_at: Time | None
    active: bool


class FeedMade(Feed):
    secret: str
    url: str
    """Shown in this answer only"""


class Changed(Shape):
    field: str
    before: str | None
    after: str | None


class AuditEntry(Shape):
    """Who did what."""

    id: str
    at: Time
    actor_id: str | None
    """null: SlotServe itself"""
    actor: str | None
    action: str
    subject: str
    before: Object | None
    after: Object | None
    reason: str
    subject_name: str
    changes: list[Changed]
    text: str
    """In words"""


class AuditAction(Shape):
    action: str
    text: str


class Setting(Shape):
    variable: str
    value: bool | int | float | str
    origin: str
    description: str

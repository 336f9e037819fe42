"""Answers about notices: one's own, how one is told, and what became of messages outside."""

from __future__ import annotations

from typing import Literal

from controller.api.contract.base import Items, Object, Shape, Time

Way = Literal["in_app", "email", "webhook", "chat"]


class Notice(Shape):
    id: str
    kind: str
    title: str
    text: str
    subject: str | None
    channel: str | None
    reservation_id: str | None
    link: str | None
    facts: Object
    """What the text is made of"""
    at: Time
    read_at: Time | None


class Notices(Items[Notice]):
    unread: int


class MarkedRead(Shape):
    read: int


class Message(Shape):
    """A message outside, without what opens its target."""

    id: str
    kind: str
    way: str
    to: str | None
    title: str
    state: Literal["waiting", "sent", "failed", "dropped"]
    attempts: int
    created_at: Time
    due_at: Time | None
    sent_at: Time | None
    error: str | None


class Trouble(Shape):
    way: str
    to: str | None
    error: str
    since: Time
    messages: int
    given_up: bool | None


class Delivery(Shape):
    """Whether messages get through."""

    waiting: int
    failed: int
    oldest_waiting_seconds: float | None
    problems: list[Trouble]


class WayState(Shape):
    way: Way
    available: bool
    why: str
    """Why it brings nothing at present"""


class KindChoice(Shape):
    kind: str
    title: str
    group: str
    ways: list[Way]
    default: list[Way]
    own: bool
    roles: list[str] | None


class Choices(Shape):
    ways: list[WayState]
    email: str | None
    kinds: list[KindChoice]


class Tried(Shape):
    """A test that was sent at once."""

    ok: bool
    error: str | None


class LastMessage(Shape):
    state: str
    at: Time
    error: str | None


class NoticeTarget(Shape):
    """A webhook or a chat service, without what opens it."""

    id: str
    name: str
    way: Literal["webhook", "chat"]
    service: str | None
    """Whose a chat target is: DingTalk, Slack …"""
    url: str
    """Without what opens it; empty where it cannot be read any more"""
    readable: bool
    """False: sealed with a key that is lost; set the address anew"""
    kinds: list[str]
    shared: bool
    language: str | None
    zone: str | None
    enabled: bool
    created_at: Time
    last: LastMessage | None


class NoticeTargetSaved(NoticeTarget):
    secret: str | None = None
    """A webhook's new secret, shown in this answer only"""

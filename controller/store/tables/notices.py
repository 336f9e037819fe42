"""Who is told of what: notices in the product, messages on their way out, and where they go."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, Text, true
from sqlalchemy.orm import Mapped, mapped_column

from controller.store.tables.base import Base, new_id


class Notification(Base):
    """In-app notices; `event_id` makes one notice of an event a person."""

    __tablename__ = "notifications"
    __table_args__ = (
        Index("notifications_event_user", "event_id", "user_id", unique=True),
        Index("notifications_kind_at", "kind", "at"),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    event_id: Mapped[str] = mapped_column(String(96))
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(Text)  # "node/channel", or a reservation's id
    text: Mapped[str] = mapped_column(Text)
    at: Mapped[int] = mapped_column(BigInteger)
    read_at: Mapped[int | None] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")  # what the words are made of
    # False: the person does not want this kind in the product; the row only says that they were told.
    shown: Mapped[bool] = mapped_column(Boolean, default=True, server_default=true())


class Outbox(Base):
    """One message on its way to one place outside; written with the change it tells of, sent after commit, once.

    `event_id`, `way` and `address` make one message of an event. `due_at` grows with each failed attempt.
    """

    __tablename__ = "outbox"
    __table_args__ = (
        Index("outbox_event_way", "event_id", "way", "address", unique=True),
        Index("outbox_state_due", "state", "due_at"),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    event_id: Mapped[str] = mapped_column(String(96))
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str] = mapped_column(String(32))
    way: Mapped[str] = mapped_column(String(16))  # email webhook chat
    address: Mapped[str] = mapped_column(String(200))  # the id of the person (e-mail) or of the notification target
    payload: Mapped[dict[str, Any]] = mapped_column(default=dict)
    state: Mapped[str] = mapped_column(String(16), default="waiting")  # waiting sent failed dropped
    created_at: Mapped[int] = mapped_column(BigInteger)
    due_at: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    sent_at: Mapped[int | None] = mapped_column(BigInteger)
    error: Mapped[str] = mapped_column(Text, default="")


class NotificationTarget(Base):
    """A webhook or a chat service that messages go to: a person's own, or everybody's (`user_id` NULL, administrators')."""

    __tablename__ = "notification_targets"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    way: Mapped[str] = mapped_column(String(16))  # webhook chat
    url: Mapped[str] = mapped_column(Text)  # holds the service's secret: shown masked only
    secret: Mapped[str | None] = mapped_column(Text)  # signs webhooks
    kinds: Mapped[list[Any]] = mapped_column(default=list)  # of events; empty: all
    language: Mapped[str | None] = mapped_column(String(16))  # NULL: its owner's
    zone: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger)
    disabled_at: Mapped[int | None] = mapped_column(BigInteger)

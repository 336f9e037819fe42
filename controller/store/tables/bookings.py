"""What is booked: reservations and their series, the presets they start, and who waits for a free slot."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    bindparam,
    text,
)
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column

from controller.store.tables.base import Base, new_id, sorted_text

HOLDING = ("pending", "approved")
RAN = ("approved", "finished", "ended_early")  # or runs, or will


class Preset(Base):
    __tablename__ = "presets"
    __table_args__ = (
        Index(
            "presets_model_name",
            "model",
            "name",
            unique=True,
            sqlite_where=text("deleted_at IS NULL"),
            postgresql_where=text("deleted_at IS NULL"),
        ),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    model: Mapped[str] = mapped_column(sorted_text(512))
    name: Mapped[str] = mapped_column(sorted_text(200))
    engine: Mapped[str] = mapped_column(String(32))
    args: Mapped[list[Any]] = mapped_column(default=list)
    env: Mapped[dict[str, Any]] = mapped_column(default=dict)
    load_timeout_seconds: Mapped[float | None] = mapped_column(Float)
    owner_id: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    version: Mapped[int] = mapped_column(Integer, default=1)
    created_at: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[int] = mapped_column(BigInteger)
    deleted_at: Mapped[int | None] = mapped_column(BigInteger)


class Reservation(Base):
    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint("starts_at < ends_at", name="reservations_window"),
        Index("reservations_channel_window", "channel_id", "starts_at", "ends_at"),
        # What holds time, by channel: a few of many rows. (An index over the status alone tempts SQLite to read all of them.)
        Index(
            "reservations_holding",
            "channel_id",
            "starts_at",
            "ends_at",
            sqlite_where=text("status IN ('pending', 'approved')"),
            postgresql_where=text("status IN ('pending', 'approved')"),
        ),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    channel_id: Mapped[str] = mapped_column(ForeignKey("channels.id"))
    kind: Mapped[str] = mapped_column(String(16))
    model: Mapped[str | None] = mapped_column(Text)
    preset: Mapped[str | None] = mapped_column(Text)
    starts_at: Mapped[int] = mapped_column(BigInteger)
    ends_at: Mapped[int] = mapped_column(BigInteger)  # as booked; `ended_at` is when it really ended
    status: Mapped[str] = mapped_column(String(16))
    holder_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    booked_by: Mapped[str] = mapped_column(String(32))
    note: Mapped[str] = mapped_column(Text, default="")
    participants: Mapped[list[Any]] = mapped_column(default=list)  # user ids
    series_id: Mapped[str | None] = mapped_column(String(32), index=True)  # the repeated booking it is one of
    # Held by the administrators and shown as maintenance; an exclusive booking in every other respect.
    maintenance: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))
    problem: Mapped[str] = mapped_column(
        Text, default="", server_default=""
    )  # node or channel lost, in words; "": none
    version: Mapped[int] = mapped_column(Integer, default=1)
    created_at: Mapped[int] = mapped_column(BigInteger)
    changed_at: Mapped[int | None] = mapped_column(BigInteger)  # when it came to this version; None: made so
    approved_at: Mapped[int | None] = mapped_column(BigInteger)
    decided_by: Mapped[str | None] = mapped_column(String(32))
    reason: Mapped[str] = mapped_column(Text, default="")
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    committed: Mapped[bool] = mapped_column(
        Boolean, default=False
    )  # rule 2 or 3 has chosen it; cleared when it is changed
    # What a running reservation was started with: {identity, model, preset, engine, args, env, load_timeout_seconds}.
    pinned: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


def holding(status: ColumnElement[str] | InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Whether a reservation holds its time; the values stand in the statement, so that SQLite finds the index for it."""
    return status.in_(bindparam("holding", HOLDING, expanding=True, literal_execute=True))


class Series(Base):
    """A repeated booking: what was asked for; its occurrences are reservations of their own."""

    __tablename__ = "series"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    rule: Mapped[dict[str, Any]] = mapped_column(default=dict)  # {every, days, until | count, zone, skipped: […]}
    created_by: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[int] = mapped_column(BigInteger)


class SlotWatch(Base):
    """Tell me when a slot gets free: looked at when a booking ends, is cancelled or is moved."""

    __tablename__ = "slot_watches"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    model: Mapped[str | None] = mapped_column(Text)
    preset: Mapped[str | None] = mapped_column(Text)
    channel_id: Mapped[str | None] = mapped_column(String(32))  # NULL: any that fits
    minutes: Mapped[int] = mapped_column(Integer)
    not_before: Mapped[int] = mapped_column(BigInteger)
    not_after: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[int] = mapped_column(BigInteger)
    told_at: Mapped[int | None] = mapped_column(BigInteger)
    cancelled_at: Mapped[int | None] = mapped_column(BigInteger)

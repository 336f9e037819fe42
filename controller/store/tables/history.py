"""What has happened: loads, what channels did, requests served, acts of people."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from controller.store.tables.base import Base, new_id, sorted_text


class Load(Base):
    """One load as the node measured it (the estimate takes the last five that succeeded)."""

    __tablename__ = "loads"
    __table_args__ = (Index("loads_node_model", "node_id", "model", "at"),)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # the agent's id: a repeated report changes nothing
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    channel_id: Mapped[str | None] = mapped_column(String(32))
    model: Mapped[str] = mapped_column(String(512))
    preset: Mapped[str | None] = mapped_column(Text)
    identity: Mapped[str] = mapped_column(String(32))
    ok: Mapped[bool] = mapped_column(Boolean)
    seconds: Mapped[float] = mapped_column(Float)
    at: Mapped[int] = mapped_column(BigInteger)
    gpu_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)  # that it took; None: unknown


class ChannelState(Base):
    """What a channel did and since when: one row a change, never a heartbeat. Hours by state and the strip chart read it."""

    __tablename__ = "channel_states"
    __table_args__ = (Index("channel_states_channel_at", "channel_id", "at"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    channel_id: Mapped[str] = mapped_column(ForeignKey("channels.id"))
    at: Mapped[int] = mapped_column(BigInteger)
    phase: Mapped[str] = mapped_column(String(16))
    model: Mapped[str | None] = mapped_column(Text)  # what runs or is being loaded
    preset: Mapped[str | None] = mapped_column(Text)
    fallback: Mapped[bool] = mapped_column(Boolean, default=False)
    reservation_id: Mapped[str | None] = mapped_column(String(32))
    reason: Mapped[str] = mapped_column(Text, default="")  # of a failure


class Usage(Base):
    __tablename__ = "usage"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # the request's id: nothing is counted twice
    node_id: Mapped[str] = mapped_column(String(32))
    channel: Mapped[str] = mapped_column(sorted_text(63))
    model: Mapped[str] = mapped_column(Text)
    key_id: Mapped[str] = mapped_column(String(32))
    user_id: Mapped[str] = mapped_column(String(32), index=True)
    at: Mapped[int] = mapped_column(BigInteger, index=True)
    duration: Mapped[float] = mapped_column(Float)
    first_byte: Mapped[float] = mapped_column(Float)
    status: Mapped[int] = mapped_column(Integer)
    outcome: Mapped[str] = mapped_column(String(32))
    bytes_in: Mapped[int] = mapped_column(BigInteger)
    bytes_out: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)  # as the engine said; NULL: it did not
    completion_tokens: Mapped[int | None] = mapped_column(BigInteger)


class UsageDay(Base):
    """Requests of a whole UTC day in sums: what a year is read from. Always the sum of the day's `usage` rows."""

    __tablename__ = "usage_days"
    day: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)  # the instant it begins
    user_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    node_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    channel: Mapped[str] = mapped_column(sorted_text(63), primary_key=True)
    model: Mapped[str] = mapped_column(Text, primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger)
    failed: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float] = mapped_column(Float)
    first_bytes: Mapped[float] = mapped_column(Float)  # the sum of the times to the first byte
    answered: Mapped[int] = mapped_column(BigInteger)  # how many that is of
    bytes_in: Mapped[int] = mapped_column(BigInteger)
    bytes_out: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)
    completion_tokens: Mapped[int | None] = mapped_column(BigInteger)


class StateDay(Base):
    """A day of some time zone that is over and whose hours by what channels did lie in `channel_days`."""

    __tablename__ = "state_days"
    start_at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    end_at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class ChannelDay(Base):
    """Milliseconds of a channel in such a day by what it did: always what `channel_states` and the bookings come to."""

    __tablename__ = "channel_days"
    start_at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    end_at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    channel_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    reserved: Mapped[int] = mapped_column(BigInteger)
    loading: Mapped[int] = mapped_column(BigInteger)
    served: Mapped[int] = mapped_column(BigInteger)
    failed: Mapped[int] = mapped_column(BigInteger)
    idle: Mapped[int] = mapped_column(BigInteger)
    unknown: Mapped[int] = mapped_column(BigInteger)
    fallback: Mapped[int] = mapped_column(BigInteger)


class Audit(Base):
    __tablename__ = "audit"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    at: Mapped[int] = mapped_column(BigInteger, index=True)
    actor_id: Mapped[str | None] = mapped_column(String(32))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(Text)
    before: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    after: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    reason: Mapped[str] = mapped_column(Text, default="")

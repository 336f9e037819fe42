"""The tables. Instants are integer milliseconds (BIGINT): one sortable form that SQLite and PostgreSQL both have.

Every row that people know by name has an opaque text id (`new_id`, sortable by time of creation). The overlap rule of
reservations is the database's own: triggers on SQLite, an exclusion constraint on PostgreSQL (migrations create them).
"""

from __future__ import annotations

import secrets
import time
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
    true,
)
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

HOLDING = ("pending", "approved")


def sorted_text(length: int) -> TypeEngine[str]:
    """A name that lists are sorted and paged by: the same order (by code point) whatever the database's collation."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def new_id() -> str:
    """20 hexadecimal digits; ids made later sort later (to the millisecond)."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(5)[1:]}"


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(sorted_text(200), unique=True)
    password_hash: Mapped[str | None] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(16), default="user")
    email: Mapped[str | None] = mapped_column(Text)
    locale: Mapped[str | None] = mapped_column(String(16))
    zone: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger)
    disabled_at: Mapped[int | None] = mapped_column(BigInteger)
    # "issuer|subject" of the identity provider.
    subject: Mapped[str | None] = mapped_column(Text, index=True, unique=True)
    # Which events reach the person by which way: {kind: [way, …]}; a kind that is missing takes the defaults.
    notify: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    # Set by an administrator: to be changed at the next sign-in before anything else.
    password_temporary: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))


class WebSession(Base):
    """A sign-in to the console, from one browser. The cookie holds a random text, the row its hash: an ended row is dead
    at once, whoever has a copy of the cookie."""

    __tablename__ = "web_sessions"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    way: Mapped[str] = mapped_column(String(16))  # password oidc
    created_at: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[int] = mapped_column(BigInteger, index=True)  # exact to minutes
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    address: Mapped[str] = mapped_column(String(64), default="")
    agent: Mapped[str] = mapped_column(Text, default="")  # what the browser calls itself


class ApiKey(Base):
    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(24))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int | None] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    last_used_at: Mapped[int | None] = mapped_column(BigInteger)


class Node(Base):
    __tablename__ = "nodes"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(sorted_text(63), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    removed_at: Mapped[int | None] = mapped_column(BigInteger)
    cordoned: Mapped[bool] = mapped_column(Boolean, default=False)
    cordon_reason: Mapped[str] = mapped_column(Text, default="", server_default="")
    drain_until: Mapped[int | None] = mapped_column(BigInteger)  # cordoned until then; NULL: until somebody lifts it
    disabled_at: Mapped[int | None] = mapped_column(BigInteger)  # may not connect until it is enabled again
    # What it last said of its certificates: {issuer, ends_at, trusts: […]}, CAs by the sha256 of their certificates.
    certificate: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    certificate_serial: Mapped[str | None] = mapped_column(String(64))  # of its newest enrolment
    version: Mapped[str | None] = mapped_column(String(64))
    last_seen_at: Mapped[int | None] = mapped_column(BigInteger)  # written on connect and disconnect only
    generation: Mapped[int] = mapped_column(BigInteger, default=0)  # of the last plan made for it
    plan_sha256: Mapped[str | None] = mapped_column(String(64))
    own_settings: Mapped[dict[str, Any]] = mapped_column(default=dict)  # stop_timeout_seconds … of the node's file
    gpus: Mapped[list[Any]] = mapped_column(default=list)
    gateway_urls: Mapped[list[Any]] = mapped_column(default=list)


class JoinToken(Base):
    __tablename__ = "join_tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    node_name: Mapped[str] = mapped_column(String(63), index=True)
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int] = mapped_column(BigInteger)
    used_at: Mapped[int | None] = mapped_column(BigInteger)
    created_by: Mapped[str | None] = mapped_column(String(32))


class Channel(Base):
    __tablename__ = "channels"
    __table_args__ = (Index("channels_node_name", "node_id", "name", unique=True),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    name: Mapped[str] = mapped_column(sorted_text(63))
    created_at: Mapped[int] = mapped_column(BigInteger)
    gone_at: Mapped[int | None] = mapped_column(BigInteger)  # no longer declared by the node
    gpu_uuids: Mapped[list[Any]] = mapped_column(default=list)
    gpu_memory_bytes: Mapped[int] = mapped_column(BigInteger, default=0)  # 0: unknown or no GPU
    engines: Mapped[list[Any]] = mapped_column(default=list)  # in order of preference
    default_model: Mapped[str | None] = mapped_column(Text)
    default_preset: Mapped[str | None] = mapped_column(Text)
    preload_lead_seconds: Mapped[float | None] = mapped_column(Float)  # NULL: the setting
    policy: Mapped[dict[str, Any]] = mapped_column(default=dict)
    override_set_at: Mapped[int | None] = mapped_column(BigInteger)  # NULL: no override
    override_model: Mapped[str | None] = mapped_column(Text)  # NULL with override_set_at: unload
    override_preset: Mapped[str | None] = mapped_column(Text)
    override_until: Mapped[int | None] = mapped_column(BigInteger)
    override_by: Mapped[str | None] = mapped_column(String(32))
    # What the planner last decided: survives a restart so that a plan's bytes do not change with it.
    current_target: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    step_key: Mapped[str | None] = mapped_column(String(64))
    step_since: Mapped[int | None] = mapped_column(BigInteger)


class NodeModel(Base):
    """A model as it lies on one node's disk. One catalogue entry a name, whatever the nodes that hold it."""

    __tablename__ = "node_models"
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), primary_key=True)
    name: Mapped[str] = mapped_column(sorted_text(512), primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    format: Mapped[str] = mapped_column(String(32))
    incomplete: Mapped[bool] = mapped_column(Boolean, default=False)
    detail: Mapped[str] = mapped_column(Text, default="")
    channels: Mapped[list[Any]] = mapped_column(default=list)
    architecture: Mapped[str] = mapped_column(Text, default="")  # as its file says; "" and 0: not known
    context_length: Mapped[int] = mapped_column(BigInteger, default=0)
    quantisation: Mapped[str] = mapped_column(Text, default="")
    parameters: Mapped[int] = mapped_column(BigInteger, default=0)
    projector: Mapped[str] = mapped_column(Text, default="")  # path of its mmproj file
    rotating_disk: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))
    seen_at: Mapped[int] = mapped_column(BigInteger)
    gone_at: Mapped[int | None] = mapped_column(BigInteger)


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


class Command(Base):
    """A true command on its way to a node: sent once, before its deadline."""

    __tablename__ = "commands"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    channel: Mapped[str] = mapped_column(String(63), default="")
    kind: Mapped[str] = mapped_column(String(32))
    actor_id: Mapped[str | None] = mapped_column(String(32))
    created_at: Mapped[int] = mapped_column(BigInteger)
    deadline: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(16), default="waiting")  # waiting sent done refused late
    answer: Mapped[str] = mapped_column(Text, default="")


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


class Series(Base):
    """A repeated booking: what was asked for; its occurrences are reservations of their own."""

    __tablename__ = "series"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    rule: Mapped[dict[str, Any]] = mapped_column(default=dict)  # {every, days, until | count, zone, skipped: […]}
    created_by: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[int] = mapped_column(BigInteger)


class SecretLink(Base):
    """A secret, revocable address: an iCal feed (of a person or a channel) or the wall display. Only the hash is kept."""

    __tablename__ = "secret_links"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    kind: Mapped[str] = mapped_column(String(16))  # feed wall
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)  # whose eyes it looks with
    channel_id: Mapped[str | None] = mapped_column(ForeignKey("channels.id"))  # NULL: the person's own bookings
    name: Mapped[str] = mapped_column(String(200), default="")
    prefix: Mapped[str] = mapped_column(String(24))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    last_used_at: Mapped[int | None] = mapped_column(BigInteger)


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


class Leader(Base):
    """One row: who plans. On SQLite the epoch grows at each start."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str] = mapped_column(Text)
    renewed_at: Mapped[int] = mapped_column(BigInteger)
    fleet_address: Mapped[str] = mapped_column(Text, default="", server_default="")  # where agents find it
    # Digests of what every controller of the database must have alike: {"ca": …, "session_key": …}.
    secrets: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")


class Revision(Base):
    """One row: a number that grows with every change a page or the planner could see."""

    __tablename__ = "revision"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)

"""The machines: nodes and their invitations, channels and what overrides them, models as they lie on disks, commands."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from controller.store.tables.base import Base, new_id, sorted_text


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

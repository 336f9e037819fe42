"""Answers about channels: what should run and why, what does run, what will, what has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from controller.api.contract.base import Hint, Shape, Target, Time
from controller.api.contract.bookings import BookingOnChannel
from controller.scheduling.policies import Policy

Phase = Literal[
    "off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked", "unknown", "gone"
]
Category = Literal[
    "out_of_memory", "kv_cache_too_small", "gpu_busy", "bad_argument", "missing_file", "broken_file",
    "unsupported_architecture", "port_taken", "missing_library", "killed_by_kernel", "cpu_fallback", "load_timeout",
    "hung", "crashed",
]  # fmt: skip


class Failure(Shape):
    reason: str
    category: Category
    count: int
    retry_at: Time | None
    since: Time | None
    last: Time | None
    model: str | None
    preset: str | None
    detail: str | None


class Load(Shape):
    elapsed_seconds: float
    estimated_seconds: float | None


class OverrideInForce(Shape):
    model: str | None
    preset: str | None
    unload: bool
    until: Time | None
    """null: until a booking begins"""
    set_at: Time
    by: str | None


class ChannelGpu(Shape):
    uuid: str
    name: str | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None


class Channel(Shape):
    """What should run (`target`) and why, and what does run."""

    id: str
    node: str
    name: str
    target: Target | None
    """null: nothing"""
    why: str
    until: Time | None
    """The first instant at which the target can change by itself"""
    phase: Phase
    phase_since: Time | None
    detail: str | None
    running: Target | None
    reservation: str | None
    """Id of the booking that runs or is prepared"""
    booking: BookingOnChannel | None
    """The one that runs"""
    next: BookingOnChannel | None
    upcoming: list[BookingOnChannel]
    """Of the next 24 hours"""
    failure: Failure | None
    fallback: bool
    load: Load | None
    in_flight: int
    drain_deadline: Time | None
    gateway_url: str | None
    base_url: str | None
    """For OpenAI's clients"""
    default_model: str | None
    default_preset: str | None
    preload_lead_seconds: float
    policy: Policy
    override: OverrideInForce | None
    gpus: list[ChannelGpu]
    gpu_memory_bytes: int
    engines: list[str]
    online: bool
    cordoned: bool


class ChannelOverridden(Channel):
    hints: list[Hint]


class CommandSent(Shape):
    id: str
    kind: Literal["reload", "retry"]
    state: str
    deadline: Time


class CommandState(Shape):
    id: str
    kind: Literal["reload", "retry"]
    state: str
    answer: str | None


class Step(Shape):
    at: Time
    target: Target | None
    why: str
    reservation: str | None
    fallback: Target | None


class Plan(Shape):
    """What will run when; the first step is the present."""

    steps: list[Step]
    step_since: Time | None
    to: Time


class ChannelSpan(Shape):
    """What a channel did for a while."""

    from_: Time = Field(alias="from")
    to: Time
    phase: Phase
    state: Literal["loading", "served", "failed", "idle", "unknown"]
    model: str | None
    preset: str | None
    fallback: bool
    reservation: str | None
    preparing: str | None
    """Id of the booking that it was made ready for"""
    reason: str | None


class History(Shape):
    channel: str
    from_: Time = Field(alias="from")
    to: Time
    items: list[ChannelSpan]
    next: str | None

"""Answers about nodes: their cards, how far they follow their plan, their maintenance, how they join."""

from __future__ import annotations

from controller.api.contract.base import Object, Shape, Time
from controller.api.contract.bookings import BookingBrief, Offer


class GpuProcess(Shape):
    pid: int
    channel: str | None
    """Whose engine it is; null: somebody else's"""
    memory_bytes: int
    user: str | None = None
    """For administrators, as `command`"""
    command: str | None = None


class Gpu(Shape):
    """A card; of a node that is away only what was last known for good."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int | None = None
    utilisation_percent: float | None = None
    temperature_c: float | None = None
    power_watts: float | None = None
    problem: str | None = None
    processes: list[GpuProcess] | None = None


class PlanState(Shape):
    """How far the node is with what it was told."""

    epoch: int
    generation: int
    newest_generation: int
    accepted: bool
    refusal: str | None


class Node(Shape):
    id: str
    name: str
    online: bool
    since: Time | None
    """Connected, or lost, since"""
    last_seen_at: Time | None
    version: str | None
    clock_skew_seconds: float | None
    """The node's wall clock less the controller's; bookings are corrected for it"""
    clock_skew_limit_seconds: float
    """Beyond it certificates and logs are in danger, and the node counts as wrong"""
    cordoned: bool
    """Takes no new bookings"""
    drain_until: Time | None
    """In maintenance until then; null with `cordoned`: until somebody lifts it"""
    cordon_reason: str | None
    enrolled: bool
    disabled: bool
    turned_away: str | None
    """Why it may not connect though its certificate is good"""
    certificate_until: Time | None
    gpus: list[Gpu]
    gpu_problem: str | None
    channels: list[str]
    gateway_urls: list[str]
    own_settings: Object
    """What its own file says"""
    plan: PlanState
    created_at: Time


class BookingDrained(BookingBrief):
    channel: str


class BookingTouched(BookingDrained):
    offers: list[Offer]
    """Channels of other nodes that fit, of the first bookings"""


class DrainPreview(Shape):
    """The bookings that maintenance of a node touches."""

    node: str
    until: Time
    idle_at: Time
    """When the last of `running` is over"""
    running: list[BookingDrained]
    """They finish"""
    touched: list[BookingTouched]
    """They would begin before `until`: flagged, and their holders told"""


class Invitation(Shape):
    """How a node joins: `slotserve-agent enrol JOIN`, once."""

    name: str
    join: str
    """Enrolment address, one-time token and CA certificate in one string"""
    expires_at: Time

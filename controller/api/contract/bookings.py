"""Answers about bookings."""

from __future__ import annotations

from typing import Literal

from controller.api.contract.base import Fault, Hint, Items, Object, Problem, Shape, Slot, Time

Kind = Literal["model", "exclusive"]
Status = Literal["pending", "approved", "rejected", "expired", "cancelled", "ended_early", "finished"]


class BookingBrief(Shape):
    """A booking as it stands on a channel: when, what, whose (as far as the caller may know)."""

    id: str
    kind: Kind
    model: str | None
    preset: str | None
    starts_at: Time
    ends_at: Time
    status: Status
    running: bool
    version: int
    maintenance: bool
    holder: str | None
    """null: the caller may not know"""
    holder_id: str | None
    mine: bool


class BookingInTheWay(BookingBrief):
    channel: str
    would_be: Literal["cancelled", "shortened", "ended"] | None = None
    """For maintenance: what would become of it"""


class BookingOnChannel(BookingBrief):
    edited_since: bool
    """Whether its preset was edited since it was started"""
    flags: list[str]


class Wish(Shape):
    who: str | None
    starts_at: Time | None
    ends_at: Time | None


class Requester(Shape):
    disabled: bool
    bookings: int
    hours_held: float
    hours_week: float


class Request(Shape):
    """What an approver needs to decide."""

    over_limits: list[str]
    since: Time
    blocked_seconds: float
    turned_away: list[Wish]
    requester: Requester


class Booking(BookingBrief):
    channel: str
    series_id: str | None
    flags: list[str]
    """`channel_gone`, `node_removed`, `node_away`, `node_drained`: it cannot be served as things are"""
    problem: str | None
    """The same in words"""
    created_at: Time
    approved_at: Time | None
    ended_at: Time | None
    booked_by: str | None
    note: str | None
    participants: list[str] | None
    """Ids; null: not for the caller"""
    participant_names: list[str | None] | None
    reason: str | None
    decided_by: str | None
    request: Request | None = None
    """While it waits, for who may decide"""


class CardProcess(Shape):
    pid: int
    user: str | None
    command: str | None
    memory_bytes: int | None


class CardInUse(Shape):
    processes: int
    memory_used_bytes: int
    memory_total_bytes: int


class BareCard(Shape):
    """How the holder of an exclusive booking uses the card."""

    node: str
    host: str
    gpu_uuids: list[str]
    cuda_visible_devices: str | None
    message: str
    processes: list[CardProcess]
    """Somebody else's"""
    in_use: CardInUse | None
    """All that is on it, an engine that is still going included; null: the driver does not say"""


class Repeated(Shape):
    id: str
    rule: Object | None


class Offer(Slot):
    """A channel that a booking could be moved to."""

    needs_approval: bool
    """It would wait for an approver there"""


class Calls(Shape):
    requests: int
    last_at: Time | None


class BookingWhole(Booking):
    """A booking, and how it will begin."""

    offers: list[Offer] = []
    """Where `problem` says something: channels that fit, best first"""
    hints: list[Hint]
    load_seconds: float | None
    ready_at: Time | None
    exceeds_gpu_memory: bool
    bare_card: BareCard | None = None
    calls: Calls | None = None
    """Of its holder and participants in its time, once it has begun; for those who may see its details"""
    series: Repeated | None = None


class Occurrence(Shape):
    """One window of a repeated booking as it was judged."""

    starts_at: Time
    ends_at: Time
    moved: bool
    """Its start does not exist on that day: it is as much later"""
    status: Literal["approved", "pending", "refused", "skipped"]
    problems: list[Problem]
    conflicts: list[str]
    """Ids"""


class RepeatedMade(Repeated):
    made: list[Booking]
    skipped: list[Occurrence]


class BookingMade(BookingWhole):
    series: RepeatedMade | None = None


class BookingEnded(BookingWhole):
    changed: list[Booking] | None = None
    """With a scope: all that were ended"""


class BookingMoved(BookingWhole):
    moved_from: str | None
    """Id of the running booking that was ended for this one; null: it is the same booking"""


class Hours(Shape):
    """What is left of a person's hours on the channel."""

    held: float
    held_limit: float | None
    week: float
    week_limit: float | None
    week_from: Time | None


class BookingCheck(Shape):
    """What booking would say."""

    problems: list[Problem]
    hints: list[Hint]
    load_seconds: float | None
    ready_at: Time | None
    exceeds_gpu_memory: bool
    status: Literal["approved", "pending", "refused"]
    conflicts: list[BookingInTheWay]
    suggestions: list[Slot]
    occurrences: list[Occurrence]
    policy: list[Hint]
    hours: Hours | None


class Decided(Shape):
    """One of several requests; `error` null: it was decided."""

    id: str
    status: Status | None
    error: Fault | None
    conflicts: list[BookingInTheWay] | None = None
    suggestions: list[Slot] | None = None
    problems: list[Problem] | None = None


class Decisions(Shape):
    items: list[Decided]
    decided: int


class Slots(Items[Slot]):
    """Free windows, best first."""


class Watch(Shape):
    """A slot that somebody waits for."""

    id: str
    kind: Kind
    model: str | None
    preset: str | None
    channel: str | None
    minutes: int
    not_before: Time
    not_after: Time
    state: str
    created_at: Time
    told_at: Time | None

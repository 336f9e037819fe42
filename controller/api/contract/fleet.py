"""Answers about nodes, channels, what runs there and when; engines' output; models and presets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from controller.api.contract.base import Hint, Object, Shape, Target, Time
from controller.api.contract.bookings import BookingBrief, BookingOnChannel, Offer
from controller.scheduling.policies import Policy

Phase = Literal[
    "off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked", "unknown", "gone"
]
Engine = Literal["llama.cpp", "vllm", "sglang", "simulated"]
Category = Literal[
    "out_of_memory", "kv_cache_too_small", "gpu_busy", "bad_argument", "missing_file", "broken_file",
    "unsupported_architecture", "port_taken", "missing_library", "killed_by_kernel", "cpu_fallback", "load_timeout",
    "hung", "crashed",
]  # fmt: skip


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


class Launch(Shape):
    """A run of an engine."""

    id: str
    launched_at: Time | None
    model: str | None
    preset: str | None
    reservation: str | None
    ended: bool
    failed: bool
    size: int


class LogPart(Shape):
    file: str
    offset: int
    next_offset: int
    text: str
    ended: bool
    """Nothing will follow"""
    launch: Launch
    line: int | None = None
    """Number of the first line, with `lines=1`"""


class LogLine(Shape):
    offset: int
    line: int


class LogMatches(Shape):
    matches: list[LogLine]
    count: int
    launch: Launch


class ModelCopy(Shape):
    node: str
    size_bytes: int
    format: str
    incomplete: bool
    detail: str | None
    seen_at: Time
    rotating_disk: bool | None
    path: str | None = None
    """For administrators"""


class Model(Shape):
    """A model of the fleet; the tables by channel have a member for each channel whose folders hold it."""

    name: str
    size_bytes: int
    format: str
    architecture: str | None
    context_length: int | None
    quantisation: str | None
    parameters: int | None
    projector: str | None
    incomplete: bool
    detail: str | None
    nodes: list[str]
    channels: list[str]
    exceeds_gpu_memory: dict[str, bool]
    load_seconds: dict[str, float]
    engines: list[str]
    engines_by_channel: dict[str, list[str]]
    copies: list[ModelCopy]


class Dropped(Shape):
    argument: str
    why: str


class Preset(Shape):
    id: str
    model: str
    name: str
    engine: Engine
    args: list[str]
    env: dict[str, str | None]
    """Values are null for who may not see them"""
    load_timeout_seconds: float | None
    owner_id: str | None
    owner: str | None
    version: int
    created_at: Time
    updated_at: Time
    dropped: list[Dropped]
    """What SlotServe owns and took out"""
    unknown: list[str]
    """Options that the engine does not know"""


class PresetSaved(Preset):
    hints: list[Hint]


class PresetChecked(Shape):
    """What the engine would be started with."""

    command: list[str]
    env: dict[str, str]
    dropped: list[Dropped]
    unknown: list[str]
    needs_permission: list[str]
    """What only an administrator may save"""
    kept: list[str]
    suggestions: dict[str, str]
    """What unknown options were probably meant to be"""


class Setting(Shape):
    variable: str
    value: bool | int | float | str
    origin: str
    description: str

"""What pages of channels are made of, whoever looks: immutable records, with a number for each state of a channel.

A channel's facts get another `serial` when something of them changes. So a page is put together out of pieces that are
kept by serial (overview_parts.py, timeline.py), and a poll in which one channel of two hundred has changed costs one
channel. Figures of GPUs are left out: they change all the time, and pages get them by themselves (charts.py).
fleet_facts.py makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.console import state as state_of
from controller.fleet.live import LiveChannel
from controller.scheduling.types import ChannelInput, Decision
from controller.store import reservations


@dataclass(frozen=True, slots=True)
class AnyBooking:
    """What every page says of a booking: where, what for, its window and how it stands."""

    id: str
    channel: str
    kind: str
    model: str | None
    preset: str | None
    start: int
    end: int
    status: str


@dataclass(frozen=True, slots=True)
class Held(AnyBooking):
    """A pending or approved booking."""

    holder_id: str
    holder: str
    participants: tuple[str, ...]
    version: int
    base_url: str
    loads_at: int | None
    series: bool
    maintenance: bool

    def runs(self, now: int) -> bool:
        return self.status == "approved" and self.start <= now < self.end

    def status_at(self, now: int) -> str:
        return reservations.status_of(self.status, self.end, now)


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """`said` is what counts now, `seen` what a node that is away last said. `people` have a part in what is shown."""

    id: str
    full_name: str
    anchor: str
    name: str
    node: str
    gone: bool
    cordoned: bool
    gpus: str
    gpu_uuids: tuple[str, ...]
    base_url: str
    default: tuple[str | None, str | None]
    override_by: tuple[str | None, str]
    override_until: int | None
    online: bool
    since: int
    said: LiveChannel
    seen: LiveChannel
    decision: Decision
    bookings: tuple[Held, ...]
    progress: state_of.Progress | None
    input: ChannelInput | None
    step_since: int | None
    people: frozenset[str]
    moment: tuple[str, int, bool]  # which booking runs, how many are ahead, whether the decision ends within a day
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    id: str
    name: str
    meta: str
    online: bool
    since: int
    skew: float | None
    cordoned: bool
    disabled: bool
    refusal: str
    turned_away: str
    gpu_problem: str
    channels: tuple[ChannelFacts, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of it at one moment; before `until` it says the same unless something changes. `serial` grows with changes."""

    serial: int
    until: int
    nodes: tuple[NodeFacts, ...]
    bookings: int  # grows when a booking changes, begins or ends
    revision: int  # of the store
    people: dict[str, list[ChannelFacts]] = field(compare=False)  # the channels that a person has a part in

    @property
    def channels(self) -> list[ChannelFacts]:
        return [c for n in self.nodes for c in n.channels]

    def find(self, node: str, name: str) -> ChannelFacts | None:
        return next((c for n in self.nodes if n.name == node for c in n.channels if c.name == name), None)

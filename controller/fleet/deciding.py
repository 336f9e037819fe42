"""What follows from a node's state: decisions, the plan's bytes, and what of them must be written down. No I/O.

The planner (planner.py) brings the state, keeps the records between looks and does the writing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.fleet.encoding import channel_plan, node_plan, step_key
from controller.fleet.planner_store import ChannelWrite, NodeWrite
from controller.fleet.snapshot import ChannelState, NodeState
from controller.scheduling.plan import HOUR, look_ahead, reaches_past
from controller.scheduling.types import Decision, Millis, PlanStep
from controller.settings import Settings


@dataclass(slots=True)
class ChannelRecord:
    """What is remembered of a channel between looks: its decision, since when, and the step that comes next."""

    name: str
    decision: Decision
    since: Millis
    key: str
    next_at: Millis | None
    next_key: str | None


@dataclass(slots=True)
class NodeRecord:
    """A node's plan as sent, and the first instant at which one of its channels must be looked at again."""

    id: str
    name: str
    generation: int
    plan: bytes
    sha256: bytes
    due: Millis | None
    channels: dict[str, ChannelRecord]


@dataclass(slots=True)
class Result:
    """What deciding on a node gave: its record to be, and what is to be written before it is."""

    node: NodeRecord
    write: NodeWrite
    lines: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return not self.write.empty


Chosen = tuple[ChannelState, ChannelRecord, bytes]  # a channel, what is decided, its part of the plan


def decide_channel(channel: ChannelState, before: ChannelRecord | None, now: Millis, names: bool) -> Chosen:
    """The decision for `now` and the channel's part of the plan. The first step is since when it has held: as stored
    while it is the same step, else the instant at which the last plan had it begin, else its booking's start, else now."""
    decision, steps = look_ahead(channel.input, now)
    key, since = step_key(steps[0]), holds_since(channel, steps[0], now, before)
    then = steps[1] if len(steps) > 1 else None
    record = ChannelRecord(
        channel.name, decision, since, key, then.at if then else None, step_key(then) if then else None
    )
    return channel, record, channel_plan(channel.name, steps, since, channel.launches, names, channel.limits)


def holds_since(channel: ChannelState, first: PlanStep, now: Millis, before: ChannelRecord | None = None) -> Millis:
    """The instant since when the first step of a timetable has held."""
    key = step_key(first)
    if channel.step_key == key and channel.step_since is not None:
        return min(channel.step_since, now)  # later: the clock was set back since
    if before and before.next_key == key and before.next_at is not None and before.next_at <= now:
        return before.next_at
    if first.running and (channel.step_since or 0) < first.running.start:
        return first.running.start
    return now


def decide_node(state: NodeState, chosen: Sequence[Chosen], settings: Settings, now: Millis) -> Result:
    """The node's plan out of its channels', a generation higher where its bytes have changed, and all that follows."""
    plan = node_plan(state.name, (piece for *_, piece in chosen), settings, state.own_settings)
    digest = hashlib.sha256(plan)
    same = digest.hexdigest() == state.plan_sha256 and state.generation > 0
    generation = state.generation if same else state.generation + 1
    write = NodeWrite(state.id, None if same else (generation, digest.hexdigest()))
    write.over = [(row.id, row.status, row.ends_at) for row in state.over]
    dues: list[Millis] = [] if state.next_end is None else [state.next_end]
    lines: list[tuple[object, ...]] = []
    for channel, record, _ in chosen:
        channel_write = _channel_write(channel, record.decision, record)
        if not channel_write.empty:
            write.channels.append(channel_write)
        if channel.step_key != record.key:
            lines.append(_line(state, channel, record.decision, now))
        if record.decision.until is not None:
            dues.append(record.decision.until)
        if reaches_past(channel.input.reservations, now):
            dues.append((now // HOUR + 1) * HOUR)
    channels = {channel.id: record for channel, record, _ in chosen}
    due = min(dues, default=None)
    return Result(NodeRecord(state.id, state.name, generation, plan, digest.digest(), due, channels), write, lines)


def _channel_write(channel: ChannelState, decision: Decision, record: ChannelRecord) -> ChannelWrite:
    """What of a decision must survive a restart and is not in the store yet."""
    write = ChannelWrite(channel.id)
    identity = decision.target.identity if decision.target else None
    if (channel.step_key, channel.step_since, channel.current_identity) != (record.key, record.since, identity):
        launch = channel.launches[identity] if identity else None
        write.step = (launch, record.key, record.since)
    wanted = decision.committed
    if wanted is not None and wanted not in channel.committed:
        write.commit = (wanted, channel.versions[wanted])
    write.uncommit = sorted(channel.committed - {wanted})
    write.pins = [(r, channel.versions[r], launch) for r, launch in channel.pins.items()]
    return write


def _line(state: NodeState, channel: ChannelState, decision: Decision, now: Millis) -> tuple[object, ...]:
    def name(target: object) -> str:
        if target is None:
            return "nothing"
        model, preset = getattr(target, "model", ""), getattr(target, "preset", None)
        return repr(f"{model}:{preset}" if preset else model)

    left = None if decision.until is None else round((decision.until - now) / 1000, 3)
    return (
        state.name,
        channel.name,
        name(decision.target),
        decision.why,
        decision.reservation.id if decision.reservation else "-",
        "never" if left is None else f"+{left:g}s",
        name(channel.input.current),
    )

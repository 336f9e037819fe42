"""One channel as a wish for a booking sees it: the policy, what is in the way, and how the booking would begin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Select, String, bindparam, select
from sqlalchemy.orm import Session

from controller.context import Context
from controller.scheduling import hints
from controller.scheduling.booking_rules import Booking, Conflict, Facts, Policy, policy_of
from controller.scheduling.types import Rules, Target
from controller.settings import Settings
from controller.store import channels, reservations
from controller.store.launches import Catalogue, Launch, disk_read_mbps, read_catalogue, resolve
from controller.store.tables import HOLDING, Channel, Node, Reservation


@dataclass(frozen=True, slots=True)
class Place:
    """A channel and its node, read for booking."""

    channel: Channel
    node: Node

    @property
    def full_name(self) -> str:
        return f"{self.node.name}/{self.channel.name}"


@dataclass(frozen=True, slots=True)
class View:
    """What `problems` and `outlook` need; `launch` is None where (model, preset) cannot run there."""

    place: Place
    policy: Policy
    facts: Facts
    launch: Launch | None
    in_the_way: tuple[Reservation, ...]
    before: Reservation | None
    before_launch: Launch | None
    size_bytes: int


def find_place(session: Session, full_name: str) -> Place | None:
    """The channel called `node/name`, gone ones included."""
    row = channels.by_full_name(session, full_name)
    return Place(*row) if row else None


def look(session: Session, settings: Settings, place: Place, booking: Booking, besides: str | None = None) -> View:
    """Reads everything about a wish; `besides` is the booking that is being replaced."""
    channel, node = place.channel, place.node
    launch, size, model_known = None, 0, True
    before = _before(session, channel.id, booking.start, besides)
    catalogue, mbps = _catalogue(session, place, booking, before), speed(settings, node)

    def can(model: str | None, preset: str | None) -> Launch | None:
        return catalogue.available(node.id, channel.engines, model, preset, mbps) if catalogue and model else None

    if booking.kind == "model" and booking.model:
        there = catalogue.size_on(node.id, channel.name, booking.model) if catalogue else None
        model_known = there is not None
        if there is not None:
            size = there
            launch = can(booking.model, booking.preset)
            model_known = launch is not None or booking.preset is not None
    overlapping = reservations.holding_in(session, [channel.id], booking.start, booking.end, besides)
    facts = Facts(
        model_known=model_known,
        preset_known=booking.preset is None or launch is not None,
        channel_gone=channel.gone_at is not None,
        cordoned=node.cordoned,
        conflicts=tuple(Conflict(r.id, r.starts_at, r.ends_at) for r in overlapping),
    )
    held = can(before.model, before.preset) if before else None
    return View(place, policy_for(settings, channel), facts, launch, tuple(overlapping), before, held, size)


def outlook(ctx: Context, view: View, booking: Booking, now: int) -> hints.Outlook | None:
    """How the booking would begin; None where its target cannot run on the channel."""
    if booking.kind == "model" and view.launch is None:
        return None
    settings, place = ctx.settings, view.place
    target = target_of(view.launch)
    before = None
    if view.before is not None:
        old = view.before
        before = hints.Neighbour(old.ends_at, target_of(view.before_launch) or (_other(old) if old.model else None))
    live = ctx.live.channel(place.node.name, place.channel.name)
    return hints.outlook(
        target,
        booking.start,
        now,
        rules_for(settings, place),
        float(own(place, "drain_seconds", settings.drain_seconds)),
        before,
        live.running or None if live.phase in ("ready", "loading") else None,
        view.size_bytes,
        place.channel.gpu_memory_bytes,
        load_timeout_of(view.launch, settings, place.node),
    )


def launch_of(session: Session, settings: Settings, place: Place, model: str, preset: str | None) -> Launch | None:
    """What the channel would start for (model, preset)."""
    return resolve(session, place.channel, place.node, model, preset, settings.disk_read_mbps)


def target_of(launch: Launch | None) -> Target | None:
    if launch is None:
        return None
    return Target(launch["model"], launch["preset"], launch["identity"], launch["load_seconds"])


def policy_for(settings: Settings, channel: Channel) -> Policy:
    """The channel's policy in force."""
    return policy_of(channel.policy or {}, *settings.booking_limits)


def rules_for(settings: Settings, place: Place) -> Rules:
    """The scheduling rules of a channel, the node's own settings applied."""
    lead = place.channel.preload_lead_seconds
    return Rules(
        buffer=settings.switch_buffer_seconds,
        lead=settings.min_preload_lead_seconds if lead is None else lead,
        stop_timeout=float(own(place, "stop_timeout_seconds", settings.stop_timeout_seconds)),
    )


def own(place: Place, name: str, otherwise: float) -> Any:
    """A setting of the node's own file, else the controller's."""
    said = (place.node.own_settings or {}).get(name)
    return otherwise if said is None else said


def load_timeout_of(launch: Launch | None, settings: Settings, node: Node) -> float | None:
    """From a start to ready at most: the preset's own, the node's, or the controller's."""
    if launch is None:
        return None
    return load_timeout(launch["load_timeout_seconds"], settings, node)


def load_timeout(own_one: float | None, settings: Settings, node: Node) -> float:
    """As above, for a preset's own value (None: it has none)."""
    said = own_one if own_one is not None else (node.own_settings or {}).get("load_timeout_seconds")
    return float(settings.load_timeout_seconds if said is None else said)


def speed(settings: Settings, node: Node) -> float:
    return disk_read_mbps(node.own_settings, settings.disk_read_mbps)


def booking_of(row: Reservation) -> Booking:
    """A booking as it is, for the rules."""
    kind: Any = row.kind
    return Booking(kind, row.model, row.preset, row.starts_at, row.ends_at)


def _other(row: Reservation) -> Target:
    """A neighbour whose model is gone from the node: another target than anything else."""
    return Target(row.model or "", row.preset, f"gone:{row.id}")


def _catalogue(session: Session, place: Place, booking: Booking, before: Reservation | None) -> Catalogue | None:
    """What launches of a wish and of the booking before it depend on, read once."""
    targets = {(booking.model, booking.preset)} | ({(before.model, before.preset)} if before else set())
    models = {model for model, _ in targets if model}
    if not models:
        return None
    return read_catalogue(session, (place.node.id,), models, presets=any(preset for _, preset in targets))


def _before(session: Session, channel_id: str, start: int, besides: str | None) -> Reservation | None:
    return session.scalars(_last(), {"channel": channel_id, "start": start, "besides": besides or ""}).first()


@cache
def _last() -> Select[Any]:
    """Made once: to put a statement together takes longer than to run it."""
    return (
        select(Reservation)
        .where(
            Reservation.channel_id == bindparam("channel", type_=String),
            Reservation.status.in_(HOLDING),
            Reservation.ends_at <= bindparam("start", type_=BigInteger),
            Reservation.id != bindparam("besides", type_=String),
        )
        .order_by(Reservation.ends_at.desc())
        .limit(1)
    )

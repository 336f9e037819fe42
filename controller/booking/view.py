"""One channel as a wish for a booking sees it: the policy, what is in the way, and how the booking would begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Select, String, and_, bindparam, or_, select
from sqlalchemy.orm import Session

from controller.booking.lost import closed
from controller.context import Context
from controller.scheduling import hints
from controller.scheduling.booking_rules import Booking, Conflict, Facts
from controller.scheduling.policies import Policy, Taken, policy_of, week_of
from controller.scheduling.types import Rules, Target
from controller.settings import Settings
from controller.store import channels, reservations
from controller.store.launches import Catalogue, Launch, disk_read_mbps, read_catalogue, resolve
from controller.store.tables import Channel, Node, Reservation, holding


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
    """What `problems` and `outlook` need; `launch` is None where (model, preset) cannot run there. `before` is the last
    booking that ends by the start, `after` one that begins at the end."""

    place: Place
    policy: Policy
    facts: Facts
    launch: Launch | None
    in_the_way: tuple[Reservation, ...]
    before: Neighbour | None
    after: Neighbour | None
    size_bytes: int
    missing: str = ""  # of the model's files on that node


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A booking beside a wish, and what it would be started with."""

    row: Reservation
    launch: Launch | None

    @property
    def target(self) -> Target | None:
        """None: exclusive. A model that is gone from the node is another target than anything else."""
        if self.row.model is None:
            return None
        return target_of(self.launch) or Target(self.row.model, self.row.preset, f"gone:{self.row.id}")


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom a booking is, as the rules need it."""

    id: str
    role: str


def find_place(session: Session, full_name: str) -> Place | None:
    """The channel called `node/name`, gone ones included."""
    row = channels.by_full_name(session, full_name)
    return Place(*row) if row else None


def look(
    session: Session,
    settings: Settings,
    place: Place,
    booking: Booking,
    now: int,
    holder: Holder | None = None,
    besides: str | None = None,
) -> View:
    """Reads everything about a wish; `besides` is the booking that is being replaced. Without `holder` only how it would
    begin and what is in the way counts, not what a person has."""
    channel, node = place.channel, place.node
    policy = policy_for(settings, channel)
    launch, size, model_known, missing = None, 0, True, ""
    before, overlapping, after = _around(session, channel.id, booking, besides)
    catalogue, mbps = _catalogue(session, place, booking, before, after), speed(settings, node)

    def can(model: str | None, preset: str | None) -> Launch | None:
        return catalogue.available(node.id, channel.engines, model, preset, mbps) if catalogue and model else None

    if booking.kind == "model" and booking.model:
        there = catalogue.size_on(node.id, channel.name, booking.model) if catalogue else None
        model_known = there is not None
        if there is not None:
            size = there
            missing = catalogue.missing_on(node.id, booking.model) if catalogue else ""
            launch = can(booking.model, booking.preset)
            model_known = launch is not None or booking.preset is not None
    facts = Facts(
        model_known=model_known,
        preset_known=booking.preset is None or launch is not None,
        channel_gone=channel.gone_at is not None,
        cordoned=closed(node, booking.start),
        conflicts=in_the_way(overlapping),
        holder_id=holder.id if holder else "",
        holder_role=holder.role if holder else "",
        taken=taken(session, policy, channel.id, holder.id, booking.start, now, besides) if holder else (),
    )
    beside = [Neighbour(row, can(row.model, row.preset)) if row else None for row in (before, after)]
    return View(place, policy, facts, launch, tuple(overlapping), beside[0], beside[1], size, missing)


def in_the_way(rows: Iterable[Reservation]) -> tuple[Conflict, ...]:
    """Bookings as the rules see them."""
    return tuple(Conflict(r.id, r.starts_at, r.ends_at) for r in rows)


def taken(
    session: Session, policy: Policy, channel_id: str, user_id: str, start: int, now: int, besides: str | None = None
) -> tuple[Taken, ...]:
    """What a person has on a channel from the week of `start` (or of now, where that is earlier) on; nothing is looked up
    where the policy counts no hours."""
    if not policy.counts_hours:
        return ()
    had = reservations.of_people(session, (user_id,), week_of(min(start, now)), channel_id, besides)
    return tuple(Taken(h.start, h.end, h.holds) for h in had.get(user_id, ()))


def outlook(ctx: Context, view: View, booking: Booking, now: int) -> hints.Outlook | None:
    """How the booking would begin; None where its target cannot run on the channel."""
    if booking.kind == "model" and view.launch is None:
        return None
    settings, place = ctx.settings, view.place
    target = target_of(view.launch)
    before, after = (
        hints.Neighbour(n.row.starts_at, n.row.ends_at, n.target) if n else None for n in (view.before, view.after)
    )
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
        after,
        view.missing,
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


def policy_shape(policy: Policy, names: Mapping[str, str]) -> dict[str, Any]:
    """The policy as answers carry it: people by name."""
    shape = policy.model_dump(mode="json")
    if policy.allowed_users is not None:
        shape["allowed_users"] = [names.get(i, i) for i in policy.allowed_users]
    return shape


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
    return Booking(kind, row.model, row.preset, row.starts_at, row.ends_at, row.maintenance)


def _catalogue(session: Session, place: Place, booking: Booking, *beside: Reservation | None) -> Catalogue | None:
    """What launches of a wish and of the bookings beside it depend on, read once."""
    targets = {(booking.model, booking.preset), *((row.model, row.preset) for row in beside if row)}
    models = {model for model, _ in targets if model}
    if not models:
        return None
    return read_catalogue(session, (place.node.id,), models, presets=any(preset for _, preset in targets))


def _around(
    session: Session, channel_id: str, booking: Booking, besides: str | None
) -> tuple[Reservation | None, list[Reservation], Reservation | None]:
    """The last booking that ends by the start, what overlaps, and one that begins exactly at the end. One statement."""
    start, end = booking.start, max(booking.start, booking.end)
    where = {"channel": channel_id, "start": start, "end": end, "besides": besides or ""}
    rows = list(session.scalars(_beside_and_between(), where))
    before = [r for r in rows if r.ends_at <= start]
    between = [r for r in rows if r.ends_at > start and r.starts_at < end]
    after = [r for r in rows if r.starts_at == end and r not in before]
    return (before[-1] if before else None), between, (after[0] if after else None)


@cache
def _beside_and_between() -> Select[Any]:
    """Made once: to put a statement together takes longer than to run it."""
    start, end = bindparam("start", type_=BigInteger), bindparam("end", type_=BigInteger)
    holds = (
        Reservation.channel_id == bindparam("channel", type_=String),
        holding(Reservation.status),
        Reservation.id != bindparam("besides", type_=String),
    )
    last = (
        select(Reservation.id)
        .where(*holds, Reservation.ends_at <= start)
        .order_by(Reservation.ends_at.desc())
        .limit(1)
        .scalar_subquery()
    )
    near = and_(*holds, Reservation.starts_at <= end, Reservation.ends_at > start)
    return select(Reservation).where(or_(Reservation.id == last, near)).order_by(Reservation.starts_at)

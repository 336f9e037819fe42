"""What one viewer may see of the facts that everybody shares (facts.py): bookings, rows of channels, heads of nodes.

Targets and reasons come from the same pure function and the same snapshot as the planner's, so that the page says what
is done. Holders' names and notes pass the same rights as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta, tzinfo

from markupsafe import Markup

from controller.console import sentences, show
from controller.console import state as state_of
from controller.console.facts import AnyBooking, ChannelFacts, Held, NodeFacts
from controller.context import Context
from controller.fleet.live import LiveFailure
from controller.rights import Actor, HolderName, may
from controller.scheduling.types import Decision
from controller.store import channels, reservations, users
from controller.store.tables import RAN, Reservation

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Booking(AnyBooking):
    """A booking for a page. `holder` is empty for who may not know it; `may_change` = the buttons are there."""

    running: bool
    holder: str
    mine: bool
    version: int
    may_change: bool
    may_log: bool
    base_url: str
    loads_at: int | None = None
    invited: bool = False
    series: bool = False
    maintenance: bool = False


@dataclass(slots=True)
class Row:
    """One channel."""

    anchor: str
    name: str
    node: str
    gpus: str
    pill: tuple[str, str, str]
    phase: str
    why: Markup
    model: str | None
    preset: str | None
    is_default: bool
    wanted: bool  # the model shown is not there yet, or failed
    to_model: str | None
    in_flight: int | None
    now: Booking | None
    next: Booking | None
    progress: state_of.Progress | None
    failure: LiveFailure | None
    detail: str
    mine: bool
    open_to_me: bool
    may_log: bool
    may_retry: bool
    gone: bool
    cards: int

    @property
    def groups(self) -> str:
        """Filters that the row belongs to."""
        tests = {
            "ready": self.phase == "ready",
            "open": self.open_to_me,
            "busy": self.phase in ("loading", *state_of.SWITCHING),
            "attention": self.attention,
        }
        return " ".join(name for name, true in tests.items() if true)

    @property
    def attention(self) -> bool:
        return self.failure is not None or self.phase in ("blocked", "retry_wait", "unknown")


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node's head and rows. `at_risk`: bookings of the next day on a node that is away."""

    facts: NodeFacts
    anchor: str
    at_risk: tuple[Booking, ...]
    rows: list[Row] = field(default_factory=list, compare=False)

    @property
    def anchors(self) -> list[str]:
        return [c.anchor for c in self.facts.channels]

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def meta(self) -> str:
        return self.facts.meta

    @property
    def online(self) -> bool:
        return self.facts.online

    @property
    def since(self) -> int:
        return self.facts.since

    @property
    def skew(self) -> float | None:
        return self.facts.skew

    @property
    def cordoned(self) -> bool:
        return self.facts.cordoned

    @property
    def disabled(self) -> bool:
        return self.facts.disabled

    @property
    def refusal(self) -> str:
        return self.facts.refusal

    @property
    def turned_away(self) -> str:
        return self.facts.turned_away

    @property
    def gpu_problem(self) -> str:
        return self.facts.gpu_problem


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who holds the running booking, as the rights look at it."""

    holder_id: str
    participants: tuple[str, ...] = ()


class Viewer:
    """Turns facts into what one person may see of them."""

    def __init__(self, ctx: Context, actor: Actor, now: int, zone: tzinfo) -> None:
        self._ctx, self._actor, self._now, self._zone = ctx, actor, now, zone
        self._show = ctx.settings.show_holders

    def nobody(self) -> Viewer:
        """The same rights without a person: what is nobody's own."""
        return Viewer(self._ctx, Actor("", "", self._actor.role, "session"), self._now, self._zone)

    def booking(self, b: Held) -> Booking:
        held = _Holder(b.holder_id, b.participants)
        return Booking(
            b.id, b.channel, b.kind, b.model, b.preset, b.start, b.end, b.status_at(self._now), b.runs(self._now),
            b.holder if self._may_know(b.holder_id) else "", b.holder_id == self._actor.id, b.version,
            bool(may(self._actor, "reservation.change", held)), bool(may(self._actor, "channel.log", held)),
            b.base_url, b.loads_at, self._actor.id in b.participants, b.series, b.maintenance,
        )  # fmt: skip

    def row(self, c: ChannelFacts, bookings: list[Booking] | None = None) -> Row:
        if bookings is None:
            bookings = [self.booking(b) for b in c.bookings]
        said, seen, decision = c.said, c.seen, c.decision
        running = next((b for b in bookings if b.running), None)
        after = next((b for b in bookings if not b.running and b.start > self._now), None)
        model, preset, wanted = state_of.shown_model(said if said.phase != "unknown" else seen, decision)
        mine = running is not None and running.mine
        exclusive = running is not None and running.kind == "exclusive"
        own = _Holder(self._actor.id) if mine else None
        switching = said.phase in state_of.SWITCHING and decision.target and decision.target.identity != said.running
        return Row(
            anchor=c.anchor,
            name=c.name,
            node=c.node,
            gpus=c.gpus,
            pill=state_of.pill(said, exclusive),
            phase=said.phase,
            why=self._why(c),
            model=model,
            preset=preset,
            is_default=model is not None and (model, preset) == c.default,
            wanted=wanted,
            to_model=decision.target.model if switching and decision.target else None,
            in_flight=said.in_flight if said.phase in ("ready", "draining") else None,
            now=running,
            next=after,
            progress=c.progress,
            failure=said.failure,
            detail=said.detail,
            mine=mine,
            open_to_me=said.phase == "ready" and (running is None or mine or running.invited) and not exclusive,
            may_log=running is None or running.may_log,
            may_retry=said.failure is not None and bool(may(self._actor, "channel.retry", own)),
            gone=c.gone,
            cards=len(c.gpu_uuids),
        )

    def node(self, facts: NodeFacts, rows: list[Row]) -> NodeView:
        risk: list[Booking] = []
        if not facts.online:
            risk = [r.next for r in rows if r.next is not None and r.next.start < self._now + DAY_MS]
        return NodeView(facts, show.anchor(facts.name), tuple(risk), rows)

    def today(self, most: int) -> tuple[list[Booking], int]:
        """Everybody's bookings of the viewer's day, what is still to come first to be kept; and how many there are."""
        day = show.moment(self._now, self._zone).replace(hour=0, minute=0, second=0, microsecond=0)
        start, end = (round(d.timestamp() * 1000) for d in (day, day + timedelta(days=1)))
        with self._ctx.store.read() as db:
            rows = [
                r for r in reservations.page(db, self._now, 5000, start=start, end=end) if r.status in ("pending", *RAN)
            ]
            count = len(rows)
            if count > most:
                rows = [r for r in rows if r.ends_at > self._now][:most]
            places = channels.places(db, {r.channel_id for r in rows})
            names = users.names(db, [r.holder_id for r in rows])
        return [self._past(r, places.get(r.channel_id, ("", None))[0], names) for r in rows], count

    def _past(self, r: Reservation, channel: str, names: dict[str, str]) -> Booking:
        held = Held(
            r.id, channel, r.kind, r.model, r.preset, r.starts_at, r.ends_at, r.status, r.holder_id,
            names.get(r.holder_id, ""), tuple(r.participants or ()), r.version, "", None,
            r.series_id is not None, r.maintenance,
        )  # fmt: skip
        return self.booking(held)

    def _may_know(self, holder_id: str) -> bool:
        return bool(may(self._actor, "reservation.holder", HolderName(holder_id, self._show)))

    def _why(self, c: ChannelFacts) -> Markup:
        decision, said = c.decision, c.said
        shown = decision.reservation is not None and self._may_know(decision.reservation.holder_id)
        viewer = sentences.Viewer(self._actor.id, shown, lambda at: show.time_tag(at, self._now, self._zone))
        if said.phase == "gone":
            return sentences.gone()
        if said.phase == "unknown":
            return sentences.last_seen(c.seen, c.since, viewer.clock)
        if said.fallback and decision.target is not None:
            return sentences.fallback(decision.reservation, decision.target.model, viewer)
        by = c.override_by[1] if self._show != "admins" or self._actor.role == "admin" else None
        near = decision.until is not None and decision.until < self._now + DAY_MS
        if decision.why == "default" and not near:
            decision = Decision(decision.target, "default")
        return sentences.why(
            decision,
            viewer,
            running_model=said.running_model or "",
            override_by=by,
            override_until=c.override_until,
            waits=said.phase != "ready",
        )

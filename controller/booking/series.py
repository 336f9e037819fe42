"""Repeated bookings: each window is a booking of its own, made in one transaction, and judged by the same rules in the
same order as the preview. What is said before is what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from controller.booking import maintenance, people, refusals, steps
from controller.booking.act import Extras, new_row
from controller.booking.view import Holder, Place, View, in_the_way, look, taken
from controller.context import Context
from controller.notify import together
from controller.rights import Actor
from controller.said import say
from controller.scheduling.booking_rules import Booking, Problem, Standing, problems, standing
from controller.scheduling.policies import Taken
from controller.scheduling.repeats import Rule, Window, windows
from controller.store import reservations
from controller.store.tables import HOLDING, Reservation, Series
from controller.times import text_of

Scope = Literal["this", "following", "all"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A rule, how it is stored, and what becomes of windows that clash."""

    rule: Rule
    stored: dict[str, Any]
    skip: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One window as it was judged. `skipped`: it clashes, and the rest is made without it."""

    booking: Booking
    window: Window
    problems: tuple[Problem, ...]
    status: Standing
    clashes: tuple[Reservation, ...]
    skipped: bool = False

    @property
    def against(self) -> list[Problem]:
        return [p for p in self.problems if not p.overridable]


@dataclass(frozen=True, slots=True)
class Made:
    """What a repeated booking came to."""

    series: Series
    rows: list[Reservation]
    skipped: list[Occurrence]
    view: View


def judge(
    session: Any, ctx: Context, place: Place, booking: Booking, holder: Holder, actor: Actor, now: int, repeat: Repeat
) -> tuple[list[Occurrence], View]:
    """Every window of the rule in its order; those before it count among the hours that are taken. The number of
    statements does not depend on the number of windows. Raises RepeatError."""
    planned = windows(booking.start, booking.end, repeat.rule)
    wishes = [replace(booking, start=w.start, end=w.end) for w in planned]
    view = look(session, ctx.settings, place, wishes[0], now, holder)
    rows = refusals.overlapping(session, place, wishes, None)
    had = taken(session, view.policy, place.channel.id, holder.id, wishes[0].start, now)
    found = []
    for wish, window in zip(wishes, planned, strict=True):
        clashing = tuple(r for r in rows if refusals.clashes(wish, r))
        facts = replace(view.facts, conflicts=in_the_way(clashing), taken=had)
        against = problems(wish, None, actor.role, view.policy, facts, now)
        status = standing(wish, against, actor.role, view.policy)
        hard = {p.code for p in against if not p.requestable and not p.overridable}
        skipped = repeat.skip and hard == {"overlap"}
        found.append(Occurrence(wish, window, tuple(against), status, clashing, skipped))
        if status != "refused":
            had = (*had, Taken(wish.start, wish.end))
    return found, view


def create(
    ctx: Context, actor: Actor, now: int, channel: str, booking: Booking, extras: Extras, repeat: Repeat
) -> Made:
    """All of them, or all but those that clash where the wish says so. Raises Refused (409, 422), Forbidden, RepeatError."""
    wishes = [replace(booking, start=w.start, end=w.end) for w in windows(booking.start, booking.end, repeat.rule)]
    with steps.refusing(ctx, actor, now, channel, wishes) as session:
        place = steps.place_named(session, channel)
        holder = people.holder_of(session, actor, extras.holder)
        if booking.maintenance:
            maintenance.permit(actor, extras.holder)
            if extras.clear:
                for wish in wishes:
                    maintenance.make_way(session, actor, now, place, wish, extras.reason)
        steps.lock(session, ctx.settings, place, holder)
        judged, view = judge(session, ctx, place, booking, holder, actor, now, repeat)
        wanted = [o for o in judged if not o.skipped]
        _all_or_nothing(wanted)
        skipped = [text_of(o.booking.start) for o in judged if o.skipped]
        series = Series(rule={**repeat.stored, "skipped": skipped}, created_by=actor.id, created_at=now)
        session.add(series)
        session.flush()
        first = new_row(session, actor, now, place, wanted[0].booking, wanted[0].status, holder, extras, series.id)
        rows = [first, *(_copy(first, o, now) for o in wanted[1:])]
        session.add_all(rows)
        session.flush()
        for row in rows:
            steps.done(session, row, actor, now, "create", None, extras.reason)
        together.booked(session, rows, actor.id, now)
        if waiting := [r for r in rows if r.status == "pending"]:
            together.requested(session, waiting, now)
    return Made(series, rows, [o for o in judged if o.skipped], view)


def end(ctx: Context, actor: Actor, now: int, reservation_id: str, scope: Scope, reason: str) -> list[Reservation]:
    """Cancels (or ends, where it runs) this one's series from it on, or as a whole; what is over stays as it was."""
    with ctx.store.write() as session:
        row = steps.known(session, reservation_id)
        steps.owned(actor, row, reason)
        if row.series_id is None:
            raise refusals.unfit(
                "scope", "no_series", say("this booking is not one of a repeated booking; leave scope out")
            )
        rows = [
            r
            for r in reservations.of_series(session, row.series_id)
            if reservations.status_at(r, now) in HOLDING and (scope == "all" or r.starts_at >= row.starts_at)
        ]
        if not rows:
            raise refusals.unfit("scope", "nothing_left", say("nothing of this repeated booking is still to come"))
        for each in rows:
            steps.owned(actor, each, reason)
            values = steps.ended(each, actor, now)
            steps.write(session, each, values, actor, now, values["status"], reason, tell=False)
        together.ended(session, rows, actor.id, now, reason)
    return rows


def on_day(problem: Problem, window: Window) -> Problem:
    """The problem of one window, said of that window."""
    return replace(
        problem, text="%(at)s: " + problem.text, values={**problem.values, "at": text_of(window.start) or ""}
    )


def _all_or_nothing(wanted: Sequence[Occurrence]) -> None:
    if not wanted:
        raise refusals.Overlap
    refused = [o for o in wanted if o.status == "refused"]
    others = [on_day(p, o.window) for o in refused for p in o.against if p.code != "overlap"]
    if others:
        raise refusals.refused(others)
    if refused:
        raise refusals.Overlap


def _copy(first: Reservation, occurrence: Occurrence, now: int) -> Reservation:
    """Another window of the same booking."""
    names = ("channel_id", "kind", "model", "preset", "maintenance", "series_id", "holder_id", "booked_by", "note")
    return Reservation(
        **{name: getattr(first, name) for name in names},
        participants=list(first.participants),
        starts_at=occurrence.booking.start,
        ends_at=occurrence.booking.end,
        status=occurrence.status,
        created_at=now,
        approved_at=now if occurrence.status == "approved" else None,
        decided_by=None,
    )


def rule_of(session: Any, series_id: str | None) -> dict[str, Any] | None:
    """What was asked for."""
    row = session.get(Series, series_id) if series_id else None
    return dict(row.rule) if row is not None else None

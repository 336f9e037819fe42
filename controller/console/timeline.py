"""The timeline: which part of time is looked at, its page, and its live rows.

The page is a list a channel, which is the agenda of a phone and of who has no script; static/timeline.js lays the same
list out by time and makes it something to drag in. Laid out by instants, not by wall clock: a day of 23 or 25 hours is
as long as it is. No calendar library does it: those that have free resource timelines count in wall clock of 24-hour days,
cannot be dragged in from the keyboard, and bring table roles that assistive technology cannot follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from flask import Flask, render_template, request
from flask.typing import ResponseReturnValue
from flask_babel import get_locale

from controller.console import asking, language, live, shell, show, timeline_data
from controller.console.facts import ChannelFacts, NodeFacts
from controller.console.fleet_facts import fleet
from controller.console.kept import Kept
from controller.console.signed_in import actor_of, person
from controller.context import Context
from controller.rights import Actor

HOURS = {"half": 12, "day": 24, "week": 168, "list": 24}
TICK_HOURS = {"half": 1, "day": 2, "week": 12, "list": 2}
SNAP_MINUTES = {"half": 5, "day": 15, "week": 60, "list": 15}
FARTHEST = timedelta(days=3660)
HOUR_MS = 3_600_000
_rows, _whole = Kept(4_000), Kept(128)


@dataclass(frozen=True, slots=True)
class Range:
    """[start, end) of a view; `follows` = it begins a little before now and moves on with it."""

    view: str
    start: int
    end: int
    follows: bool
    zone: ZoneInfo

    def link(self, **changes: Any) -> str:
        """The address of this page with something changed."""
        args = {k: v for k, v in request.args.items() if k in ("view", "from", "node", "model", "mine")}
        args |= {k: v for k, v in changes.items() if v is not None}
        for name in [k for k, v in changes.items() if v is None]:
            args.pop(name, None)
        return "/timeline" + (f"?{urlencode(args)}" if args else "")

    def moved(self, halves: int) -> str:
        """`from` of the view that is so many halves (weeks: whole ones) later, on this zone's wall clock."""
        hours = HOURS[self.view] if self.view == "week" else HOURS[self.view] // 2
        return _wall(self.start, self.zone, hours * halves)

    @property
    def ticks(self) -> list[tuple[int, str]]:
        """Instants to label on the scale, and their words."""
        every = TICK_HOURS[self.view]
        found, at = [], _on_the_hour(self.start, self.zone)
        while at < self.end:
            local = show.moment(at, self.zone)
            if at >= self.start and local.hour % every == 0 and local.minute == 0:
                found.append((at, local.strftime("%H:%M")))
            at += 1_800_000
        return found

    @property
    def days(self) -> list[tuple[int, str]]:
        """The first instant and every midnight, with the day's name."""
        found = [(self.start, _day(self.start, self.zone))]
        local = show.moment(self.start, self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        for n in range(1, 9):
            at = _instant(local.replace(tzinfo=None) + timedelta(days=n), self.zone)
            if self.start < at < self.end:
                found.append((at, _day(at, self.zone)))
        return found

    @property
    def title(self) -> str:
        """Thu 19 – Fri 20 Nov 2026."""
        first, last = show.moment(self.start, self.zone), show.moment(self.end - 1, self.zone)
        if first.date() == last.date():
            return show.date(first, "EEE d MMM y")
        same = (first.year, first.month) == (last.year, last.month)
        if language.language_tag().startswith("zh"):  # the year comes first
            begin = show.date(first, "EEE d MMM y")
            end = show.date(last, "EEE d" if same else "EEE d MMM")
            return f"{begin} – {end}"
        begin = show.date(first, "EEE d" if same else "EEE d MMM")
        return f"{begin} – {show.date(last, 'EEE d MMM y')}"

    @property
    def offset(self) -> str:
        """UTC+8."""
        seconds = int((show.moment(self.start, self.zone).utcoffset() or timedelta()).total_seconds())
        sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
        return f"UTC{sign}{minutes // 60}" + (f":{minutes % 60:02d}" if minutes % 60 else "")


def register(app: Flask, ctx: Context) -> None:
    """/timeline and its live rows."""

    @asking.page(app, ctx, "/timeline")
    def page(actor: Actor) -> ResponseReturnValue:
        now = ctx.clock()
        span = range_of(now, language.chosen_zone())
        wanted = _wanted(span)
        made = _compose(ctx, actor, now, span, wanted)
        return render_template(
            "console/timeline.html",
            wanted=wanted,
            nodes=made.nodes,
            node_names=[n.name for n in fleet(ctx, now).nodes],
            models=made.models,
            span=span,
            parts=made.parts,
            hashes=live.hashes({}, made.parts),
            snap=SNAP_MINUTES[span.view],
            chips=_day_chips(now, span.zone),
            live_path="/timeline/rows?" + request.query_string.decode("ascii", "replace"),
        )

    @app.get("/timeline/rows")
    def timeline_rows() -> ResponseReturnValue:
        who = person()
        if who is None:
            return live.signed_out()
        actor, now = actor_of(who), ctx.clock()
        span = range_of(now, language.chosen_zone())
        made = _compose(ctx, actor, now, span, _wanted(span))
        return live.told(now, made.parts, made.marks, made.tag)


class Lane(NamedTuple):
    """What the page's frame needs of a row; the row itself is a part."""

    part: str
    full_name: str
    bookable: bool


class Composed(NamedTuple):
    """The page for one viewer: (node, its lanes) and all parts."""

    nodes: list[tuple[NodeFacts, list[Lane]]]
    models: tuple[str, ...]
    parts: dict[str, live.Piece]
    marks: dict[str, str]
    tag: str


def _compose(ctx: Context, actor: Actor, now: int, span: Range, wanted: timeline_data.Wanted) -> Composed:
    """A row is kept by what it is made of; the whole page while nothing of it has changed."""
    seen = fleet(ctx, now)
    found = timeline_data.sought(ctx, seen, now, wanted)
    words = (str(get_locale()), str(span.zone), show.moment(now, span.zone).toordinal(), now // HOUR_MS)
    rights = (actor.role == "admin", ctx.settings.show_holders)
    badges = shell.pieces(ctx, actor, now, (seen.revision, words[0]))
    key = (
        seen.serial,
        seen.bookings,
        seen.revision,
        wanted,
        words,
        rights,
        actor.id,
        tuple(m for m, _ in badges.values()),
    )

    def make() -> Composed:
        nodes: dict[str, list[Lane]] = {}
        parts: dict[str, live.Piece] = dict(badges)
        for node_id, c, booked in timeline_data.shown(seen, found, actor, wanted):
            mine = any(b.holder_id == actor.id for b in booked)
            row_key = (c.serial, booked, wanted.start, wanted.end, words, rights, actor.id if mine else "")
            part, piece, bookable = _rows.get(row_key, partial(_lane, ctx, actor, now, span, wanted, c, booked))
            parts[part] = piece
            nodes.setdefault(node_id, []).append(Lane(part, c.full_name, bookable))
        marks = {name: mark for name, (mark, _html) in parts.items()}
        return Composed(
            [(n, nodes[n.id]) for n in seen.nodes if n.id in nodes], found.models, parts, marks, live.tag_of(marks)
        )

    composed: Composed = _whole.get(key, make)
    return composed


def _lane(
    ctx: Context, actor: Actor, now: int, span: Range, wanted: timeline_data.Wanted, c: ChannelFacts, booked: Any
) -> tuple[str, live.Piece, bool]:
    row = timeline_data.row(ctx, actor, now, span.zone, wanted, c, booked)
    far = _far(now, span) if span.follows else span.end
    html = live.render("lane", row=row, now_ms=now, end_ms=wanted.end, far=far)
    return row.part, (live.part_hash(html), html), row.bookable


def range_of(now: int, zone: ZoneInfo) -> Range:
    """The range of the request's `view` and `from`; anything that cannot be read counts as not said."""
    view = request.args.get("view", "day")
    view = view if view in HOURS else "day"
    start = _said(request.args.get("from"), zone, now)
    follows = start is None
    if start is None:
        local = show.moment(now, zone)
        if view == "week":
            local = local.replace(hour=0)
        else:
            back = 1 if view == "half" else 2
            local = local.replace(hour=(local.hour // back) * back)
            if view in ("day", "list"):
                local = _earlier(local, 2)
        start = _instant(local.replace(minute=0, second=0, microsecond=0, tzinfo=None), zone)
        start = min(start, now)
    end = _instant(show.moment(start, zone).replace(tzinfo=None) + timedelta(hours=HOURS[view]), zone)
    return Range(view, start, end, follows, zone)


def _wanted(span: Range) -> timeline_data.Wanted:
    args = request.args
    return timeline_data.Wanted(
        span.start, span.end, args.get("node", "")[:63], args.get("model", "")[:512], args.get("mine") == "1"
    )


def _far(now: int, span: Range) -> int:
    """The agenda of a view that follows the time ends with the day."""
    local = show.moment(now, span.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return _instant(local + timedelta(days=1), span.zone)


def _day_chips(now: int, zone: ZoneInfo) -> list[tuple[str, str]]:
    """(from, words) of the next days, for phones; the first is today."""
    midnight = show.moment(now, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    days = [midnight + timedelta(days=n) for n in range(8)]
    return [(d.strftime("%Y-%m-%dT%H:%M"), show.date(d)) for d in days]


def _said(text: str | None, zone: ZoneInfo, now: int) -> int | None:
    try:
        local = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if local.tzinfo is not None or abs(local - show.moment(now, zone).replace(tzinfo=None)) > FARTHEST:
        return None
    return _instant(local, zone)


def _instant(local: datetime, zone: tzinfo) -> int:
    return round(local.replace(tzinfo=zone).timestamp() * 1000)


def _wall(at: int, zone: tzinfo, hours: int) -> str:
    return (show.moment(at, zone).replace(tzinfo=None) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M")


def _earlier(local: datetime, hours: int) -> datetime:
    return (local.replace(tzinfo=None) - timedelta(hours=hours)).replace(tzinfo=local.tzinfo)


def _on_the_hour(at: int, zone: tzinfo) -> int:
    local = show.moment(at, zone)
    return at - (local.minute * 60 + local.second) * 1000 - local.microsecond // 1000


def _day(at: int, zone: tzinfo) -> str:
    return show.date(show.moment(at, zone), "EEE d MMM")

"""The overview's live parts as HTML, each kept as long as what it is made of is the same.

A row is kept by its channel's serial, the language, the zone and day (of which the words of times depend), and by the
viewer only where the viewer has a part in it. So fifty open consoles share nearly all of what is rendered.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import tzinfo
from typing import Any, NamedTuple

from flask_babel import get_locale

from controller.console import live, shell, show
from controller.console.facts import ChannelFacts, Fleet
from controller.console.fleet_facts import fleet
from controller.console.kept import Kept
from controller.console.overview import Overview
from controller.console.viewer import Row, Viewer
from controller.context import Context
from controller.rights import Actor

SHOWN_TODAY = 40
FIRST_ROWS = 48  # some three screens


_rows, _pieces, _commons, _composed = Kept(6_000), Kept(2_000), Kept(32), Kept(256)


class Composed(NamedTuple):
    """All parts of the page for one viewer; `tag` names this set of them."""

    parts: dict[str, live.Piece]
    marks: dict[str, str]
    tag: str
    view: Overview


class _Common(NamedTuple):
    """What viewers without a part in any booking have in common."""

    rows: dict[str, live.Piece]
    groups: dict[str, tuple[str, ...]]
    trouble: dict[str, Row]


def compose(ctx: Context, actor: Actor, now: int, zone: tzinfo) -> Composed:
    """The parts for a viewer: what is common, with their own rows in place of some."""
    seen, viewer = fleet(ctx, now), Viewer(ctx, actor, now, zone)
    admin, language = actor.role == "admin", str(get_locale())
    frame = (language, str(zone), show.moment(now, zone).toordinal(), admin, ctx.settings.show_holders)
    badges = shell.pieces(ctx, actor, now, (seen.revision, language))
    loads = tuple(
        b.loads_at is not None and b.loads_at > now for c in seen.people.get(actor.id, ()) for b in c.bookings
    )
    key = (seen.serial, seen.bookings, frame, actor.id, loads, tuple(mark for mark, _ in badges.values()))
    found: Composed = _composed.get(key, lambda: _compose(seen, viewer, actor, frame, badges, now, zone))
    return found


def first(made: Composed) -> tuple[dict[str, str], str]:
    """What the page itself holds (name -> mark; its first rows, and all that is no row) and the tag of that. The browser
    fetches the rest with its first poll, at once: a page of hundreds of channels begins to show as soon as a small one."""
    rows = [anchor for node in made.view.nodes for anchor in node.anchors]
    later = set(rows[FIRST_ROWS:])
    shown = {name: mark for name, mark in made.marks.items() if name not in later}
    return shown, live.sent(shown)


def _compose(
    seen: Fleet, viewer: Viewer, actor: Actor, frame: Hashable, badges: dict[str, live.Piece], now: int, zone: tzinfo
) -> Composed:
    common: _Common = _commons.get((seen.serial, frame), lambda: _make_common(seen, viewer, frame, now))
    rows, groups, trouble = common
    if own := seen.people.get(actor.id):
        rows, groups, trouble = dict(rows), dict(groups), dict(trouble)
        for c in own:
            rows[c.anchor], groups[c.anchor], row = _row(frame, viewer, actor.id, c, now)
            if c.anchor in trouble:
                trouble[c.anchor] = row
    counts = {"": len(groups), "ready": 0, "open": 0, "busy": 0, "attention": 0}
    for several in groups.values():
        for group in several:
            counts[group] += 1
    views = [viewer.node(n, [trouble[c.anchor] for c in n.channels if c.anchor in trouble]) for n in seen.nodes]
    mine = [viewer.booking(b) for c in own or () for b in c.bookings if b.holder_id == actor.id and not b.maintenance]
    view = Overview(now, seen.until, zone, views, sorted(mine, key=lambda b: b.start), [])
    loads = tuple(b.loads_at is not None and b.loads_at > now for b in view.yours)
    alarms = tuple((r.anchor, r.phase, r.failure, r.detail) for r in trouble.values())
    parts = {
        "chips": _piece("chips", frame, tuple(counts.items()), counts=counts),
        "yours": _piece("yours", frame, (tuple(view.yours), loads), view=view),
        "alerts": _piece("alerts", frame, (tuple(views), alarms), view=view),
        "today": _pieces.get(("today", seen.bookings, actor.id, frame), lambda: _today(viewer, view, counts)),
        **{f"head-{one.anchor}": _piece("node", frame, one, node=one) for one in views},
        **rows,
        **badges,
    }
    marks = {name: mark for name, (mark, _html) in parts.items()}
    return Composed(parts, marks, live.tag_of(marks), view)


def _make_common(seen: Fleet, viewer: Viewer, frame: Hashable, now: int) -> _Common:
    made = {c.anchor: _row(frame, viewer, "", c, now) for c in seen.channels}
    return _Common(
        {anchor: piece for anchor, (piece, _, _) in made.items()},
        {anchor: groups for anchor, (_, groups, _) in made.items()},
        {anchor: row for anchor, (_, groups, row) in made.items() if "attention" in groups},
    )


def _row(
    frame: Hashable, viewer: Viewer, whose: str, c: ChannelFacts, now: int
) -> tuple[live.Piece, tuple[str, ...], Row]:
    """`whose`: the viewer, where the viewer has a part in it. For nobody's eyes it is made without a person."""

    def make() -> tuple[live.Piece, tuple[str, ...], Row]:
        row = (viewer if whose else viewer.nobody()).row(c)
        return _marked(live.render("row", row=row, now_ms=now)), tuple(row.groups.split()), row

    found: tuple[live.Piece, tuple[str, ...], Row] = _rows.get((c.serial, whose, frame), make)
    return found


def _today(viewer: Viewer, view: Overview, counts: dict[str, int]) -> live.Piece:
    view.today, view.today_count = viewer.today(SHOWN_TODAY)
    return _marked(live.render("today", view=view, counts=counts))


def _piece(name: str, frame: Hashable, key: Hashable, **values: Any) -> live.Piece:
    found: live.Piece = _pieces.get((name, frame, key), lambda: _marked(live.render(name, **values)))
    return found


def _marked(html: str) -> live.Piece:
    return live.part_hash(html), html

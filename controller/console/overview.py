"""What the overview shows to one viewer, as plain data, out of the facts that everybody shares (facts.py, viewer.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo

from controller.console.fleet_facts import fleet
from controller.console.viewer import Booking, NodeView, Row, Viewer
from controller.context import Context
from controller.rights import Actor

MAX_TODAY = 200


@dataclass(slots=True)
class Overview:
    """The whole page. `yours` are the viewer's coming bookings, `today` everybody's of the viewer's day (`today_count` of
    them in all). Before `until` it says the same, but for what ticks, unless something is changed."""

    now: int
    until: int
    zone: tzinfo
    nodes: list[NodeView]
    yours: list[Booking]
    today: list[Booking]
    today_count: int = 0
    by_channel: dict[str, list[Booking]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for node in self.nodes for row in node.rows]

    @property
    def has_default(self) -> bool:
        """Whether any channel runs something while nobody has booked it."""
        return any(c.default[0] for node in self.nodes for c in node.facts.channels)

    def count(self, group: str) -> int:
        return sum(group in row.groups.split() for row in self.rows)


def build(ctx: Context, actor: Actor, now: int, zone: tzinfo, only: tuple[str, str] | None = None) -> Overview:
    """The overview as `actor` may see it; `only` = (node, channel): nothing but that one, and nothing of the day."""
    seen, viewer = fleet(ctx, now), Viewer(ctx, actor, now, zone)
    nodes: list[NodeView] = []
    by_channel: dict[str, list[Booking]] = {}
    for node in seen.nodes:
        wanted = [c for c in node.channels if only is None or (node.name, c.name) == only]
        if not wanted:
            continue
        for c in wanted:
            by_channel[c.full_name] = [viewer.booking(b) for b in c.bookings]
        nodes.append(viewer.node(node, [viewer.row(c, by_channel[c.full_name]) for c in wanted]))
    yours = sorted((b for found in by_channel.values() for b in found if b.mine), key=lambda b: b.start)
    shown, count = ([], 0) if only else viewer.today(MAX_TODAY)
    return Overview(now, seen.until, zone, nodes, yours, shown, count, by_channel)

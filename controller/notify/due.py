"""What is to be told by now, from how things are: bookings, nodes' last words, and the clock that is given.

Level-triggered: nothing is remembered but what was told (by the events' ids), so that a controller that was down tells
what still matters and leaves out what does not. Everything here only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from controller.booking import lost
from controller.booking.draining import OFFERED_FOR
from controller.context import Context
from controller.notify import due_cards, due_nodes, due_times
from controller.notify.due_cards import Pids
from controller.notify.due_scene import Booked, Due, Scene


class Look(Scene):
    """One look at one instant. `since`: when this controller began to look; `pids`: what was seen on a bare card while its
    booking ran, by booking."""

    def __init__(self, session: Session, ctx: Context, now: int, since: int, pids: Pids) -> None:
        super().__init__(session, ctx, now, since)
        self._pids = pids

    def events(self, back: bool = True) -> Iterator[Due]:
        """Everything, told already or not. `back`: with the nodes that are back."""
        for booked in self.bookings:
            yield from due_times.times(self, booked)
            yield from due_times.ready(self, booked)
            yield from due_cards.soon(self, booked)
        yield from due_cards.left(self, self._pids)
        yield from due_nodes.lost(self)
        if back:
            yield from due_nodes.back(self)

    def offers(self, dues: Iterable[Due]) -> dict[str, list[dict[str, Any]]]:
        """Other channels for the bookings of these that may need one, by booking. Of many at once only for the first: in an
        outage of half a fleet everybody is to hear of it at once, and the page of each booking offers them as well."""
        concerned = {due.without.row.id: due.without for due in dues if due.without}
        return {i: self.others(booked) for i, booked in islice(concerned.items(), OFFERED_FOR)}

    def connected(self) -> frozenset[tuple[str, int | None]]:
        """The nodes that are there, and since when: something is back only where this has changed."""
        return frozenset((n.name, n.last_seen_at) for n in self.nodes if self.ctx.live.node(n.name).online)

    def running_cards(self) -> dict[str, frozenset[int]]:
        """Other people's processes on the cards of running exclusive bookings, by booking."""
        cards = [b for b in self.bookings if b.row.kind == "exclusive" and b.row.starts_at <= self.now]
        return {b.row.id: frozenset(p.pid for p in self.processes(b)) for b in cards}

    def problems(self) -> dict[str, str]:
        """What is wrong with the place of each of these bookings, in words; empty: nothing."""
        away = {node.id for node in self.nodes if self.lost_since(node) is not None}
        return {b.row.id: self._problem(b, b.node.id in away) for b in self.bookings}

    def _problem(self, booked: Booked, away: bool) -> str:
        row, node = booked.row, booked.node
        if away:
            return lost.no_contact(node.name)
        drained = node.drain_until is not None and self.now < row.starts_at and lost.closed(node, row.starts_at)
        return lost.drained(node) if drained else ""

"""Goes round every few seconds and tells what has come due (due.py), and who waits for a slot that is free now.

A thread of its own, on the controller that leads: only there are the nodes' last words first hand. What was told is in
the database under the event's id, so that a restart, or another leader, tells nothing twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import update

from controller.booking import draining
from controller.context import Context
from controller.notify.due import Look
from controller.notify.due_scene import Due
from controller.notify.inbox import offered
from controller.notify.tell import Event, tell
from controller.notify.watching import fitting, tell_free
from controller.store import notifications, watches
from controller.store.session import waits
from controller.store.tables import Reservation

log = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0  # many commits, one round
REMEMBERED = 20_000
WATCHES_MS = 60_000  # a watch is looked at so often even if no booking changes: nodes come and go


class Rounds:
    """`leads()`: whether this controller does. `step` is one round."""

    def __init__(self, ctx: Context, leads: Callable[[], bool] = lambda: True) -> None:
        self._ctx, self._leads = ctx, leads
        self._woken, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._since: int | None = None  # when this controller began to lead
        self._told: set[str] = set()
        self._pids: dict[str, frozenset[int]] = {}
        self._connected: frozenset[tuple[str, int | None]] | None = None
        self._bookings_changed, self._watches_at = True, 0

    def start(self) -> None:
        self._ctx.store.on_commit(self._committed)
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        self._end.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def step(self) -> int:
        """Tells what is due now; how many events were told."""
        now = self._ctx.clock()
        if not self._leads():
            self._since = None
            return 0
        if self._since is None:
            self._since, self._bookings_changed, self._connected = now, True, None
            self._told.clear()
        for node in draining.over(self._ctx, now):
            log.info("maintenance is over: the node takes bookings again node=%s", node)
        return self._due(now) + self._watched(now)

    def _run(self) -> None:
        while not self._end.is_set():
            self._woken.clear()
            try:
                self.step()
            except Exception as err:
                if not waits(log, "what is to be told waits", err):
                    log.exception("what is to be told could not be looked at; trying again")
                self._bookings_changed = True
            self._woken.wait(self._ctx.settings.tick_seconds)
            self._end.wait(PAUSE_SECONDS)

    def _committed(self, channel_ids: frozenset[str]) -> None:
        if channel_ids:
            self._bookings_changed = True
            self._woken.set()

    def _due(self, now: int) -> int:
        since = self._since if self._since is not None else now
        with self._ctx.store.read() as session:
            look = Look(session, self._ctx, now, since, self._pids)
            connected = look.connected()
            fresh = self._untold(session, list(look.events(connected != self._connected)))
            offers = look.offers(fresh)
            self._pids |= look.running_cards()
            problems = look.problems()
            flags = {b.row.id: problems[b.row.id] for b in look.bookings if b.row.problem != problems[b.row.id]}
        if len(self._pids) > REMEMBERED:
            self._pids.clear()
        if not fresh and not flags:
            self._connected = connected
            return 0
        told = 0
        with self._ctx.store.write() as session:
            for booking, text in flags.items():
                session.execute(update(Reservation).where(Reservation.id == booking).values(problem=text))
            wanted = {due.event.id for due in fresh}
            again = Look(session, self._ctx, now, since, self._pids)  # as it is now that nobody else writes
            for due in self._untold(session, [d for d in again.events() if d.event.id in wanted]):
                tell(session, _offering(due, offers), due.people, shared=due.shared)
                told += 1
                log.info("told kind=%s subject=%s people=%d", due.event.kind, due.event.subject, len(due.people))
        self._connected = connected
        return told

    def _untold(self, session, dues: list[Due]) -> list[Due]:
        """Those that nobody has been told of yet."""
        new = [d for d in dues if d.event.id not in self._told]
        if not new:
            return []
        known = notifications.known(session, {d.event.id for d in new})
        if len(self._told) > REMEMBERED:
            self._told.clear()
        self._told |= known
        return [d for d in new if d.event.id not in known]

    def _watched(self, now: int) -> int:
        """Who waits for a slot: looked at when something has changed, and once a minute."""
        if not self._bookings_changed and now - self._watches_at < WATCHES_MS:
            return 0
        self._bookings_changed, self._watches_at = False, now
        with self._ctx.store.read() as session:
            waiting = watches.open_ones(session, now)
            free_now = [w.id for w in waiting if fitting(session, self._ctx, w, now)]
        told = 0
        for watch_id in free_now:
            with self._ctx.store.write() as session:
                told += tell_free(session, self._ctx, watch_id, now)
        return told


def _offering(due: Due, offers: Mapping[str, list[dict[str, Any]]]) -> Event:
    """The event with the channels that its booking could move to."""
    if due.without is None:
        return due.event
    return replace(due.event, facts=due.event.facts | offered(offers.get(due.without.row.id)))

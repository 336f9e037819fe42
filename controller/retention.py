"""What is pruned nightly: audit, usage, load history, what channels did, engines' logs, notices and messages, each by its
own SLOTSERVE_RETAIN_DAYS_*.

Small transactions, so that nobody waits for a long one. Reservations, people and presets are history and stay; so does a
message that still waits, and the state that a channel was in when the kept time begins.

What is deleted is gone, and a clock can be wrong: the instant from which the days are counted back is kept in the database
and goes on by two days a night at the most. A clock that has jumped far ahead costs two days of history before somebody
has seen it (and nothing by a restart); after a long pause the pruning catches up within as many nights.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, delete, exists, or_, select
from sqlalchemy.orm import aliased

from controller import usage_days
from controller.fleet.logs import LogStore
from controller.settings import Settings
from controller.store import state_days
from controller.store import usage as usage_store
from controller.store.guard import changed
from controller.store.session import Store, waits
from controller.store.tables import (
    Audit,
    ChannelState,
    Command,
    JoinToken,
    Leader,
    Load,
    Notification,
    Outbox,
    SecretLink,
    SlotWatch,
    Usage,
    WebSession,
)

log = logging.getLogger(__name__)
DAY_MS = 86_400_000
BATCH = 500
HOUR_OF_NIGHT = 3  # in the machine's own time zone
FIRST_SECONDS = 300.0  # after a start: a controller that never runs at night prunes as well
STEP_MS = 2 * DAY_MS


def prune(store: Store, logs: LogStore | None, settings: Settings, now: int) -> dict[str, int]:
    """Removes what is older than its days; how many rows (launches, for logs) of each kind went."""
    usage = now - settings.retain_days_usage * DAY_MS
    usage -= usage % DAY_MS  # whole days, so that their sums go with them
    audit, outbox = now - settings.retain_days_audit * DAY_MS, now - settings.retain_days_outbox * DAY_MS
    states = now - settings.retain_days_states * DAY_MS
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("audit", Audit, Audit.at < audit),
        ("usage", Usage, Usage.at < usage),
        ("loads", Load, Load.at < now - settings.retain_days_loads * DAY_MS),
        ("states", ChannelState, _followed(states)),
        ("outbox", Notification, Notification.at < outbox),
        ("messages", Outbox, and_(Outbox.created_at < outbox, Outbox.state != "waiting")),
        ("watches", SlotWatch, SlotWatch.not_after < outbox),
        ("commands", Command, Command.deadline < audit),
        ("tokens", JoinToken, JoinToken.expires_at < audit),
        ("links", SecretLink, SecretLink.revoked_at < audit),
        ("sessions", WebSession, or_(WebSession.seen_at < audit, WebSession.ended_at < audit)),
    )
    gone = {kind: _remove(store, table, where) for kind, table, where in kinds}
    with store.write() as session:
        usage_store.forget_days(session, usage)
        state_days.prune(session, states)
    if logs is not None:
        gone["logs"] = logs.prune(now - settings.retain_days_logs * DAY_MS)
    return gone


def counted_from(store: Store, now: int, after_start: bool) -> int | None:
    """The instant from which the days are counted back, as far as the clock can be believed; None: nothing is to be pruned
    yet. It is kept, as every run's beginning."""
    with store.write() as session:
        row = session.get(Leader, 1)
        if row is None:
            return None
        before = row.pruned_at
        if before is None or now <= before + STEP_MS:
            row.pruned_at = now
            return None if before is None else now
        ahead = (now - before) / DAY_MS
        if after_start:
            log.warning("the clock is %.1f days after the last pruning: nothing is pruned before the night", ahead)
            return None
        row.pruned_at = before + STEP_MS
    log.warning(
        "the clock is %.1f days after the last pruning, and may have jumped: two days are pruned a night", ahead
    )
    return before + STEP_MS


def next_night(now: int) -> int:
    """The next three o'clock (local time) after `now`, in ms."""
    here = datetime.fromtimestamp(now / 1000).astimezone()
    night = here.replace(hour=HOUR_OF_NIGHT, minute=0, second=0, microsecond=0, tzinfo=None)
    while (at := round(night.timestamp() * 1000)) <= now:
        night += timedelta(days=1)
    return at


class Nightly:
    """A thread of its own that prunes soon after the start and every night."""

    def __init__(self, store: Store, logs: LogStore | None, settings: Settings, clock: Callable[[], int]) -> None:
        self._store, self._logs, self._settings, self._clock = store, logs, settings, clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _run(self) -> None:
        wait, after_start = FIRST_SECONDS, True
        while not self._end.wait(wait):
            try:
                counted = counted_from(self._store, self._clock(), after_start)
                if counted is not None:
                    gone = prune(self._store, self._logs, self._settings, counted)
                    log.info("pruned %s", " ".join(f"{kind}={count}" for kind, count in gone.items()))
                usage_days.add_up(self._store, self._settings, self._clock(), self._end)
            except Exception as err:
                if not waits(log, "pruning waits for the next night", err):
                    log.exception("pruning failed; the next night tries again")
            now, after_start = self._clock(), False
            wait = max(60.0, (next_night(now) - now) / 1000)


def _followed(before: int) -> Any:
    """States that another one followed before that instant: the last one says what the channel did at it."""
    later = aliased(ChannelState)
    after = or_(later.at > ChannelState.at, and_(later.at == ChannelState.at, later.id > ChannelState.id))
    followed = exists().where(later.channel_id == ChannelState.channel_id, after, later.at <= before)
    return and_(ChannelState.at < before, followed)


def _remove(store: Store, table: Any, where: Any) -> int:
    total = 0
    while True:
        with store.read() as session:
            ids = list(session.scalars(select(table.id).where(where).limit(BATCH)))
        if not ids:
            return total
        with store.write() as session:
            total += changed(session, delete(table).where(table.id.in_(ids)))

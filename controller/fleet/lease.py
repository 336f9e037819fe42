"""Who plans: one controller at a time, by one row of the database and an epoch that grows with each taking.

PostgreSQL: the leader writes the row at a third of the lease's length, by the database's clock; it stops leading by
itself at two thirds without a success, and another may take the row only when the whole length has passed. So two never
lead at once, whatever the network does, and a write of the planner names its epoch as well (controller/fleet/
planner_store.py). SQLite: nobody else can be there; the epoch grows at each start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from controller.fleet import planner_store
from controller.fleet.threads import Threads
from controller.store.session import Store

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks of a controller that does not lead
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_RENEW = f"UPDATE leader SET renewed_at = {_NOW} WHERE id = 1 AND holder = :me AND epoch = :epoch RETURNING epoch"
_TAKE = (
    f"UPDATE leader SET epoch = epoch + 1, holder = :me, renewed_at = {_NOW}, fleet_address = :fleet "
    f"WHERE id = 1 AND (holder = '' OR renewed_at + :lease <= {_NOW}) RETURNING epoch"
)
_LEAP = (
    "UPDATE leader SET epoch = :above, holder = '' WHERE id = 1 AND holder = :me AND epoch = :epoch AND epoch <= :above"
)
_GIVE = "UPDATE leader SET holder = '' WHERE id = 1 AND holder = :me AND epoch = :epoch"
_WHO = "SELECT epoch, holder, fleet_address FROM leader WHERE id = 1"


@dataclass(frozen=True, slots=True)
class Seen:
    """The row as last read. `holder` is empty where nobody leads; `fleet_address`: where the leader's agents go."""

    epoch: int = 0
    holder: str = ""
    fleet_address: str = ""


class Leads(Protocol):
    """What leading means to the process that does it; all on the fleet's loop."""

    async def gained(self, epoch: int) -> None: ...

    async def lost(self, why: str) -> None: ...


def lasts_until(asked_at: float, seconds: float) -> float:
    """Until when (on the clock of `asked_at`) a lease that was asked for then may be relied on: two thirds of it."""
    return asked_at + seconds * 2 / 3


class Lease:
    """One a process. `holds()` may be asked from any thread; `run()` on the loop.

    `fleet_address()`: where agents find this controller. `seconds`: the whole length. `unfit()`: why this controller
    must not begin to lead, in words, empty when it may; asked in a worker thread before each attempt (not on SQLite).
    """

    def __init__(
        self,
        store: Store,
        seconds: float,
        fleet_address: Callable[[], str],
        clock: Callable[[], int],
        monotonic: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        unfit: Callable[[], str] = str,
    ) -> None:
        self._store, self._seconds, self._fleet_address, self._clock = store, seconds, fleet_address, clock
        self._monotonic, self._unfit, self._why_unfit = monotonic, unfit, ""
        self._me = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._until = float("-inf")  # by CLOCK_BOOTTIME: a machine that slept has not led meanwhile
        self._threads = Threads(4, "lease")
        self.epoch = 0
        self.seen = Seen()
        self.looked = asyncio.Event()  # at least once, whatever came of it

    def holds(self) -> bool:
        """Whether this process leads now; false from the very instant at which another may begin to."""
        return self._monotonic() < self._until

    @property
    def leader_address(self) -> str:
        """Where the leader's agents go; empty while nobody is known to lead."""
        return self.seen.fleet_address if self.seen.holder else ""

    def outgrow(self, epoch: int) -> bool:
        """A node follows plans of this epoch, which are not ours, and by the database nobody but us has led since: it is
        older than the node (restored from a backup). The row takes that epoch and is given back, so that the next taking
        goes beyond it; False where somebody else leads after all. In a worker thread; not for SQLite."""
        with self._brief() as connection:
            values = {"me": self._me, "epoch": self.epoch, "above": epoch}
            leapt = connection.execute(text(_LEAP), values).rowcount == 1
        if leapt:
            self._until = float("-inf")
        return leapt

    async def run(self, leads: Leads) -> None:
        """Takes the lease when it is free, keeps it, gives it back when cancelled."""
        try:
            while True:
                if self.holds():
                    await self._keep(leads)
                else:
                    await self._try(leads)
        finally:
            if self.holds():
                await asyncio.shield(self._threads.run(self._give_back))

    async def _try(self, leads: Leads) -> None:
        asked = self._monotonic()
        try:
            epoch = await self._threads.run(self._take)
        except (SQLAlchemyError, OSError) as err:
            log.warning("the lease cannot be looked at: no plan is made here meanwhile error=%r", _first_line(err))
            epoch = None
        if epoch is None:
            self.looked.set()
            await asyncio.sleep(min(LOOK_SECONDS, self._seconds / 3))
            return
        self.epoch = epoch
        self._until = float("inf") if self._store.sqlite else lasts_until(asked, self._seconds)
        log.info("leading epoch=%s", epoch)
        await leads.gained(epoch)
        self.looked.set()

    async def _keep(self, leads: Leads) -> None:
        """Until it is lost. Renewing never waits for longer than what is left."""
        while True:
            await asyncio.sleep(self._seconds / 3 if self._until != float("inf") else 3600)
            if self._until == float("inf"):
                continue
            why = "the database has not answered in time"
            while (left := self._until - self._monotonic()) > 0:
                asked = self._monotonic()
                try:
                    async with asyncio.timeout(left):
                        mine = await self._threads.run(self._renew)
                except (SQLAlchemyError, OSError, TimeoutError) as err:
                    log.warning("the lease was not renewed; trying again left=%.1f error=%r", left, _first_line(err))
                    await asyncio.sleep(min(LOOK_SECONDS, max(0.0, self._until - self._monotonic())))
                    continue
                if mine:
                    self._until = lasts_until(asked, self._seconds)
                else:
                    self._until, why = float("-inf"), "another controller has taken over"
                break
            if not self.holds():
                self._until = float("-inf")
                log.warning("no longer leading epoch=%s why=%r", self.epoch, why)
                await leads.lost(why)
                return

    # --- in a worker thread -----------------------------------------------------------------------------------------

    def _take(self) -> int | None:
        if self._store.sqlite:
            return planner_store.next_epoch(self._store, self._clock())
        epoch, lease, before = None, round(self._seconds * 1000), self._why_unfit
        self._why_unfit = self._unfit()
        if self._why_unfit and self._why_unfit != before:
            log.warning("this controller follows and does not lead why=%r", self._why_unfit)
        with self._brief() as connection:
            if not self._why_unfit:
                row = connection.execute(text(_TAKE), {"me": self._me, "lease": lease, "fleet": self._fleet_address()})
                epoch = row.scalar_one_or_none()
            self.seen = Seen(*connection.execute(text(_WHO)).one())
        return epoch

    def _renew(self) -> bool:
        with self._brief() as connection:
            mine = connection.execute(text(_RENEW), {"me": self._me, "epoch": self.epoch}).scalar_one_or_none()
            self.seen = Seen(*connection.execute(text(_WHO)).one())
        return mine is not None

    def _give_back(self) -> None:
        self._until = float("-inf")
        if self._store.sqlite:
            return
        with self._brief() as connection:
            connection.execute(text(_GIVE), {"me": self._me, "epoch": self.epoch})
        log.info("the lease is given back epoch=%s", self.epoch)

    @contextmanager
    def _brief(self) -> Iterator[Connection]:
        """A transaction that raises no revision and waits for nobody long."""
        with self._store.engine.begin() as connection:
            connection.execute(text(f"SET LOCAL statement_timeout = {max(1, round(self._seconds * 1000 / 3))}"))
            yield connection


def _first_line(err: Exception) -> str:
    return str(err).strip().splitlines()[0] if str(err).strip() else type(err).__name__

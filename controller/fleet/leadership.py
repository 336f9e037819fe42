"""What this controller does while it leads, and what while it does not: plans and speaks with agents, or follows.

Leading: the planner runs, agents' streams are taken. Not leading: agents are sent on to the leader, and what is live
comes from it (controller/fleet/peers.py), so that every controller serves the console, REST and the command line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from controller.fleet.lease import Lease

log = logging.getLogger(__name__)


class Plans(Protocol):
    """The planner."""

    def begin(self, epoch: int) -> None: ...

    async def run(self) -> None: ...


class Streams(Protocol):
    """The service that holds the agents' streams."""

    async def run(self) -> None: ...

    def end_all(self, why: str) -> None: ...


class Follows(Protocol):
    """The follower of another controller's leadership."""

    async def run(self) -> None: ...


class Leadership:
    """One a process; `run` on the fleet's loop until cancelled. A task of a term that ends by itself ends `run`."""

    def __init__(
        self,
        lease: Lease,
        plans: Plans,
        streams: Streams,
        follower: Follows | None = None,
        on_change: Callable[[bool], None] = lambda _leads: None,
    ) -> None:
        self.lease, self._plans, self._streams, self._follower = lease, plans, streams, follower
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[None] | None = None

    async def run(self) -> None:
        self._died = asyncio.get_running_loop().create_future()
        keeps = asyncio.create_task(self.lease.run(self), name="lease")
        if self._follower and not self.lease.holds():
            self._start(self._follower.run(), "follower")
        try:
            done, _ = await asyncio.wait({keeps, self._died}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()  # raises what ended it
        finally:
            keeps.cancel()  # gives the lease back
            await asyncio.gather(keeps, return_exceptions=True)
            self._streams.end_all("this controller is stopping")
            await self._end_tasks()

    # --- what the lease calls ---------------------------------------------------------------------------------------

    async def gained(self, epoch: int) -> None:
        self._plans.begin(epoch)  # before anything is awaited: whoever asks for a plan from now on gets this term's
        await self._end_tasks()
        self._on_change(True)
        self._start(self._plans.run(), "planner")
        self._start(self._streams.run(), "fleet service")

    async def lost(self, why: str) -> None:
        self._streams.end_all(f"this controller no longer leads: {why}")
        await self._end_tasks()
        self._on_change(False)
        if self._follower:
            self._start(self._follower.run(), "follower")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.add(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks or task.cancelled() or self._died is None or self._died.done():
            return
        self._died.set_exception(task.exception() or RuntimeError(f"{task.get_name()} ended by itself"))

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Looks at the store for what connected nodes are to hear of: keys that changed, commands, their own removal.

Woken from any thread, and once a second anyway: one revision number says whether there is anything to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from controller.fleet import keys
from controller.fleet.commands import Commands, Due
from controller.fleet.records import Records
from controller.fleet.sessions import Sessions, message
from controller.store.session import Store, waits
from protos import fleet_pb2

log = logging.getLogger(__name__)
POLL_SECONDS = 1.0


class Watch:
    """One a process; `run` on the loop."""

    def __init__(
        self, store: Store, records: Records, commands: Commands, sessions: Sessions, clock: Callable[[], int]
    ) -> None:
        self._store, self._records, self._commands, self._sessions = store, records, commands, sessions
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = asyncio.Event()
        self._keys_due = False

    def look(self, *, keys: bool = False) -> None:
        """Something has changed. Thread-safe."""

        def on_loop() -> None:
            self._keys_due = self._keys_due or keys
            self._due.set()

        if self._loop and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between: the next start looks anyway
                self._loop.call_soon_threadsafe(on_loop)

    async def run(self) -> None:
        """Until cancelled."""
        self._loop = asyncio.get_running_loop()
        revision = -1
        while True:
            keys_due, self._keys_due = self._keys_due, False
            self._due.clear()
            try:
                newest = await asyncio.to_thread(self._store.revision)
                if keys_due or newest != revision:
                    await self._send_keys()
                    await self._end_removed()
                    revision = newest
                await self._send_commands()
            except Exception as err:
                if not waits(log, "keys and commands wait", err):
                    log.exception("looking for keys and commands failed; trying again")
                self._keys_due = self._keys_due or keys_due
                await asyncio.sleep(POLL_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._due.wait()

    async def _send_keys(self) -> None:
        table = await asyncio.to_thread(keys.load_table, self._store, self._clock())
        made: dict[int, fleet_pb2.KeyTable | None] = {}  # most sessions hold the same table: compared once
        for session in self._sessions.all():
            if id(session.keys) not in made:
                made[id(session.keys)] = keys.changes(session.keys, table)
            change = made[id(session.keys)]
            session.keys = table
            if change is not None:
                session.send(lambda change=change: message(keys=change))  # type: ignore[misc]

    async def _end_removed(self) -> None:
        connected = {s.node: s.enrolment for s in self._sessions.all()}
        if not connected:
            return
        for name in await asyncio.to_thread(self._records.removed, connected):
            session = self._sessions.get(name)
            if session and session.enrolment == connected[name]:
                session.end("this node has been removed, disabled, or enrolled anew")

    async def _send_commands(self) -> None:
        connected = {s.node for s in self._sessions.all()}
        for due in await asyncio.to_thread(self._commands.take, connected, self._clock()):
            if session := self._sessions.get(due.node):
                session.send(lambda due=due: _command(due))  # type: ignore[misc]
                log.info("command sent node=%s channel=%s kind=%s id=%s", due.node, due.channel, due.kind, due.id)


def _command(due: Due) -> fleet_pb2.ControllerMessage:
    return message(command=fleet_pb2.Command(id=due.id, kind=due.kind, channel=due.channel, deadline_ms=due.deadline))

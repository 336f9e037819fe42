"""What goes up the link: who the node is, its status (whole, on change and as a heartbeat), the models on its disks, and
what the spool keeps until the controller has it.

Messages are made when they are written, so that a slow line brings the newest state and no queue of older ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, Protocol

from agent.clock import JUMP_MS, NodeClock
from agent.core.types import Seconds
from agent.downlink import Downlink
from agent.spool import Item, Spool
from protos import fleet_pb2

log = logging.getLogger(__name__)
VERSION = version("slotserve")
CONTRACT = 1
COALESCE_SECONDS = 0.05
TIME_SECONDS = 60.0
WALL_LOOK_SECONDS = 2.0
USAGE_ROWS = 500  # a message
Make = Callable[[], fleet_pb2.AgentMessage | None]
Outbox = asyncio.Queue[Make]


class Says(Protocol):
    """What is needed of the node (agent/node.py)."""

    name: str

    def hello(self) -> fleet_pb2.Hello:
        """What the node declares; name, version, plan and boot are filled in here."""

    def status(self) -> fleet_pb2.Status: ...

    def inventory(self) -> fleet_pb2.Inventory | None:
        """None while the disks have not been looked at yet."""


class Uplink:
    """`open()` with each new stream, `close()` when it is lost; all from the agent's loop."""

    def __init__(
        self, node: Says, clock: NodeClock, spool: Spool, down: Downlink, trusts: Callable[[], Iterable[str]]
    ) -> None:
        self._node, self._clock, self._spool, self._down, self._trusts = node, clock, spool, down, trusts
        self._greeted = fleet_pb2.Hello()
        self._out: Outbox | None = None  # of the newest stream, while it is there
        self._status_due = asyncio.Event()

    # --- told by the agent ------------------------------------------------------------------------------------------

    def status_changed(self) -> None:
        """Something in the node's status is different."""
        self._status_due.set()

    def declared_changed(self) -> None:
        """What the node says in its Hello is different: GPUs came up, or the authorities that it trusts."""
        self.put(self._hello)

    def inventory_changed(self) -> None:
        """The models on disk are different."""
        self.put(self._inventory)

    def time_due(self) -> None:
        """The controller is asked for the time."""
        self.put(self._time_request)

    def load_result(self, result: fleet_pb2.LoadResult) -> None:
        """A load has ended; kept until the controller has it."""
        self._report([Item(result.id, "load_result", result.SerializeToString())])

    def event(self, event: fleet_pb2.Event) -> None:
        """People are to be told; kept until the controller has it."""
        self._report([Item(event.id, "event", event.SerializeToString())])

    async def usage(self, rows: Iterable[fleet_pb2.UsageRow]) -> None:
        """Rows of the gateways; returns once they are on disk."""
        items = [Item(r.id, "usage", r.SerializeToString()) for r in rows]
        fresh = await asyncio.to_thread(self._spool.add, items)
        self.send_items(fresh)

    def _report(self, items: list[Item]) -> None:
        try:
            fresh = self._spool.add(items)
        except OSError as err:
            log.error("report not kept on disk error=%r; it is lost where the controller is away", str(err))
            fresh = items
        self.send_items(fresh)

    # --- on a stream ------------------------------------------------------------------------------------------------

    def first(self) -> fleet_pb2.AgentMessage:
        """What a stream begins with."""
        self._greeted = self._node.hello()
        return self._hello()

    def open(self) -> Outbox:
        """What is to be written on a new stream, from now on: everything is stated anew."""
        out: Outbox = asyncio.Queue()
        self._out = out
        self.time_due()
        if self._node.hello() != self._greeted:  # it came to know more in between
            self.put(self._hello)
        self._status_due.set()
        self.inventory_changed()
        self.send_results()
        self.send_items(self._spool.items())
        return out

    def close(self) -> None:
        """There is no stream any more."""
        self._out = None

    async def received(self, ids: list[str]) -> None:
        """The controller has these; they need not be kept."""
        await asyncio.to_thread(self._spool.taken, ids)

    def put(self, make: Make) -> None:
        """Made when it is written. Without a connection it is dropped: the next one states everything anew."""
        if self._out is not None:
            self._out.put_nowait(make)

    def say(self, **body: Any) -> None:
        """A message that is made already, its body by name."""
        self.put(lambda: _message(**body))

    async def write(self, call: Any, out: Outbox) -> None:
        """Until cancelled: what is put, in its order."""
        while True:
            make = await out.get()
            message = make()
            if message is None:
                continue
            await call.write(message)
            if message.WhichOneof("body") == "command_result":
                self._down.results.pop(message.command_result.id, None)

    async def states(self, heartbeat: Seconds) -> None:
        """Until cancelled: the status when it has changed, and after each `heartbeat`."""
        loop, last, sent_at = asyncio.get_running_loop(), b"", 0.0
        while True:
            try:
                async with asyncio.timeout_at(sent_at + heartbeat):
                    await self._status_due.wait()
            except TimeoutError:
                last = b""  # a heartbeat: sent also when nothing has changed
            await asyncio.sleep(max(0.0, sent_at + COALESCE_SECONDS - loop.time()))
            self._status_due.clear()
            status = self._node.status()
            text = status.SerializeToString(deterministic=True)
            if text != last:
                last, sent_at = text, loop.time()
                self.say(status=status)

    async def ask_time(self) -> None:
        """Until cancelled: asks what time it is, so that node time follows the controller's, and that the controller knows
        by how much this machine's clock is off; at once where somebody has set that."""
        loop = asyncio.get_running_loop()
        for _ in range(2):  # the connection is cold at the first request
            await asyncio.sleep(0.3)
            self.time_due()
        asked, offset = loop.time(), self._clock.wall_offset_ms()
        while True:
            await asyncio.sleep(WALL_LOOK_SECONDS)
            if loop.time() - asked >= TIME_SECONDS or abs(self._clock.wall_offset_ms() - offset) >= JUMP_MS:
                asked, offset = loop.time(), self._clock.wall_offset_ms()
                self.time_due()

    def send_results(self) -> None:
        """Answers to commands; one that was written twice changes nothing."""
        for result in self._down.results.values():
            self.say(command_result=result)

    def send_items(self, items: Iterable[Item]) -> None:
        """What the spool keeps; the controller counts each id once."""
        rows: list[fleet_pb2.UsageRow] = []
        for item in items:
            if item.kind == "usage":
                rows.append(fleet_pb2.UsageRow.FromString(item.data))
            elif item.kind == "load_result":
                self.say(load_result=fleet_pb2.LoadResult.FromString(item.data))
            else:
                self.say(event=fleet_pb2.Event.FromString(item.data))
        for start in range(0, len(rows), USAGE_ROWS):
            self.say(usage=fleet_pb2.UsageReport(rows=rows[start : start + USAGE_ROWS]))

    def _hello(self) -> fleet_pb2.AgentMessage:
        hello = self._node.hello()
        hello.node, hello.version, hello.contract = self._node.name, VERSION, CONTRACT
        hello.boot_id = self._clock.boot_id
        hello.trusts.extend(sorted(self._trusts()))
        if held := self._down.held:
            hello.epoch, hello.generation, hello.plan_sha256 = held.epoch, held.generation, held.sha256
        return _message(hello=hello)

    def _inventory(self) -> fleet_pb2.AgentMessage | None:
        said = self._node.inventory()
        return None if said is None else _message(inventory=said)

    def _time_request(self) -> fleet_pb2.AgentMessage:
        asked = fleet_pb2.TimeRequest(boottime_ns=self._clock.boottime_ns(), wall_ms=self._clock.wall_ms())
        return _message(time_request=asked)


def _message(**body: Any) -> fleet_pb2.AgentMessage:
    return fleet_pb2.AgentMessage(**body)

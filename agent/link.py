"""The connection to the controller: dialled by the agent, made again for ever, and never needed to go on.

Down come the plan, the keys and commands; up go status (whole, on change and as a heartbeat), the inventory, and what
the spool keeps until the controller has it. What comes down is checked and carried out in agent/downlink.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Protocol

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from agent.clock import NodeClock
from agent.downlink import Carries, Downlink
from agent.errors import EnrolmentFailed, NotEnrolled
from agent.log_shipping import LogShipper
from agent.spool import Item, Spool
from agent.state import Identity, State, trusted
from protos import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)
VERSION = version("slotserve")
CONTRACT = 1
ANSWER_SECONDS = 10.0
COALESCE_SECONDS = 0.05
HEARTBEAT_SECONDS = 5.0
TIME_SECONDS = 60.0
MOST_SECONDS = 5.0  # between two attempts, at random
STEADY_SECONDS = 5.0  # a stream that ended sooner counts as a failed attempt, so that dialling again slows down
RENEW_AGAIN_SECONDS = 600.0
RECOVER_AGAIN_SECONDS = 60.0
USAGE_ROWS = 500  # a message
Make = Callable[[], fleet_pb2.AgentMessage | None]
Outbox = asyncio.Queue[Make]
LEADER = "slotserve-leader"  # trailing metadata of a controller that does not lead: where the leader is
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new certificate must not meet an old connection
)


class Node(Carries, Protocol):
    """What the link needs of the rest of the agent (agent/node.py)."""

    name: str

    def hello(self) -> fleet_pb2.Hello:
        """What the node declares; name, version, plan and boot are filled in here."""

    def status(self) -> fleet_pb2.Status: ...

    def inventory(self) -> fleet_pb2.Inventory | None:
        """None while the disks have not been looked at yet."""


class LinkLost(Exception):
    """The connection could not be made or has ended; the message says how."""


class Link:
    """`run()` until cancelled; the other methods from the same loop."""

    def __init__(
        self, node: Node, state: State, clock: NodeClock, spool: Spool, shipper: LogShipper | None = None
    ) -> None:
        self._node, self._state, self._clock, self._spool, self._shipper = node, state, clock, spool, shipper
        self.down = Downlink(node, state, clock, self._send_results)
        self.trouble = ""  # why there is no connection, in words
        self._key = b""
        self._trusts: frozenset[str] = frozenset()
        self._renew_now = asyncio.Event()
        self._recover_again = 0.0
        self._turn, self._hint = 0, ""  # which of several controllers is dialled next; where one said the leader is
        self._greeted = fleet_pb2.Hello()
        self._call: Any = None  # of the newest stream, while it is there
        self._bridge: asyncio.Task[None] | None = None  # a second stream, made with a renewed certificate
        self.on_clock: Callable[[], None] = lambda: None  # node time has been measured anew
        self.on_away: Callable[[], None] = lambda: None  # the controller is not reached any more
        self._out: Outbox = asyncio.Queue()
        self._status_due = asyncio.Event()
        self._commands: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether the controller hears us now."""
        return self._call is not None

    # --- told by the agent ------------------------------------------------------------------------------------------

    def status_changed(self) -> None:
        """Something in the node's status is different."""
        self._status_due.set()

    def declared_changed(self) -> None:
        """What the node says in its Hello is different: GPUs came up."""
        self._put(self._hello)

    def inventory_changed(self) -> None:
        """The models on disk are different."""
        self._put(self._inventory)

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
        self._send_items(fresh)

    def _report(self, items: list[Item]) -> None:
        try:
            fresh = self._spool.add(items)
        except OSError as err:
            log.error("report not kept on disk error=%r; it is lost where the controller is away", str(err))
            fresh = items
        self._send_items(fresh)

    # --- dialling ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connects, and connects again: at once after a steady stream, then slower and slower, 5 s apart at most."""
        try:
            while True:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(LinkLost),
                    wait=wait_random_exponential(multiplier=0.2, max=MOST_SECONDS),
                    before_sleep=_say,
                ):
                    with attempt:
                        bridge, self._bridge = self._bridge, None
                        await (bridge or self._stream())
        finally:
            for task in (*self._commands, self._bridge):
                if task:
                    task.cancel()

    async def _stream(self) -> None:
        """One connection. Raises LinkLost unless it was steady; returns where it was."""
        try:
            identity = self._state.identity()
        except NotEnrolled as err:
            self.trouble = str(err)
            raise LinkLost(str(err)) from None
        if identity.key != self._key:
            self.down.reread()  # perhaps it was enrolled anew, then a controller with an older epoch is obeyed again
            self._key = identity.key
        loop = asyncio.get_running_loop()
        since = loop.time()
        if 0 < identity.ends_at <= self._clock.wall_ms():
            identity = await self._recover(identity)
        self._trusts = trusted(identity.ca)
        address = self._next_address(identity)
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
        try:
            async with grpc.aio.secure_channel(address, credentials, options=OPTIONS) as channel:
                call = fleet_pb2_grpc.FleetStub(channel).Connect()
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        welcome = await self._greet(call)
                    log.info("connected controller=%s epoch=%s", address, welcome.epoch)
                    self._remember(identity, welcome)
                    self._call, self.trouble = call, ""
                    await self._converse(call, channel, welcome, identity.renew_at)
                finally:
                    if self._call is call:  # else a newer stream has taken over
                        self._call = None
                        self.on_away()
                    call.cancel()
        except grpc.aio.AioRpcError as err:
            why = f"{address}: {err.details() or err.code().name}"
            self._hint = str(dict(err.trailing_metadata() or ()).get(LEADER, ""))
        except (TimeoutError, asyncio.InvalidStateError, OSError, LinkLost) as err:
            why = f"{address}: {err!r}"
        except Exception as err:
            log.exception("the stream broke on our side")
            why = f"{address}: {err!r}"
        else:
            why = f"{address}: the controller ended the stream"
        self._turn += not self._hint
        self.trouble = why
        if loop.time() - since < STEADY_SECONDS:
            raise LinkLost(why)
        log.warning("connection lost why=%r; going on with the saved plan", why)

    async def _recover(self, identity: Identity) -> Identity:
        """The certificate has run out while the node was off: another one for a proof of its key. Raises LinkLost."""
        from agent.enrolment import recover

        loop = asyncio.get_running_loop()
        if loop.time() < self._recover_again:
            raise LinkLost("the certificate has run out; another one is asked for once a minute")
        self._recover_again = loop.time() + RECOVER_AGAIN_SECONDS
        try:
            await recover(self._state, self._node.name, self._clock.wall_ms() / 1000)
        except (EnrolmentFailed, OSError) as err:
            self.trouble = str(err)
            raise LinkLost(str(err)) from None
        log.info("certificate had run out and was replaced enrolment=%s", identity.enrol_address)
        return self._state.identity()

    def _next_address(self, identity: Identity) -> str:
        """One after the other of the controllers that are known, or the one that was named as the leader."""
        hint, self._hint = self._hint, ""
        known = identity.fleet_address.split(",")
        return hint or known[self._turn % len(known)]

    def _remember(self, identity: Identity, welcome: fleet_pb2.Welcome) -> None:
        """The controllers to dial from now on, this one first."""
        known = ",".join(welcome.controllers) or identity.fleet_address
        self._turn = 0
        if known != identity.fleet_address:
            self._state.save_identity(replace(identity, fleet_address=known))

    async def _greet(self, call: Any) -> fleet_pb2.Welcome:
        self._greeted = self._node.hello()
        await call.write(self._hello())
        first = await call.read()
        if first is grpc.aio.EOF or first.WhichOneof("body") != "welcome":
            raise LinkLost("the controller did not say welcome")
        return first.welcome

    async def _converse(self, call: Any, channel: Any, welcome: fleet_pb2.Welcome, renew_at: int) -> None:
        out: Outbox = asyncio.Queue()
        self._out = out
        self._put(self._time_request)
        if self._node.hello() != self._greeted:  # it came to know more in between
            self._put(self._hello)
        self._status_due.set()
        self.inventory_changed()
        self._send_results()
        self._send_items(self._spool.items())
        heartbeat = welcome.heartbeat_seconds or HEARTBEAT_SECONDS
        tasks = [
            asyncio.create_task(self._read(call), name="link read"),
            asyncio.create_task(self._write(call, out), name="link write"),
            asyncio.create_task(self._status(heartbeat), name="link status"),
            asyncio.create_task(self._ask_time(), name="link time"),
            asyncio.create_task(self._renew(channel, renew_at), name="link certificate"),
        ]
        if self._shipper:
            tasks.append(asyncio.create_task(self._shipper.ship(channel), name="link logs"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()  # raises how it ended

    async def _write(self, call: Any, out: Outbox) -> None:
        while True:
            make = await out.get()
            message = make()
            if message is None:
                continue
            await call.write(message)
            if message.WhichOneof("body") == "command_result":
                self.down.results.pop(message.command_result.id, None)

    async def _status(self, heartbeat: float) -> None:
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
                self._put(lambda status=status: _message(status=status))  # type: ignore[misc]

    async def _ask_time(self) -> None:
        for _ in range(2):  # the connection is cold at the first request
            await asyncio.sleep(0.3)
            self._put(self._time_request)
        while True:
            await asyncio.sleep(TIME_SECONDS)
            self._put(self._time_request)

    async def _renew(self, channel: Any, renew_at: int) -> None:
        """At two thirds of the certificate's life: a new one, and a second stream with it before this one is ended."""
        while (left := renew_at - self._clock.wall_ms()) > 0 and not self._renew_now.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left / 1000, 3600)):
                    await self._renew_now.wait()
        from agent.enrolment import renew  # here: what makes keys need not be in memory for two months

        while True:
            try:
                await renew(
                    fleet_pb2_grpc.FleetStub(channel), self._state, self._node.name, self._clock.wall_ms() / 1000
                )
            except (grpc.RpcError, EnrolmentFailed, OSError) as err:
                log.warning("certificate not renewed error=%r; trying again", err)
                await asyncio.sleep(RENEW_AGAIN_SECONDS)
            else:
                break
        self._renew_now.clear()
        log.info("certificate renewed; changing over to a new connection")
        self._bridge = asyncio.create_task(self._stream(), name="link bridge")
        await asyncio.Event().wait()  # the controller ends this stream when the new one is there

    def _send_results(self) -> None:
        """Answers to commands; one that was written twice changes nothing."""
        for result in self.down.results.values():
            self._put(lambda result=result: _message(command_result=result))  # type: ignore[misc]

    def _hello(self) -> fleet_pb2.AgentMessage:
        hello = self._node.hello()
        hello.node, hello.version, hello.contract = self._node.name, VERSION, CONTRACT
        hello.boot_id = self._clock.boot_id
        hello.trusts.extend(sorted(self._trusts))
        if held := self.down.held:
            hello.epoch, hello.generation, hello.plan_sha256 = held.epoch, held.generation, held.sha256
        return _message(hello=hello)

    def _inventory(self) -> fleet_pb2.AgentMessage | None:
        said = self._node.inventory()
        return None if said is None else _message(inventory=said)

    def _time_request(self) -> fleet_pb2.AgentMessage:
        asked = fleet_pb2.TimeRequest(boottime_ns=self._clock.boottime_ns(), wall_ms=self._clock.wall_ms())
        return _message(time_request=asked)

    def _put(self, make: Make) -> None:
        """Made when it is written. Without a connection it is dropped: the next one states everything anew."""
        if self.connected:
            self._out.put_nowait(make)

    def _send_items(self, items: Iterable[Item]) -> None:
        rows: list[fleet_pb2.UsageRow] = []
        for item in items:
            if item.kind == "usage":
                rows.append(fleet_pb2.UsageRow.FromString(item.data))
            elif item.kind == "load_result":
                self._put(lambda i=item: _message(load_result=fleet_pb2.LoadResult.FromString(i.data)))  # type: ignore[misc]
            else:
                self._put(lambda i=item: _message(event=fleet_pb2.Event.FromString(i.data)))  # type: ignore[misc]
        for start in range(0, len(rows), USAGE_ROWS):
            report = fleet_pb2.UsageReport(rows=rows[start : start + USAGE_ROWS])
            self._put(lambda report=report: _message(usage=report))  # type: ignore[misc]

    # --- what comes down --------------------------------------------------------------------------------------------

    async def _read(self, call: Any) -> None:
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                return
            match message.WhichOneof("body"):
                case "plan":
                    answer = await self.down.plan(message.plan)
                    self._put(lambda answer=answer: _message(plan_answer=answer))  # type: ignore[misc]
                case "keys":
                    self.down.keys(message.keys)
                case "directory":
                    self.down.directory(message.directory)
                case "command":
                    task = asyncio.create_task(self.down.command(message.command))
                    self._commands.add(task)
                    task.add_done_callback(self._commands.discard)
                case "time_reply":
                    if self._clock.measure(message.time_reply.controller_ms, message.time_reply.boottime_ns):
                        self.on_clock()
                case "received":
                    await asyncio.to_thread(self._spool.taken, list(message.received.ids))
                case "trust":
                    self._trust(message.trust)
                case other:
                    log.warning("message not understood kind=%s", other)

    def _trust(self, said: fleet_pb2.Trust) -> None:
        """The controller's CA is being changed. Over a connection that those trusted so far have vouched for."""
        identity = self._state.identity()
        pem = said.ca_pem.encode()
        try:
            fresh = trusted(pem)
            if not fresh & trusted(identity.ca):
                raise ValueError("none of those that are trusted now is among them")
            self._state.save_identity(replace(identity, ca=pem))
        except (ValueError, OSError) as err:
            log.error("certificate authorities not taken over error=%r", str(err))
            return
        self._trusts = fresh
        log.info("certificate authorities taken over number=%s renew=%s", len(fresh), said.renew)
        self._put(self._hello)
        if said.renew:
            self._renew_now.set()


def _say(state: RetryCallState) -> None:
    if state.attempt_number > 5 and state.attempt_number % 50:
        return  # said often enough
    error = state.outcome.exception() if state.outcome else None
    wait = state.next_action.sleep if state.next_action else 0.0
    log.warning("not connected why=%r attempt=%s again_in=%.1f", str(error), state.attempt_number, wait)


def _message(**body: Any) -> fleet_pb2.AgentMessage:
    return fleet_pb2.AgentMessage(**body)

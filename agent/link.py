"""The connection to the controller: dialled by the agent, made again for ever, and never needed to go on.

What goes up is in agent/uplink.py, what comes down is checked and carried out in agent/downlink.py, the certificate that
opens it is in agent/certificate.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from agent.certificate import Certificate
from agent.clock import NodeClock
from agent.downlink import Carries, Downlink
from agent.errors import EnrolmentFailed, NotEnrolled
from agent.log_shipping import LogShipper
from agent.spool import Spool
from agent.state import Identity, State
from agent.uplink import Says, Uplink
from protos import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)
ANSWER_SECONDS = 10.0
HEARTBEAT_SECONDS = 5.0
MOST_SECONDS = 5.0  # between two attempts, at random
STEADY_SECONDS = 5.0  # a stream that ended sooner counts as a failed attempt, so that dialling again slows down
# What gRPC says where the stream ended in the very instant of a write of ours; the controller's own words are lost with it.
_CLOSED_UNDER_A_WRITE = "Internal error from Core"
CLOSED = "the controller closed the stream while it was written to: it is restarting, or the line broke"
# How gRPC begins where no address of a controller answers; what follows is the system's own reason.
_NO_WAY = re.compile(
    r"^failed to connect to all addresses; last error: (\w+: ipv[46]:\S+: (Failed to connect to remote host: )?)?"
)
LEADER = "slotserve-leader"  # trailing metadata of a controller that does not lead: where the leader is
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 15_000),  # while a ping of another kind is under way; a minute if nothing is said
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new certificate must not meet an old connection
)


class Node(Carries, Says, Protocol):
    """What the link needs of the rest of the agent (agent/node.py)."""


class LinkLost(Exception):
    """The connection could not be made or has ended; the message says how."""


class Link:
    """`run()` until cancelled; the other methods from the same loop."""

    def __init__(
        self, node: Node, state: State, clock: NodeClock, spool: Spool, shipper: LogShipper | None = None
    ) -> None:
        self._state, self._clock, self._shipper = state, clock, shipper
        self._certificate = Certificate(node.name, state, clock)
        self.down = Downlink(node, state, clock, lambda: self.up.send_results())
        self.up = Uplink(node, clock, spool, self.down, lambda: self._certificate.trusts)
        self.trouble = ""  # why there is no connection, in words
        self._key = b""
        self._turn, self._hint = 0, ""  # which of several controllers is dialled next; where one said the leader is
        self._call: Any = None  # of the newest stream, while it is there
        self._bridge: asyncio.Task[None] | None = None  # a second stream, made with a renewed certificate
        # Told whoever wants to know: node time has been measured anew, and moved by so many ms; the controller is not
        # reached any more.
        self.on_clock: Callable[[int], None] = lambda _moved: None
        self.on_away: Callable[[], None] = lambda: None
        self._commands: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether the controller hears us now."""
        return self._call is not None

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
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            identity = self._state.identity()
            if identity.key != self._key:
                self.down.reread()  # perhaps it was enrolled anew, then a controller with an older epoch is obeyed again
                self._key = identity.key
            identity = await self._certificate.in_force(identity)
        except (NotEnrolled, EnrolmentFailed) as err:
            self.trouble = str(err)
            raise LinkLost(str(err)) from None
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
                        self.up.close()
                        self.on_away()
                    call.cancel()
        except grpc.aio.AioRpcError as err:
            why = f"{address}: {words(err)}"
            self._hint = str(dict(err.trailing_metadata() or ()).get(LEADER, ""))
        except (TimeoutError, asyncio.InvalidStateError, OSError, LinkLost) as err:
            why = f"{address}: {words(err)}"
        except Exception as err:  # a fault of ours in one of its tasks: the node is not to stay cut off for it
            log.exception("the stream broke on our side")
            why = f"{address}: {err!r}"
        else:
            why = f"{address}: the controller ended the stream"
        self._turn += not self._hint
        self.trouble = why
        if loop.time() - since < STEADY_SECONDS:
            raise LinkLost(why)
        log.warning("connection lost why=%r; going on with the saved plan", why)

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
        await call.write(self.up.first())
        first = await call.read()
        if first is grpc.aio.EOF or first.WhichOneof("body") != "welcome":
            raise LinkLost("the controller did not say welcome")
        return first.welcome

    async def _converse(self, call: Any, channel: Any, welcome: fleet_pb2.Welcome, renew_at: int) -> None:
        out = self.up.open()
        heartbeat = welcome.heartbeat_seconds or HEARTBEAT_SECONDS
        tasks = [
            asyncio.create_task(self._read(call), name="link read"),
            asyncio.create_task(self.up.write(call, out), name="link write"),
            asyncio.create_task(self.up.states(heartbeat), name="link status"),
            asyncio.create_task(self.up.ask_time(), name="link time"),
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
        for task in tasks:  # reading first: it has the controller's own words
            if task in done:
                task.result()  # raises how it ended

    async def _renew(self, channel: Any, renew_at: int) -> None:
        """With a new certificate: a second stream before this one is ended."""
        await self._certificate.renewed(channel, renew_at)
        log.info("certificate renewed; changing over to a new connection")
        self._bridge = asyncio.create_task(self._stream(), name="link bridge")
        await asyncio.Event().wait()  # the controller ends this stream when the new one is there

    # --- what comes down --------------------------------------------------------------------------------------------

    async def _read(self, call: Any) -> None:
        while True:
            message = await call.read()
            if message is grpc.aio.EOF:
                return
            match message.WhichOneof("body"):
                case "plan":
                    self.up.say(plan_answer=await self.down.plan(message.plan))
                    self.up.time_due()  # perhaps the plan is another because the controller's clock was set
                case "keys":
                    self.down.keys(message.keys)
                case "directory":
                    self.down.directory(message.directory)
                case "command":
                    task = asyncio.create_task(self.down.command(message.command))
                    self._commands.add(task)
                    task.add_done_callback(self._commands.discard)
                case "time_reply":
                    said = message.time_reply
                    if (moved := self._clock.measure(said.controller_ms, said.boottime_ns)) is not None:
                        self.on_clock(moved)
                case "received":
                    await self.up.received(list(message.received.ids))
                case "trust":
                    if self._certificate.trust(message.trust):
                        self.up.declared_changed()
                case other:
                    log.warning("message not understood kind=%s", other)


def words(err: BaseException) -> str:
    """How a stream has ended, for people."""
    if isinstance(err, grpc.aio.AioRpcError):
        if err.code() is grpc.StatusCode.INTERNAL and err.details() == _CLOSED_UNDER_A_WRITE:
            return CLOSED
        return _NO_WAY.sub("cannot connect: ", err.details() or err.code().name)
    if isinstance(err, asyncio.InvalidStateError):
        return CLOSED
    if isinstance(err, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:.0f} s"
    return str(err) or repr(err)


def _say(state: RetryCallState) -> None:
    if state.attempt_number > 5 and state.attempt_number % 50:
        return  # said often enough
    error = state.outcome.exception() if state.outcome else None
    wait = state.next_action.sleep if state.next_action else 0.0
    log.warning("not connected why=%r attempt=%s again_in=%.1f", str(error), state.attempt_number, wait)

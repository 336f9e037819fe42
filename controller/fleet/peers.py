"""Between controllers of one database. The leader says what is live, and reads engines' logs for the others; they tell
it at once what they have written (it would find it at its next tick as well).

On the fleet port, with a certificate that says "controller": a node's certificate opens none of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import TypeAdapter, ValidationError

from controller.context import EngineLogs
from controller.fleet.ca import CONTROLLERS, CertificateAuthority
from controller.fleet.lease import Lease
from controller.fleet.live import Live, LiveNode
from controller.store.session import Store
from protos import peers_pb2, peers_pb2_grpc

log = logging.getLogger(__name__)
COALESCE_SECONDS = 0.25
HEARTBEAT_SECONDS = 2.0  # of the leader: a follower that hears nothing for three of them looks for another
AGAIN_SECONDS = 1.0
NOBODY = "no controller leads"
LOG_SECONDS = 5.0
LOG_METHODS = ("read", "launches", "line_at", "find")  # of EngineLogs
NODE = TypeAdapter(LiveNode)
OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)


class PeerService(peers_pb2_grpc.PeersServicer):
    """The leader's side. `heard(channel ids, keys, commands)` wakes the planner and the watch."""

    def __init__(
        self,
        live: Live,
        lease: Lease,
        logs: EngineLogs,
        heard: Callable[[tuple[str, ...], bool, bool], None],
        last_look_ms: Callable[[], int | None],
    ) -> None:
        self._live, self._lease, self._logs, self._heard, self._last_look = live, lease, logs, heard, last_look_ms

    async def Follow(
        self, asked: AsyncIterator[peers_pb2.FollowerMessage], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[peers_pb2.LeaderMessage]:
        await _controllers_only(context)
        hears = asyncio.create_task(self._hear(asked), name="follower's words")
        try:
            sent: dict[str, LiveNode] = {}
            revision = -1
            while self._lease.holds() and not hears.done():
                fresh = peers_pb2.LeaderMessage()
                if (looked := self._last_look()) is not None:
                    fresh.last_look_ms = looked
                if revision != self._live.revision:
                    revision = self._live.revision
                    now = self._live.snapshot()
                    for name, node in now.items():
                        if sent.get(name) is not node:
                            fresh.nodes.append(peers_pb2.LiveNode(name=name, json=NODE.dump_json(node)))
                    sent = now
                yield fresh
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        while self._live.revision == revision and self._lease.holds():
                            await asyncio.sleep(COALESCE_SECONDS)
        finally:
            hears.cancel()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "this controller does not lead")

    async def ReadLog(self, asked: peers_pb2.LogRequest, context: grpc.aio.ServicerContext) -> peers_pb2.LogReply:
        await _controllers_only(context)
        if asked.method not in LOG_METHODS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{asked.method!r} is no question about a log")
        said = await asyncio.to_thread(getattr(self._logs, asked.method), *json.loads(asked.arguments))
        return peers_pb2.LogReply(json=json.dumps(said).encode())

    async def _hear(self, asked: AsyncIterator[peers_pb2.FollowerMessage]) -> None:
        async for said in asked:
            self._heard(tuple(said.channels), said.keys, said.commands)


class Follower:
    """The other side: keeps `live` as the leader has it, passes on what was written here. `run()` on the loop."""

    def __init__(
        self, store: Store, live: Live, lease: Lease, ca: CertificateAuthority, clock: Callable[[], int]
    ) -> None:
        self._live, self._lease, self._ca, self._clock = live, lease, ca, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stub: peers_pb2_grpc.PeersStub | None = None
        self._lock = threading.Lock()
        self._written: set[str] = set()
        self._keys = self._commands = False
        self._event = asyncio.Event()
        self.last_look_ms: int | None = None
        store.on_commit(self._committed)

    # --- from any thread --------------------------------------------------------------------------------------------

    def wake(self, *, keys: bool = False, commands: bool = False) -> None:
        """A key, a person or a command was written here."""
        with self._lock:
            self._keys, self._commands = self._keys or keys, self._commands or commands
        self._ring()

    def ask_log(self, method: str, *arguments: str | int) -> Any:
        """What the leader's logs answer. Raises ConnectionError where none is reached."""
        if self._loop is None or self._stub is None:
            raise ConnectionError("no controller leads at the moment")
        asked = peers_pb2.LogRequest(method=method, arguments=json.dumps(arguments).encode())
        return asyncio.run_coroutine_threadsafe(self._ask(asked), self._loop).result(LOG_SECONDS * 2)

    def _committed(self, channel_ids: frozenset[str]) -> None:
        with self._lock:
            self._written |= channel_ids
        if channel_ids:
            self._ring()

    def _ring(self) -> None:
        if self._stub and self._loop and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between
                self._loop.call_soon_threadsafe(self._event.set)

    # --- on the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: follows whoever leads."""
        self._loop = asyncio.get_running_loop()
        said = NOBODY  # at the start that is no news: this one may be about to lead
        try:
            while True:
                address = self._lease.leader_address
                why = await self._follow(address) if address else NOBODY
                self._away()
                if why != said:
                    log.warning("not following leader=%s why=%r; trying again", address or "-", why)
                    said = why
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._stub, self.last_look_ms = None, None
            self._away()

    async def _follow(self, address: str) -> str:
        """Until it ends; why it did."""
        key, certificate = self._ca.controller_pair()
        credentials = grpc.ssl_channel_credentials(self._ca.certificate_pem().encode(), key, certificate)
        try:
            async with grpc.aio.secure_channel(address, credentials, options=OPTIONS) as channel:
                stub = peers_pb2_grpc.PeersStub(channel)
                call = stub.Follow(self._words())
                while True:
                    async with asyncio.timeout(3 * HEARTBEAT_SECONDS):
                        message = await call.read()
                    if message is grpc.aio.EOF:
                        return "the leader ended the stream"
                    if self._stub is None:
                        log.info("following leader=%s", address)
                    self._stub = stub
                    self._take(message)
        except grpc.aio.AioRpcError as err:
            return err.details() or err.code().name
        except (TimeoutError, ValidationError, OSError) as err:
            return repr(err)
        finally:
            self._stub = None

    def _take(self, message: peers_pb2.LeaderMessage) -> None:
        for said in message.nodes:
            node = NODE.validate_json(said.json)
            self._live.put(said.name, node)
        if message.HasField("last_look_ms"):
            self.last_look_ms = message.last_look_ms

    async def _words(self) -> AsyncIterator[peers_pb2.FollowerMessage]:
        while True:
            self._event.clear()
            with self._lock:
                written, self._written = self._written, set()
                keys, self._keys = self._keys, False
                commands, self._commands = self._commands, False
            if written or keys or commands:
                yield peers_pb2.FollowerMessage(channels=sorted(written), keys=keys, commands=commands)
            await self._event.wait()

    async def _ask(self, asked: peers_pb2.LogRequest) -> Any:
        stub = self._stub
        if stub is None:
            raise ConnectionError("no controller leads at the moment")
        try:
            reply = await stub.ReadLog(asked, timeout=LOG_SECONDS)
        except grpc.aio.AioRpcError as err:
            raise ConnectionError(f"the leader does not answer: {err.details() or err.code().name}") from None
        return json.loads(reply.json)

    def _away(self) -> None:
        """Nobody tells what is live: the nodes' last words stay, as of nodes that are away."""
        for name, node in self._live.snapshot().items():
            if node.online:
                self._live.update(name, online=False, since=self._clock())


class PeerLogs:
    """Engines' logs wherever they are kept: here while this controller leads, else with the leader."""

    def __init__(self, own: EngineLogs, lease: Lease, follower: Follower) -> None:
        self._own, self._lease, self._follower = own, lease, follower

    def read(self, node: str, channel: str, offset: int, limit: int, launch: str = "current") -> dict[str, Any] | None:
        said: dict[str, Any] | None = self._ask("read", node, channel, offset, limit, launch)
        return said

    def launches(self, node: str, channel: str) -> list[dict[str, Any]]:
        return list(self._ask("launches", node, channel))

    def line_at(self, node: str, channel: str, launch: str, offset: int) -> int:
        return int(self._ask("line_at", node, channel, launch, offset))

    def find(self, node: str, channel: str, launch: str, text: str, most: int) -> tuple[list[tuple[int, int]], int]:
        places, count = self._ask("find", node, channel, launch, text, most)
        return [(at, line) for at, line in places], count

    def _ask(self, method: str, *arguments: str | int) -> Any:
        if not self._lease.holds():
            try:
                return self._follower.ask_log(method, *arguments)
            except (ConnectionError, TimeoutError) as err:
                log.info("the leader's logs are not reached; what an earlier term left here is shown why=%r", str(err))
        return getattr(self._own, method)(*arguments)


async def _controllers_only(context: grpc.aio.ServicerContext) -> None:
    pem = context.auth_context().get("x509_pem_cert")
    if pem:
        subject = x509.load_pem_x509_certificate(pem[0]).subject
        if [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [CONTROLLERS]:
            return
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "for controllers only")

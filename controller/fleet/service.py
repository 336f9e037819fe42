"""The connection that every agent holds open: what goes down (plan, keys, commands), what comes up (status, loads).

One event loop, one session a node. Heartbeats go to memory only (`Live`); what is written is written in a worker
thread and only then acknowledged. Nothing here waits for a slow node: each stream has a writer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import grpc

from controller.fleet import keys, skew
from controller.fleet.ca import CertificateAuthority, RequestRefused, serves_nodes
from controller.fleet.commands import Commands
from controller.fleet.directory import Directories
from controller.fleet.figures import Figures
from controller.fleet.heard import Heard
from controller.fleet.lease import Lease
from controller.fleet.live import Live
from controller.fleet.peer import Peer, admitted
from controller.fleet.pushes import Plans, Pushes
from controller.fleet.records import Event, NodeRefused, Records
from controller.fleet.sessions import Session, Sessions, message
from controller.fleet.trust import Trusts
from controller.fleet.watch import Watch
from controller.store.session import Store, Write, answers_not, waits
from protos import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)
LEADER = "slotserve-leader"  # trailing metadata: where the leader is
HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 3 * HEARTBEAT_SECONDS
HELLO_SECONDS = 10.0
CONTRACT = 1
VERSION = version("slotserve")


class FleetService(fleet_pb2_grpc.FleetServicer):
    """`tell(session, event)` makes the notices of an event within the given write transaction.

    With a `lease`, agents are only served while it is held; others hear where the leader is. `controllers()`: all of
    them, as agents dial them."""

    def __init__(
        self,
        store: Store,
        live: Live,
        plans: Plans,
        clock: Callable[[], int],
        tell: Callable[[Write, Event], None] = lambda *_: None,
        ca: CertificateAuthority | None = None,
        lease: Lease | None = None,
        controllers: Callable[[], list[str]] = list,
    ) -> None:
        self._ca, self._lease, self._controllers = ca, lease, controllers
        self._store, self._live, self._plans, self._clock = store, live, plans, clock
        self._records, self._commands, self._sessions = Records(store, clock), Commands(store), Sessions()
        self._watch = Watch(store, self._records, self._commands, self._sessions, clock)
        self._trusts = Trusts(ca, self._sessions) if ca else None
        self.figures = Figures()
        self._heard = Heard(self._records, self._commands, self._sessions, live, clock, tell, self.figures)
        self._pushes = Pushes(store, plans, lease, self.figures)
        self._directories = Directories(store, live, plans, self._sessions, clock)

    # --- woken from other threads -----------------------------------------------------------------------------------

    def look(self, *, keys: bool = False) -> None:
        """A command has been written; `keys`: a key or a person has changed. Thread-safe."""
        self._watch.look(keys=keys)

    # --- on the loop ------------------------------------------------------------------------------------------------

    def push(self, node: str) -> None:
        """A node's plan has changed (called by the planner on this loop)."""
        if session := self._sessions.get(node):
            session.send(lambda: self._pushes.message(session), "plan")
        self._directories.planned(node)

    def end_all(self, why: str) -> None:
        """Every agent is to look for another controller (or for this one, later)."""
        for session in self._sessions.all():
            session.end(why)

    async def run(self) -> None:
        """Until cancelled: sends commands and key changes, ends the streams of nodes that were removed."""
        async with asyncio.TaskGroup() as beside:  # where one fails, all end, and the controller says why
            beside.create_task(self._silent(), name="silent nodes")
            beside.create_task(self._directories.run(), name="directory of the fleet")
            if self._trusts:
                beside.create_task(self._trusts.run(), name="certificate authorities")
            await self._watch.run()

    async def Connect(self, _requests: Any, context: grpc.aio.ServicerContext) -> None:
        if self._lease and not self._lease.holds():
            return await self._send_on(context)
        return await self._session(context)

    async def _session(self, context: grpc.aio.ServicerContext) -> None:
        peer, _ = await admitted(context, self._records)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await context.read()
        except TimeoutError:
            return await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no hello")
        if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be hello")
        session = await self._greet(peer, first.hello, context)
        try:
            if self._lease and not self._lease.holds():  # lost meanwhile
                return await self._send_on(context)
            self._join(session, first.hello, context)
            del first  # a thousand streams: what has been read is not kept for as long as they last
            await self._serve(session, peer, context)
            if session.why_ended:  # before anything is written: who is told to go dials the next one meanwhile
                await context.abort(grpc.StatusCode.CANCELLED, session.why_ended)
        finally:
            await self._left(session)
        return None

    async def _send_on(self, context: grpc.aio.ServicerContext) -> None:
        leader = self._lease.leader_address if self._lease else ""
        why = f"this controller does not lead; {f'{leader} does' if leader else 'no controller leads at the moment'}"
        await context.abort(grpc.StatusCode.UNAVAILABLE, why, ((LEADER, leader),) if leader else ())

    async def Renew(
        self, request: fleet_pb2.RenewRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.RenewReply | None:
        peer, _ = await admitted(context, self._records)
        if self._ca is None:
            return await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this controller has no CA")
        try:
            issued = self._ca.sign_csr(request.csr_pem, peer.node, peer.enrolment)
        except RequestRefused as err:
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        log.info("certificate renewed node=%s", peer.node)
        return fleet_pb2.RenewReply(certificate_pem=issued.pem, ca_pem=self._ca.certificate_pem())

    async def _greet(self, peer: Peer, hello: fleet_pb2.Hello, context: grpc.aio.ServicerContext) -> Session:
        if hello.node != peer.node:
            why = f"the certificate is of node {peer.node!r}, not of {hello.node!r}"
            log.warning("node refused node=%s peer=%s why=%r", hello.node, context.peer(), why)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if hello.contract != CONTRACT:
            why = (
                f"this controller speaks contract {CONTRACT}, the agent {hello.contract}; upgrade the older of the two"
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        if why := skew.refusal(hello.version, VERSION):
            log.warning("node refused node=%s peer=%s why=%r", hello.node, context.peer(), why)
            self._live.update(peer.node, turned_away=why, version=hello.version)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(why))  # gRPC takes no subclass of str
        issuer = self._ca.issuer_id(peer.certificate) if self._ca else None
        certificate = {"issuer": issuer, "ends_at": peer.ends_at}
        try:
            node_id = await asyncio.to_thread(self._records.hello, peer.node, peer.enrolment, hello, certificate)
        except NodeRefused as err:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))
            raise  # not reached: abort raises
        await self._pushes.outgrow(peer.node, hello.epoch)
        session = Session(peer.node, node_id, peer.enrolment)
        session.trusts, session.certificate = tuple(hello.trusts), certificate
        session.send(lambda: message(welcome=_welcome(self._plans.epoch, self._controllers())))
        session.keys = await asyncio.to_thread(keys.load_table, self._store, self._clock())
        table = session.keys
        session.send(lambda: message(keys=keys.whole(table)))
        held = (hello.epoch, hello.generation, hello.plan_sha256)
        session.send(lambda: self._pushes.message(session, held), "plan")
        session.renew = bool(hello.relay_address) and not serves_nodes(peer.certificate, peer.node)
        self._directories.tell(session)
        return session

    def _join(self, session: Session, hello: fleet_pb2.Hello, context: grpc.aio.ServicerContext) -> None:
        self._sessions.join(session)
        same = self._pushes.newest(session.node) == (hello.epoch, hello.generation, hello.plan_sha256)
        before = self._live.node(session.node)
        self._live.update(
            session.node,
            online=True,
            silent=False,
            heard=before.online and before.heard,  # a second stream of a node that is there goes on with its words
            since=self._clock(),
            version=hello.version,
            turned_away="",
            gateway_urls=tuple(hello.gateway_urls),
            relay_address=hello.relay_address,
            plan_epoch=hello.epoch,
            plan_generation=hello.generation,
            **({"refusal": ""} if same else {}),
        )
        self._watch.look(keys=True)  # the table may have changed since it was read, and commands may wait for this node
        if self._trusts:
            self._trusts.tell(session)
        self.figures.connects += 1
        log.info("node connected node=%s peer=%s version=%s", session.node, context.peer(), hello.version)

    async def _serve(self, session: Session, peer: Peer, context: grpc.aio.ServicerContext) -> None:
        tasks = {
            asyncio.create_task(self._read(session, context), name=f"read {session.node}"),
            asyncio.create_task(self._write(session, context), name=f"write {session.node}"),
            asyncio.create_task(session.ended.wait(), name=f"ended {session.node}"),
            asyncio.create_task(self._expire(session, peer), name=f"certificate {session.node}"),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (err := task.exception()):
                if answers_not(err):
                    raise err  # said in words, and logged, where every service's is (failures.py)
                log.warning("stream failed node=%s error=%r", session.node, err)
                session.end(f"the controller could not go on with this stream: {type(err).__name__}")

    async def _expire(self, session: Session, peer: Peer) -> None:
        while (left := peer.ends_at - self._clock()) > 0:
            await asyncio.sleep(min(left / 1000, 3600))
        session.end("the client certificate has run out; enrol this node again")

    async def _left(self, session: Session) -> None:
        if not self._sessions.leave(session):
            return
        self.figures.disconnects["by_us" if session.why_ended else "ended"] += 1
        log.info("node disconnected node=%s why=%r", session.node, session.why_ended or "the stream ended")
        self._live.update(session.node, online=False, silent=session.silent, since=self._clock())
        if self._lease and not self._lease.holds():
            return  # what its nodes do is for the next leader to write
        try:
            await asyncio.to_thread(self._records.left, session.node_id)
        except Exception as err:  # the stream may have been ended in words already; that cannot be done twice
            if not waits(log, f"that node {session.node} has left is not noted", err):
                raise

    async def _write(self, session: Session, context: grpc.aio.ServicerContext) -> None:
        while True:
            await context.write(await session.next_message())

    async def _read(self, session: Session, context: grpc.aio.ServicerContext) -> None:
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    said = await context.read()
            except TimeoutError:
                session.silent = True
                session.end(f"nothing heard for {SILENT_SECONDS:.0f} s")
                return
            if said is grpc.aio.EOF:
                return
            await self._heard.take(session, said)
            del said

    async def _silent(self) -> None:
        """Nodes that do not come back after a start: what they do is not known."""
        await asyncio.sleep(2 * SILENT_SECONDS)
        try:
            await asyncio.to_thread(self._records.silent, {s.node_id for s in self._sessions.all()})
        except Exception as err:
            if not waits(log, "what silent nodes do is not noted", err):
                log.exception("what silent nodes do could not be noted")


def _welcome(epoch: int, controllers: list[str]) -> fleet_pb2.Welcome:
    return fleet_pb2.Welcome(
        epoch=epoch, controller_version=VERSION, heartbeat_seconds=HEARTBEAT_SECONDS, controllers=controllers
    )

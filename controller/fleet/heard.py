"""What agents say on their streams: status to memory, what is to last to the store, and only then acknowledged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from controller.fleet import reports
from controller.fleet.commands import Commands
from controller.fleet.figures import Figures
from controller.fleet.live import Live
from controller.fleet.records import Event, NodeRefused, Records
from controller.fleet.sessions import Session, Sessions, message
from controller.store.session import Write, answers_not
from protos import fleet_pb2

log = logging.getLogger(__name__)


class Heard:
    """`tell(session, event)` makes the notices of an event within the given write transaction."""

    def __init__(
        self,
        records: Records,
        commands: Commands,
        sessions: Sessions,
        live: Live,
        clock: Callable[[], int],
        tell: Callable[[Write, Event], None],
        figures: Figures,
    ) -> None:
        self._records, self._commands, self._sessions = records, commands, sessions
        self._live, self._clock, self._tell, self._figures = live, clock, tell, figures

    async def take(self, session: Session, said: fleet_pb2.AgentMessage) -> None:
        """One message, to its end: what is to be kept is on the disk when this returns. One that cannot be taken for a
        fault of ours is passed over, not acknowledged: the node keeps it, and what else it says and hears goes on."""
        kind = said.WhichOneof("body")
        try:
            await self._take(session, kind, getattr(said, kind) if kind else None)
        except Exception as err:
            if answers_not(err):
                raise
            log.exception("message not taken node=%s kind=%s", session.node, kind)

    async def _take(self, session: Session, kind: str | None, body: Any) -> None:
        match kind:
            case "hello":  # again: it has come to know its GPUs
                await self._declared(session, body)
            case "status":
                await self._status(session, body)
            case "time_request":
                self._time(session, body)
            case "plan_answer":
                self._plan_answer(session, body)
            case "load_result":
                await asyncio.to_thread(self._records.loads, session.node_id, [body])
                self._received(session, [body.id])
            case "event":
                await asyncio.to_thread(self._records.event, session.node_id, session.node, body, self._tell)
                self._received(session, [body.id])
            case "usage":
                await asyncio.to_thread(self._records.usage, session.node_id, list(body.rows))
                self._received(session, [r.id for r in body.rows])
            case "inventory":
                await asyncio.to_thread(self._records.inventory, session.node_id, body)
            case "command_result":
                await asyncio.to_thread(self._commands.answered, session.node_id, body.id, body.ok, body.reason)
                log.info("command answered node=%s id=%s ok=%s why=%r", session.node, body.id, body.ok, body.reason)
            case _:
                log.warning("message not understood node=%s kind=%s", session.node, kind)

    async def _declared(self, session: Session, hello: fleet_pb2.Hello) -> None:
        try:
            await asyncio.to_thread(self._records.hello, session.node, session.enrolment, hello, session.certificate)
        except NodeRefused as err:
            session.end(str(err))
            return
        session.trusts = tuple(hello.trusts)
        log.info("node declares anew node=%s channels=%s", session.node, len(hello.channels))

    async def _status(self, session: Session, status: fleet_pb2.Status) -> None:
        gpus = reports.live_gpus(status)
        current = self._sessions.get(session.node) is session
        channels = reports.live_channels(status)
        if current:
            self._live.update(session.node, channels=channels, gpus=gpus, gpu_problem=status.gpu_problem, heard=True)
        lasting: list[dict[str, object]] = [
            {"index": g.index, "uuid": g.uuid, "name": g.name, "memory_total_bytes": g.memory_total_bytes}
            for g in gpus
            if not g.problem
        ]
        if lasting and lasting != session.gpus:  # a driver that is away for a while makes no card disappear
            await asyncio.to_thread(self._records.gpus, session.node_id, lasting)
            session.gpus = lasting
        states = {name: reports.doing(channel) for name, channel in channels.items()}
        if current and states != session.states:  # a heartbeat is no history
            await asyncio.to_thread(self._records.states, session.node_id, states)
            session.states = states

    def _time(self, session: Session, asked: fleet_pb2.TimeRequest) -> None:
        def reply() -> fleet_pb2.ControllerMessage:
            ms = self._clock()
            return message(time_reply=fleet_pb2.TimeReply(boottime_ns=asked.boottime_ns, controller_ms=ms))

        session.send(reply)
        if asked.wall_ms:
            skew = round((asked.wall_ms - self._clock()) / 1000, 2) + 0.0  # never -0.0
            old = self._live.node(session.node).clock_skew_seconds
            if old is None or abs(old - skew) >= 0.1:  # jitter of the network is no news
                self._live.update(session.node, clock_skew_seconds=skew)

    def _plan_answer(self, session: Session, answer: fleet_pb2.PlanAnswer) -> None:
        self._figures.outcomes["accepted" if answer.accepted else "refused"] += 1
        if answer.accepted and session.pushed and session.pushed[0] == answer.generation:
            self._figures.acknowledged.note(time.monotonic() - session.pushed[1])
            session.pushed = None
        if answer.accepted:
            log.info("plan acknowledged node=%s epoch=%s generation=%s", session.node, answer.epoch, answer.generation)
            self._live.update(session.node, plan_epoch=answer.epoch, plan_generation=answer.generation, refusal="")
            return
        self._live.update(session.node, refusal=answer.reason or "no reason given")
        log.warning(
            "plan refused node=%s epoch=%s generation=%s why=%r",
            session.node,
            answer.epoch,
            answer.generation,
            answer.reason,
        )

    def _received(self, session: Session, ids: list[str]) -> None:
        session.send(lambda: message(received=fleet_pb2.Received(ids=ids)))

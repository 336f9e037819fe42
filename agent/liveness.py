"""Looks after engines that serve: one that hangs, or is broken though its health check says it is well, is given up.

A task a channel beside its owner task: it looks every few seconds, has agent/core/alive.py judge, and tells the owner
task (`give_up`), which stops the engine, counts the failure and tries again as with any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.channels import ChannelTask
from agent.core.alive import Answer, Health, Limits, Look, Signs, judge
from agent.core.types import Millis
from agent.every import every
from agent.interfaces import Process, Trouble
from agent.runtime.vitals import Vitals

log = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
HEALTH_SECONDS = 30.0


@dataclass(slots=True)
class Traffic:
    """What came through the gateways for one channel."""

    answered_at: Millis = 0
    failed_in_a_row: int = 0

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Usage rows of this channel; in any order, perhaps again."""
        for row in rows:
            if row["outcome"] == "ok" or (row["outcome"] == "engine_error" and row["status"] < 500):
                self.answered_at = max(self.answered_at, int(row["at_ms"]))
                self.failed_in_a_row = 0
            elif row["outcome"] in ("engine_error", "engine_gone"):
                self.failed_in_a_row += 1


class Looked(Protocol):
    """What is needed of a channel's runtime (agent/runtime/launcher.py)."""

    def vitals(self, process: Process) -> Vitals: ...

    def condemn(self, process: Process, trouble: Trouble) -> None:
        """It is going to be ended as a failure, for this reason."""


class Liveness:
    """`run` until cancelled."""

    def __init__(
        self,
        task: ChannelTask,
        runtime: Looked,
        now: Callable[[], Millis],
        limits: Limits,
        pause: float = LOOK_SECONDS,
    ) -> None:
        self.task, self.traffic = task, Traffic()
        self._runtime, self._now, self._limits, self._pause = runtime, now, limits, pause
        self._vitals: Vitals | None = None
        self._signs = Signs(0)
        self._well_at: Millis = 0  # its health check was asked and good
        self._probe: asyncio.Task[tuple[Answer | None, str]] | None = None

    async def run(self) -> None:
        try:
            what = "looking whether the engine is alive failed channel=%s"
            await every(self._pause, self._look, what, self.task.name)
        finally:
            await self._leave()

    def clock_moved(self) -> None:
        """Node time was corrected: for how long the engine has been silent is counted from now on."""
        self._signs, self._well_at, self.traffic.answered_at = Signs(self._now()), 0, 0

    async def _look(self) -> None:
        process, running = self.task.process, self.task.view.process
        if process is None or running is None or running.ready_at is None or self.task.view.phase != "ready":
            await self._leave()
            return
        if self._vitals is None or self._vitals.process.launch_id != process.launch_id:
            await self._leave()
            self._vitals, self._signs = self._runtime.vitals(process), Signs(self._now())
            self.traffic.failed_in_a_row = 0
        vitals = self._vitals
        (health, said), busy, device_error = await asyncio.gather(
            self._health(vitals), vitals.works(), vitals.new_device_error()
        )
        ended, answer = self._probe is not None and self._probe.done(), None
        if ended and self._probe is not None:
            answer, why = self._probe.result()
            said, self._probe = why or said, None
        now = self._now()
        verdict = judge(
            self._signs,
            Look(
                at=now,
                health=health,
                said=said,
                busy=busy,
                in_flight=self.task.door.in_flight(self.task.name),
                answered_at=min(self.traffic.answered_at, now),
                failed_in_a_row=self.traffic.failed_in_a_row,
                probe=answer,
                probing=self._probe is not None,
                device_error=device_error,
                on_gpu=vitals.on_gpu,
            ),
            self._limits,
        )
        self._signs = verdict.signs
        if answer is not None:
            self.traffic.failed_in_a_row = 0
        if device_error:
            log.error("engine names an error of the GPU's driver channel=%s line=%r", self.task.name, device_error)
        if verdict.dead is not None:
            dead = verdict.dead
            log.error("engine given up channel=%s category=%s why=%r", self.task.name, dead.category, dead.reason)
            trouble = Trouble(dead.category, dead.reason, dead.detail)
            self._runtime.condemn(process, trouble)
            self.task.give_up(process.launch_id, trouble)
            await self._leave()
        elif verdict.probe:
            log.info("engine asked for one token channel=%s", self.task.name)
            self._probe = asyncio.ensure_future(vitals.ask_small())

    async def _health(self, vitals: Vitals) -> tuple[Health, str]:
        """Seldom while it is good: some engines write a line into their output each time."""
        now = self._now()
        if self._well_at and now < self._well_at + round(HEALTH_SECONDS * 1000):
            return "ok", ""
        health, said = await vitals.health()
        self._well_at = now if health == "ok" else 0
        return health, said

    async def _leave(self) -> None:
        """Forgets the engine it looked after."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
        vitals, self._vitals, self._well_at = self._vitals, None, 0
        if vitals is not None:
            await vitals.close()

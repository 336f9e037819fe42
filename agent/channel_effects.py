"""The doing of a channel's actions: what each asks of the runtime and the gateways, and what its answer makes of the view.

The owner task calls `perform`; everything here runs in its turn, except the jobs themselves, which only call the world
and whose answers come back as messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent import channel_entry
from agent.core import actions as do
from agent.core import view as views
from agent.core.step import probe_interval
from agent.core.types import Launch, Millis, Seconds
from agent.core.view import Running
from agent.interfaces import Holder, Process, StartFailed, Trouble

if TYPE_CHECKING:
    from agent.channels import ChannelTask

log = logging.getLogger(__name__)
LONGEST_START = 90.0  # beside the stop time-out: what may still run of the engine before is ended first
LONGEST_LOOK = 20.0  # seconds; a disk or a driver that hangs must not keep a channel from switching
T = TypeVar("T")


class Effects:
    """A method an action, one for its job's answer and one for its job's error."""

    def __init__(self, task: ChannelTask) -> None:
        self.task = task

    def perform(self, action: do.Action, now: Millis) -> None:
        """Begins what the action says and puts the view where that leads."""
        task = self.task
        match action:
            case do.CloseAndDrain(drain=drain):
                self._close(drain, now)
            case do.CallOffDrain():
                self._drop("close", "drained", "preflight")
                task.view = views.called_off(task.view, now)
            case do.Stop():
                self._stop(action, now)
            case do.GiveUp():
                self._give_up(action, now)
            case do.Prepare():
                task.view = views.preparing(task.view, now)
            case do.Free():
                task.jobs.start("free", in_time(self._free()), self._freed, self._free_error)
            case do.Look():
                task.jobs.start("look", in_time(task.runtime.gpu_holders()), self._looked, self._look_error)
            case do.Preflight(launch=launch, gpu=gpu):
                task.jobs.start(
                    "preflight",
                    in_time(self._preflight(launch, gpu)),
                    lambda trouble, at: self._checked(launch, trouble, at),
                    lambda err, at: self._check_error(launch, err, at),
                )
            case do.Start():
                self._start(action, now)
            case do.Probe():
                self._probe()
            case do.Rest(waits=waits):
                task.view = views.resting(task.view, waits, now)

    # Closing and stopping

    def _close(self, drain: views.Drain, now: Millis) -> None:
        task = self.task
        task.view = views.draining(task.view, drain, now)
        if task.view.drain is not None and task.view.drain.in_flight is None and "close" not in task.jobs.busy:
            task.publish(now)
            task.jobs.start("close", task.door.close(task.name), self._closed, self._close_error)

    def _closed(self, count: int, now: Millis) -> None:
        task = self.task
        task.view = views.in_flight(task.view, count)
        if count and task.view.drain is not None:
            task.jobs.start("drained", task.door.wait_drained(task.name), self._drained, self._drain_error)

    def _drained(self, _: None, now: Millis) -> None:
        self.task.view = views.in_flight(self.task.view, 0)

    def _close_error(self, err: Exception, now: Millis) -> None:
        log.error("gateways not closed, the drain's end decides channel=%s error=%r", self.task.name, err)
        self.task.view = views.in_flight(self.task.view, max(1, self.task.door.in_flight(self.task.name)))

    def _drain_error(self, err: Exception, now: Millis) -> None:
        log.error("drain not followed, its end decides channel=%s error=%r", self.task.name, err)

    def _stop(self, action: do.Stop, now: Millis) -> None:
        task = self.task
        self._drop("close", "drained", "probe")
        task.view = views.stopping(task.view, now)
        if action.cut:
            task.publish(now)  # closed in the gateways before what runs is ended
            task.door.cut(task.name, action.retry_after)
        process = task.process or task.runtime.adopt()
        if process is None:
            self._gone([], now)
            return
        task.process = process
        task.jobs.start("stop", self._end(process, task.view.timing.stop_timeout), self._gone, self._stop_error)

    async def _end(self, process: Process, stop_timeout: Seconds) -> list[int]:
        """The pids of what could not be ended."""
        if await self.task.runtime.stop(process, stop_timeout):
            return []
        return await self.task.runtime.leftovers() or [process.engine_pid]

    def _gone(self, left: list[int], now: Millis) -> None:
        task = self.task
        if not left:
            task.process = None
            task.view = views.gone(task.view, now)
            return
        first = task.view.phase != "blocked"
        task.view = views.stuck(task.view, channel_entry.stuck_words(task.process, left), now)
        if first:
            log.error("engine cannot be stopped channel=%s why=%r", task.name, task.view.holders)
            task.on_event(channel_entry.blocked_event(task.name, task.view))

    def _stop_error(self, err: Exception, now: Millis) -> None:
        log.error("stop failed channel=%s error=%r", self.task.name, err)
        self._gone([self.task.process.engine_pid if self.task.process else 0], now)

    def _give_up(self, action: do.GiveUp, now: Millis) -> None:
        task = self.task
        self._drop("probe")
        verdict = task.runtime.why_died(task.process) if task.process else None
        if verdict is None or verdict.category in ("crashed", "load_timeout"):
            words = f"not ready {action.seconds:g} s after its start; a larger model needs a longer load time-out"
            verdict = Trouble("load_timeout", words, verdict.detail if verdict else "")
        task.fail(action.launch.identity, verdict, now)
        task.view = views.ended(task.view, action.why, now)

    # Freeing, looking, starting

    async def _free(self) -> tuple[str, list[Holder]]:
        note = await self.task.runtime.wait_memory_free()
        return note, await self.task.runtime.gpu_holders() if note else []

    def _freed(self, answer: tuple[str, list[Holder]], now: Millis) -> None:
        task = self.task
        note, holders = answer
        if note and not holders:
            log.warning("GPU memory stays held by nobody channel=%s note=%r", task.name, note)
        before = task.view
        task.view = views.freed(before, note, channel_entry.held_by(holders), now)
        if task.view.phase == "blocked" and before.phase != "blocked":
            log.error("GPU held by others channel=%s why=%r", task.name, task.view.holders)
            task.on_event(channel_entry.blocked_event(task.name, task.view))

    def _free_error(self, err: Exception, now: Millis) -> None:
        log.error("GPU memory not read, starting all the same channel=%s error=%r", self.task.name, err)
        self.task.view = views.freed(self.task.view, f"GPU memory could not be read ({err})", "", now)

    def _looked(self, holders: list[Holder], now: Millis) -> None:
        task = self.task
        if task.view.phase != "blocked" or task.view.process is not None:
            return
        if holders:
            task.view = views.held_by_others(task.view, channel_entry.held_by(holders), now)
        else:
            task.view = views.preparing(task.view, now)

    def _look_error(self, err: Exception, now: Millis) -> None:
        log.error("GPU not read channel=%s error=%r", self.task.name, err)
        self.task.view = replace(self.task.view, again_at=now + 1000)

    async def _preflight(self, launch: Launch, gpu: bool) -> Trouble | None:
        trouble = await self.task.runtime.preflight(launch)
        if trouble is None and gpu:
            holders = await self.task.runtime.gpu_holders()
            trouble = channel_entry.gpu_busy(holders) if holders else None
        return trouble

    def _checked(self, launch: Launch, trouble: Trouble | None, now: Millis) -> None:
        task = self.task
        if trouble is None:
            task.view = views.checked(task.view, launch)
            return
        wanted = task.choice(now)
        if wanted is not None and wanted.identity == launch.identity:
            task.fail(launch.identity, trouble, now)

    def _check_error(self, launch: Launch, err: Exception, now: Millis) -> None:
        if isinstance(err, TimeoutError):  # a start would hang as well, and what serves now be stopped for it
            words = (
                f"looking at the model and the GPU took over {LONGEST_LOOK:g} s; a disk or the driver does not answer"
            )
            self._checked(launch, Trouble("hung", words), now)
            return
        log.error("preflight failed, the start will tell channel=%s error=%r", self.task.name, err)
        self.task.view = views.checked(self.task.view, launch)

    def _start(self, action: do.Start, now: Millis) -> None:
        task, launch = self.task, action.launch
        self._drop("free", "preflight", "look")
        task.view = views.starting(task.view, launch, now)
        task.jobs.start(
            "start",
            self._begin(launch, action.reservation_id, now),
            lambda process, at: self._started(launch, process, at),
            lambda err, at: self._not_started(launch, err, at),
        )

    async def _begin(self, launch: Launch, reservation_id: str, now: Millis) -> Process:
        longest = self.task.view.timing.stop_timeout + LONGEST_START
        try:
            async with asyncio.timeout(longest):
                return await self.task.runtime.start(launch, reservation_id, now)
        except TimeoutError:
            words = f"the engine's start hangs: nothing came of it within {longest:g} s; a disk of the node may be gone"
            raise StartFailed(Trouble("hung", words)) from None

    def _started(self, launch: Launch, process: Process, now: Millis) -> None:
        self.task.view = views.started(self.task.view, running(process, load=launch.load_seconds), now)
        self.task.watch(process)

    def _not_started(self, launch: Launch, err: Exception, now: Millis) -> None:
        task = self.task
        trouble = err.trouble if isinstance(err, StartFailed) else Trouble("crashed", f"could not be started: {err}")
        if not isinstance(err, StartFailed):
            log.error("start failed channel=%s model=%s error=%r", task.name, launch.model, err)
        seconds = (now - task.view.phase_since) / 1000
        task.on_load_result(channel_entry.load_result(task.name, "", launch, False, seconds, now))
        task.fail(launch.identity, trouble, now)
        task.view = views.not_started(task.view, now)

    def _probe(self) -> None:
        task = self.task
        if task.process is None:
            return
        launch_id = task.process.launch_id
        task.jobs.start(
            "probe",
            task.runtime.probe(task.process),
            lambda answers, at: self._probed(launch_id, answers, at),
            lambda err, at: self._probe_error(launch_id, err, at),
        )

    def _probed(self, launch_id: str, answers: bool, now: Millis) -> None:
        task = self.task
        process = task.view.process
        if process is None or process.launch_id != launch_id or task.view.phase != "loading" or process.discard:
            return
        if not answers:
            again = now + probe_interval(now - process.started_at)
            task.view = replace(task.view, again_at=again, process=replace(process, watched=True))
            return
        task.view = views.ready(task.view, now)
        if not process.watched:
            return  # it became ready while no agent ran
        seconds = (now - process.started_at) / 1000
        result = channel_entry.load_result(task.name, launch_id, process, True, seconds, now)
        if task.process is not None:
            result["gpu_memory_bytes"] = task.runtime.gpu_memory(task.process)
        task.on_load_result(result)

    def _probe_error(self, launch_id: str, err: Exception, now: Millis) -> None:
        log.warning("probe failed channel=%s error=%r", self.task.name, err)
        self._probed(launch_id, False, now)

    def _drop(self, *kinds: str) -> None:
        for kind in kinds:
            self.task.jobs.drop(kind)


def running(process: Process, *, watched: bool = True, ready_at: Millis | None = None, load: float = 0.0) -> Running:
    """The core's view of a process."""
    return Running(
        launch_id=process.launch_id,
        identity=process.identity,
        model=process.model,
        preset=process.preset,
        started_at=process.started_at,
        ready_at=ready_at,
        pid=process.engine_pid,
        load_seconds=load,
        watched=watched,
    )


async def in_time(look: Coroutine[Any, Any, T]) -> T:
    """Raises TimeoutError for a look at disk or driver that does not come back."""
    async with asyncio.timeout(LONGEST_LOOK):
        return await look

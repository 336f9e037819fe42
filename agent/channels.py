"""The owner task of a channel: it alone holds the channel's state; everybody else sends it messages.

Each turn: what time has changed, the messages, then one action after another as `agent.core.step.next_action` says until
that is to wait; then what others see is published. It wakes for a message, or exactly when the answer can next change.

    ChannelTask(name, runtime=…, door=…, now=…, timer=…,       the world: processes, gateways, node time in ms
                load_retry=…, save_retry=…,                    () -> dict | None, (dict) -> None: kept over restarts
                on_status=…, on_load_result=…, on_event=…)     (dict) -> None: the protocol's fields, see channel_entry
    set_steps(steps, timing)     the timetable; thread of the event loop
    command(kind) -> (ok, reason)   "reload", "retry", "stop_engines"
    give_up(launch_id, trouble)  whoever finds the engine hung: a failure of what runs; it is stopped
    status() -> dict             ChannelStatus
    run()                        until cancelled; engines stay as they are
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent import channel_entry
from agent.channel_effects import Effects, running
from agent.channel_jobs import Inbox, Jobs, LoopTimer, Timer
from agent.channel_kept import Kept
from agent.core import retry
from agent.core import view as views
from agent.core.actions import Action, Probe, Wait
from agent.core.choice import choose
from agent.core.orders import obey
from agent.core.step import next_action
from agent.core.types import Launch, Millis, Step, Timing, step_at
from agent.core.view import ChannelView
from agent.interfaces import EngineRuntime, GatewayDoor, Process, Trouble

log = logging.getLogger(__name__)
MOST_ACTIONS = 50  # in one turn; more would be a circle


def _nothing(_: dict[str, Any]) -> None:
    return None


def _told(listener: Callable[[dict[str, Any]], None], channel: str) -> Callable[[dict[str, Any]], None]:
    """A listener that fails (a full disk) must not keep the channel from going on."""

    def tell(fields: dict[str, Any]) -> None:
        try:
            listener(fields)
        except Exception:  # whatever the listener comes upon; it is said, and the channel goes on
            log.exception("not told channel=%s", channel)

    return tell


class ChannelTask:
    """See the module's docstring. Callbacks are called on the event loop and must not block."""

    def __init__(
        self,
        name: str,
        *,
        runtime: EngineRuntime,
        door: GatewayDoor,
        now: Callable[[], Millis],
        timer: Timer | None = None,
        load_retry: Callable[[], dict[str, Any] | None] = lambda: None,
        save_retry: Callable[[dict[str, Any]], None] = _nothing,
        on_status: Callable[[dict[str, Any]], None] = _nothing,
        on_load_result: Callable[[dict[str, Any]], None] = _nothing,
        on_event: Callable[[dict[str, Any]], None] = _nothing,
    ) -> None:
        self.name = name
        self.runtime, self.door = runtime, door
        self.on_load_result, self.on_event = _told(on_load_result, name), _told(on_event, name)
        self.inbox = Inbox()
        self.jobs = Jobs(self.inbox)
        self.view = ChannelView()
        self.process: Process | None = None
        self._now = now
        self._timer = timer or LoopTimer(now)
        self._kept = Kept(name, load_retry, save_retry)
        self._on_status = _told(on_status, name)
        self._effects = Effects(self)
        self._steps: tuple[Step, ...] = ()
        self._timing = Timing()
        self._timetable: list[dict[str, Any]] = []
        self._detail = "starting"
        self._shown: tuple[dict[str, Any] | None, dict[str, Any] | None] = (None, None)
        self._watch: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Future[tuple[bool, str]]] = set()

    # What others send

    def set_steps(self, steps: tuple[Step, ...], timing: Timing) -> None:
        """The timetable of this channel, whole, in order of `at`; none: keep whatever runs."""
        self.inbox.post(lambda now: self._take_steps(steps, timing, now))

    async def command(self, kind: str) -> tuple[bool, str]:
        """Carries out a command; the answer says whether it was taken, in words."""
        answer: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        self._asked.add(answer)
        self.inbox.post(lambda now: self._answer(answer, kind, now))
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    def give_up(self, launch_id: str, trouble: Trouble) -> None:
        """The engine of that launch answers no more (hung): its failure, as if it had exited."""
        self.inbox.post(lambda now: self.exited(launch_id, trouble, now))

    def clock_moved(self, by: Millis) -> None:
        """Node time was corrected by so many ms. Between two turns: none sees the one time without the other."""
        self.view = views.clock_moved(self.view, by)
        self.inbox.post(lambda _now: None)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The timetable as it was given last."""
        return self._steps

    def status(self) -> dict[str, Any]:
        """The fields of ChannelStatus, now."""
        return channel_entry.status(self.name, self.view, self._detail, self.door.in_flight(self.name), self._now())

    async def run(self) -> None:
        """Owns the channel until cancelled. Engines go on without it, and are found again by `adopt`."""
        try:
            self._begin(self._now())
            while True:
                await self.inbox.wait(self._timer, self._turn())
        finally:
            if self._watch is not None:
                self._watch.cancel()
            for answer in self._asked:
                if not answer.done():
                    answer.set_result((False, "the agent is stopping"))
            await self.jobs.close()

    # One turn

    def _begin(self, now: Millis) -> None:
        loaded, ready, blocked = self._kept.load()
        failures = retry.not_ahead(loaded, now)
        self.view = replace(self.view, phase_since=now, failures=failures, blocked_since=min(blocked, now))
        for failure in failures.values():
            if failure.count > 0 and not failure.recovered:
                self.on_event(channel_entry.failure_event(self.name, "failed", failure, failure.since))
        process = self.runtime.adopt()
        if process is None:
            died = self.runtime.died_unwatched
            if died is not None:
                self.inbox.post(lambda at: self._died_unwatched(died[0], died[1], at))
            return
        ready_at = min(ready.get(process.launch_id, now), now) if process.was_ready else None
        self.view = views.adopted(self.view, running(process, watched=False, ready_at=ready_at), now)
        self.watch(process)
        log.info(
            "adopted channel=%s model=%s pid=%s phase=%s", self.name, process.model, process.engine_pid, self.view.phase
        )

    def _turn(self) -> Millis | None:
        now = self._now()
        try:
            self._pass_time(now)
            while (message := self.inbox.take()) is not None:
                message(now)
            self._pass_time(now)
            action = self._act(now)
            self.publish(now)
            return action.until if isinstance(action, Wait) else now + 1000
        except Exception:  # a fault of ours must not end the owner of a channel: the next turn looks anew
            log.exception("turn failed channel=%s phase=%s", self.name, self.view.phase)
            return now + 1000

    def _act(self, now: Millis) -> Action:
        for _ in range(MOST_ACTIONS):
            before = self.view.phase
            action = next_action(replace(self.view, busy=self.jobs.busy), now)
            if not isinstance(action, Probe):
                self._detail = action.why
            if isinstance(action, Wait):
                return action
            self._effects.perform(action, now)
            if not isinstance(action, Probe):
                step = f"{before}->{self.view.phase}"
                log.info("channel=%s action=%s phase=%s why=%r", self.name, type(action).__name__, step, action.why)
        log.error("going in circles channel=%s phase=%s action=%r", self.name, self.view.phase, action)
        return action

    def _pass_time(self, now: Millis) -> None:
        step = step_at(self._steps, now)
        following = next((s.at for s in self._steps if s.at > now), None)
        self.view = views.enter_step(self.view, step, following, self._timing)
        recovered = views.recovery_due(self.view, now)
        if recovered is not None:
            self.on_event(channel_entry.failure_event(self.name, "recovered", recovered, now))
        self.view = views.settled(self.view, now)

    def publish(self, now: Millis) -> None:
        """What the gateways, the controller and the next start of this agent are to know, where it changed."""
        self._kept.save(self.view)
        entry = channel_entry.entry(self.name, self.view, self.process, self._timetable, now)
        status = self.status()
        if entry != self._shown[0]:
            self.door.publish(self.name, entry)
        if status != self._shown[1]:
            self._on_status(status)
        self._shown = entry, status

    # Messages

    def _take_steps(self, steps: tuple[Step, ...], timing: Timing, now: Millis) -> None:
        if steps != self._steps and self.view.held:
            self.view = replace(self.view, held=False)
        self._steps, self._timing = steps, timing
        self._timetable = channel_entry.timetable(steps)
        self._pass_time(now)  # the messages after this one meet the new step

    def _answer(self, answer: asyncio.Future[tuple[bool, str]], kind: str, now: Millis) -> None:
        if not answer.done():  # else whoever asked has gone
            self.view, taken, words = obey(self.view, kind, now)
            answer.set_result((taken, words))

    def _died_unwatched(self, process: Process, trouble: Trouble, now: Millis) -> None:
        known = self.view.failures.get(process.identity)
        if known is not None and known.last >= process.started_at:
            return  # it is counted
        self.fail(process.identity, trouble, now)

    def exited(self, launch_id: str, trouble: Trouble, now: Millis) -> None:
        """An engine has ended by itself: a failure, unless it was on its way out anyway."""
        process = self.view.process
        if process is None or process.launch_id != launch_id or self.view.phase not in ("loading", "ready", "draining"):
            return
        if self.view.phase != "draining":
            self.fail(process.identity, trouble, now)
        self.view = views.ended(self.view, f"{process.model} ended by itself: {trouble.reason}", now)
        self.jobs.drop("close")
        self.jobs.drop("drained")
        self.jobs.drop("probe")

    def fail(self, identity: str, trouble: Trouble, now: Millis) -> None:
        """A failure of (channel, target), if the step in force names it; told at an episode's first."""
        process = self.view.process
        if process is not None and process.identity == identity and process.ready_at is None:
            seconds = (now - process.started_at) / 1000
            self.on_load_result(channel_entry.load_result(self.name, process.launch_id, process, False, seconds, now))
        launch = self._named(identity)
        if launch is None:
            return
        self.view, failure, first = views.record_failure(
            self.view, launch, trouble.category, trouble.reason, trouble.detail, now
        )
        log.warning(
            "failure channel=%s model=%s category=%s count=%s reason=%r detail=%r",
            self.name, launch.model, failure.category, failure.count, failure.reason, failure.detail,
        )  # fmt: skip
        if first:
            self.on_event(channel_entry.failure_event(self.name, "failed", failure, now))

    def watch(self, process: Process) -> None:
        """From now on the task hears of this process's end."""
        self.process = process
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.ensure_future(self._wait_exit(process))

    def choice(self, now: Millis) -> Launch | None:
        """What should run now."""
        return choose(self.view, now).launch

    async def _wait_exit(self, process: Process) -> None:
        try:
            trouble = await self.runtime.wait_exit(process)
        except Exception as err:  # nobody else would hear of the end: it is a failure like any other
            log.exception("waiting for the end failed channel=%s pid=%s", self.name, process.engine_pid)
            trouble = Trouble("crashed", f"what became of the engine cannot be told: {err}")
        self.inbox.post(lambda now: self.exited(process.launch_id, trouble, now))

    def _named(self, identity: str) -> Launch | None:
        step = self.view.step
        launches = (step.target, step.fallback) if step is not None else ()
        return next((x for x in launches if x is not None and x.identity == identity), None)

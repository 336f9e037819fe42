"""A controller, its database and one node's agent in simulated time, with faults.

The controller is the real planner over a real database; the plan travels as the real bytes into the agent's real
acceptance and parser; the channel follows it by the agent's real rules, in node time by the agent's real clock. Only what
touches the machine is made up: an engine loads for as long as it is told to, requests last as long as they are told to.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select

from agent.clock import NodeClock
from agent.core import actions as a
from agent.core import step as s
from agent.core import view as v
from agent.core.types import Access, Step, Timing, access_at, step_at
from agent.core.view import ChannelView
from agent.downlink import Downlink
from agent.plan import NodePlan, parse
from agent.state import State
from controller.fleet.live import LiveChannel
from controller.scheduling.types import Decision
from controller.store.session import Store
from controller.store.tables import Load, Reservation
from protos import fleet_pb2
from tests.agent.core.machine import Machine
from tests.controller.planner_world import START, World
from tests.parts import migrated_sqlite

SECOND = 1000
LOADS = {"A": 60.0, "B": 300.0, "D": 60.0}


class Inline(ThreadPoolExecutor):
    """Worker threads that are not there: what is given to them is done at once. Nothing else runs meanwhile anyway."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))  # what it raises, whoever waits gets from here
        return done


class Carries:
    """The node behind the downlink: keeps the plan that was taken."""

    def __init__(self) -> None:
        self.plan = NodePlan()

    def check_plan(self, plan: bytes) -> NodePlan:
        return parse(plan, "n1", ("main",), {})

    def take_plan(self, plan: NodePlan) -> None:
        self.plan = plan


@dataclass
class Channel(Machine):
    """The agent's channel in time: `broken` models fail while they load; requests are under way until `requests_until`."""

    broken: set[str] = field(default_factory=set)
    requests_until: int = 0
    starts: list[tuple[int, str]] = field(default_factory=list)  # (when, model)
    stops: int = 0

    def follow(self, plan: NodePlan, until: int) -> None:
        """From instant to instant up to `until`, as the owner task does it."""
        steps = plan.channels.get("main", ())
        for _ in range(2000):
            self.enter_at(steps, plan.timing)
            action = s.next_action(self.view, self.now)
            if isinstance(action, a.Wait):
                following = [until, *(step.at for step in steps if step.at > self.now)]
                if action.until is not None:
                    assert action.until > self.now, f"waits for what has been: {action}"
                    following.append(action.until)
                if self.view.drain is not None and self.requests_until > self.now:
                    following.append(self.requests_until)
                if min(following) > until or self.now == until:
                    return
                self.now = min(following)
                if self.view.drain is not None and self.now >= self.requests_until:
                    self.view = v.in_flight(self.view, 0)
                continue
            self.done.append(type(action).__name__)
            self.apply(action)
        raise AssertionError(f"never waits: {self.done[-20:]}")

    def enter_at(self, steps: tuple[Step, ...], timing: Timing) -> None:
        coming = next((step.at for step in steps if step.at > self.now), None)
        self.view = v.settled(v.enter_step(self.view, step_at(steps, self.now), coming, timing), self.now)

    def apply(self, action: a.Action) -> None:
        match action:
            case a.CloseAndDrain(drain=drain):
                view = v.draining(self.view, drain, self.now)
                self.view = v.in_flight(view, int(self.requests_until > self.now))
            case a.Stop():
                self.stops += 1
                self.requests_until = min(self.requests_until, self.now)
                super().apply(action)
            case a.Start(launch=target):
                self.starts.append((self.now, target.model))
                super().apply(action)
                self.view = replace(self.view, again_at=self.now + round(LOADS[target.model] * SECOND))
            case a.Probe() if self.view.process is not None:
                process = self.view.process
                launch = self._launch(process.identity)
                if process.model in self.broken and launch is not None:
                    view, _, _ = v.record_failure(self.view, launch, "crashed", "it fell", "", self.now)
                    self.view = v.ended(view, "it fell", self.now)
                else:
                    super().apply(action)
            case _:
                super().apply(action)

    def clock_moved(self, by: int) -> None:
        """Node time was corrected; how long anything takes was not."""
        self.now, self.view = self.now + by, v.clock_moved(self.view, by)
        self.requests_until += by if self.requests_until else 0

    def crash(self) -> None:
        """The engine ends by itself."""
        process = self.view.process
        launch = self._launch(process.identity) if process else None
        if launch is not None and self.view.phase in ("ready", "draining", "loading"):
            view, _, _ = v.record_failure(self.view, launch, "crashed", "it fell", "", self.now)
            self.view = v.ended(view, "it fell", self.now)

    def restart(self) -> None:
        """The agent is started anew: it knows its failures and finds the engine."""
        old = self.view
        self.view = ChannelView(timing=old.timing, failures=old.failures)
        if old.process is not None and old.process.discard:
            return
        if old.process is not None:
            self.view = v.adopted(replace(self.view, step=old.step), old.process, self.now)
            if old.process.ready_at is None:
                at = old.process.started_at + round(LOADS[old.process.model] * SECOND)
                self.view = replace(self.view, again_at=max(self.now, at))

    def _launch(self, identity: str) -> Any:
        step = self.view.step
        named = [x for x in ((step.target, step.fallback) if step else ()) if x is not None]
        return next((x for x in named if x.identity == identity), None)


class Fleet:
    """Everything together. `now` is the controller's time, `steady` what has really passed (ms), `channel.now` node time:
    the controller's as last measured. Rules of the test call the verbs, then `advance`."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(Inline())
        file = folder / "slotserve.db"
        shutil.copy(migrated_sqlite(), file)
        self.world = World(folder, database_url=f"sqlite:///{file}")
        for model, seconds in LOADS.items():
            self.world.set(Load, f"n1{model}", seconds=seconds)
        self.steady = 0
        self.wall = START  # of the node, at steady 0
        self.folder = folder
        self.channel = Channel(ChannelView(), now=START)
        self.link = self.up = True
        self.deaf = False  # half open: what is sent does not arrive, and nobody has noticed yet
        self.spoken = 0  # the epoch of the newest plan that the node was sent by this controller process
        self._unheard = False  # something was changed that the node cannot know of
        self.made = 0
        self.begin_agent()
        self._rows: list[Reservation] | None = None
        self.refused: list[str] = []
        self._look_at_the_clock()
        self.sync()

    def begin_agent(self) -> None:
        """Its process: what it knows is what it finds on its disk."""
        state = State(self.folder / "agent")
        self.clock = NodeClock(
            self.folder / "clock.json",
            boottime_ns=lambda: self.steady * 1_000_000,
            wall_ns=lambda: (self.wall + self.steady) * 1_000_000,
            boot_id="x",
        )
        self.carries = Carries()
        self.down = Downlink(self.carries, state, self.clock, lambda: None)  # type: ignore[arg-type]
        if self.down.held is not None:
            self.carries.plan = parse(self.down.held.plan, "n1", ("main",), {}, lenient=True)

    @property
    def now(self) -> int:
        return self.world.now

    @property
    def reached(self) -> bool:
        """Whether controller and node hear each other."""
        return self.up and self.link and not self.deaf

    @property
    def unheard(self) -> bool:
        """The node does not know what the controller does, be it only the time."""
        return self._unheard or self.channel.now != self.now

    def close(self) -> None:
        self._loop.close()
        self.world.store.close()

    # --- what happens -----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """The database says something else than before."""
        self._unheard, self._rows = True, None
        self.sync()

    def book(self, start: int, length: int, model: str | None, status: str = "approved") -> str | None:
        """[now + start, + length) seconds; None where somebody is there."""
        begin = self.now - START + start * SECOND
        end = begin + length * SECOND
        if any(r.starts_at < START + end and START + begin < r.ends_at for r in self.rows("pending", "approved")):
            return None
        self.made += 1
        approved = self.now if status == "approved" else None
        self.world.book(f"r{self.made}", begin / 1000, end / 1000, model, status=status, approved_at=approved)
        self.changed()
        return f"r{self.made}"

    def set(self, row: Reservation, **values: Any) -> None:
        self.world.set(Reservation, row.id, version=row.version + 1, **values)
        self.changed()

    def rows(self, *statuses: str) -> list[Reservation]:
        """Bookings with one of these statuses, by start."""
        if self._rows is None:
            with self.world.store.read() as session:
                self._rows = list(session.scalars(select(Reservation).order_by(Reservation.starts_at)))
        return [r for r in self._rows if r.status in statuses]

    def advance(self, seconds: float) -> None:
        """Both sides live from due instant to due instant."""
        until = self.now + round(seconds * SECOND)
        while True:
            due = self.world.planner.next_due() if self.up else None
            at = until if due is None else max(self.now, min(due, until))
            passed = at - self.now
            self.channel.follow(self.carries.plan, self.channel.now + passed)
            self.world.now, self.steady = at, self.steady + passed
            self.channel.now = self.clock.now_ms()
            self.sync()
            if at >= until:
                return

    def sync(self) -> None:
        """The node says how it is, the planner looks, the plan goes out."""
        for _ in range(3):
            if self.up:
                self.world.live.update("n1", online=self.link)
                if self.reached:
                    self.measure()
                    self.world.says(self.said())
                    self.outgrow()
                self._loop.run_until_complete(self.world.planner.step())
                self._rows = None
                if self.reached:
                    self.push()
            self.channel.follow(self.carries.plan, self.channel.now)

    def measure(self) -> None:
        moved = self.clock.measure(self.now, self.clock.boottime_ns())
        if moved:
            self.channel.clock_moved(moved)

    def outgrow(self) -> None:
        """As the service does it at a hello: the database may be older than the node."""
        held, ours = self.down.held, self.world.planner.epoch
        if held is not None and held.epoch >= ours and not (held.epoch == ours == self.spoken):
            self.world.planner.outgrow(held.epoch)

    def push(self, stamp: tuple[int, int, bytes, bytes] | None = None) -> fleet_pb2.PlanAnswer | None:
        if stamp is None:
            stamp = self.world.planner.plan_for("n1")
            self.spoken = stamp[0] if stamp else self.spoken
        held = self.down.held
        if stamp is None or (held and stamp[:2] == (held.epoch, held.generation)):
            self._unheard = self._unheard and stamp is None
            return None
        push = fleet_pb2.PlanPush(epoch=stamp[0], generation=stamp[1], plan=stamp[2], sha256=stamp[3])
        answer = self._loop.run_until_complete(self.down.plan(push))
        if answer.accepted:
            self._unheard = False
        return answer

    def said(self) -> LiveChannel:
        view = self.channel.view
        running = view.process
        wanted = view.step.target if view.step else None
        to = wanted.identity if wanted and running and view.phase in ("draining", "stopping") else ""
        return LiveChannel(
            view.phase,
            running=running.identity if running else "",
            running_model=running.model if running else None,
            switching_to=to,
        )

    def restart_controller(self) -> None:
        """A new process: a higher epoch, nothing in memory."""
        self.old_stamp = self.world.planner.plan_for("n1")
        self.world.live.update("n1", online=False)
        self.world.planner = self.world.new_planner()
        self.up, self._rows, self.spoken = True, None, 0
        self._look_at_the_clock()
        self.sync()

    def restart_agent(self) -> None:
        self.begin_agent()
        self.channel.restart()
        self.sync()

    def set_clock(self, seconds: int) -> None:
        """The controller's machine."""
        self.world.now += seconds * SECOND
        if self.up:
            self._look_at_the_clock()
        self.sync()

    def _look_at_the_clock(self) -> None:
        self._loop.run_until_complete(self.world.planner.notice_clock(self.steady))
        self._rows = None

    def back_up(self) -> None:
        with closing(sqlite3.connect(self.folder / "slotserve.db")) as now:
            with closing(sqlite3.connect(self.folder / "backup.db")) as kept:
                now.backup(kept)

    def restore(self) -> None:
        """The database as it was, where it was kept; a new process on it."""
        kept = self.folder / "backup.db"
        if not kept.exists():
            return
        self.world.store.close()
        for file in self.folder.glob("slotserve.db*"):
            file.unlink()
        shutil.copy(kept, self.folder / "slotserve.db")
        self.world.store = Store(self.world.settings.database)
        self._unheard = True
        self.restart_controller()

    # --- what is so -------------------------------------------------------------------------------------------------

    @property
    def step(self) -> Step | None:
        return step_at(self.carries.plan.channels.get("main", ()), self.channel.now)

    @property
    def access(self) -> Access | None:
        return access_at(self.step, self.channel.now)

    def decision(self) -> Decision:
        found = self.world.planner.decision("n1", "main")
        assert found is not None
        return found[0]

"""A channel's world for tests of its task: a runtime and gateways that record what is asked of them, in virtual time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.channels import ChannelTask
from agent.core.types import Launch, Step, Timing
from agent.interfaces import Holder, Process, StartFailed, Trouble
from tests.agent.virtual_time import now_ms

CRASH = Trouble("crashed", "it crashed", "Segmentation fault")


def launch(model: str, preset: str | None = None, *, load: float = 60.0, version: int = 1, **more: Any) -> Launch:
    """A target; another `version` is the same model and preset, edited."""
    return Launch(f"id-{model}-{preset}-{version}", model, preset, "simulated", load_seconds=load, **more)


def step(at: float, target: Launch | None, why: str = "default", **more: Any) -> Step:
    """A step at `at` seconds."""
    return Step(round(at * 1000), target, why, **more)


@dataclass
class Engine:
    process: Process
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: Trouble = CRASH
    ready_from: int | None = None
    gone: bool = False
    ended_by_itself: bool = False


@dataclass
class FakeRuntime:
    """`loads`: seconds to ready by model, or a Trouble to die with after `dies_after` seconds, or "never"."""

    loads: dict[str, Any] = field(default_factory=dict)
    dies_after: float = 0.0
    stop_seconds: float = 1.0
    stop_works: bool = True
    preflights: dict[str, Trouble] = field(default_factory=dict)
    start_troubles: dict[str, Trouble] = field(default_factory=dict)
    holders: list[Holder] = field(default_factory=list)
    memory: str = ""
    free_seconds: float = 0.1
    check_seconds: float = 0.0
    calls: list[tuple[float, str, str]] = field(default_factory=list)
    engines: dict[str, Engine] = field(default_factory=dict)
    died_unwatched: tuple[Process, Trouble] | None = None
    violations: list[str] = field(default_factory=list)
    on_stop: Callable[[Engine], None] = lambda engine: None

    def say(self, what: str, about: str = "") -> None:
        self.calls.append((now_ms() / 1000, what, about))

    def alive(self) -> list[Engine]:
        return [e for e in self.engines.values() if not e.gone]

    def the_engine(self) -> Engine:
        (engine,) = self.alive()
        return engine

    def crash(self, trouble: Trouble = CRASH) -> None:
        engine = self.the_engine()
        engine.trouble, engine.ended_by_itself = trouble, True
        engine.ends.set()

    def adopt(self) -> Process | None:
        for engine in self.engines.values():
            if engine.ended_by_itself:
                engine.gone = True
        alive = self.alive()
        if not alive:
            return None
        engine = alive[0]
        return replace(engine.process, was_ready=engine.ready_from is not None and now_ms() >= engine.ready_from)

    async def preflight(self, launch: Launch) -> Trouble | None:
        await asyncio.sleep(self.check_seconds)
        self.say("preflight", launch.model)
        return self.preflights.get(launch.model)

    async def gpu_holders(self) -> list[Holder]:
        return list(self.holders)

    async def start(self, launch: Launch, reservation_id: str, now: int) -> Process:
        if self.alive():
            self.violations.append(f"{launch.model} is started beside {self.alive()[0].process.model} at {now_ms()}")
        self.say("start", launch.model)
        if launch.model in self.start_troubles:
            raise StartFailed(self.start_troubles[launch.model])
        number = len(self.engines) + 1
        process = Process(
            launch_id=f"launch-{number}",
            identity=launch.identity,
            model=launch.model,
            preset=launch.preset,
            engine=launch.engine,
            started_at=now,
            shim_pid=1000 + number,
            engine_pid=2000 + number,
            socket="/run/x.sock",
            host="127.0.0.1",
            port=0,
            engine_key="k",
            served_name=launch.model,
            unique_name=f"{launch.model}#{number}",
        )
        engine = self.engines[process.launch_id] = Engine(process)
        takes = self.loads.get(launch.model, launch.load_seconds)
        if isinstance(takes, Trouble):
            asyncio.get_running_loop().call_later(self.dies_after, self._die, engine, takes)
        elif takes != "never":
            engine.ready_from = now_ms() + round(takes * 1000)
        return process

    def _die(self, engine: Engine, trouble: Trouble) -> None:
        engine.trouble, engine.ended_by_itself = trouble, True
        engine.ends.set()

    async def probe(self, process: Process) -> bool:
        engine = self.engines[process.launch_id]
        return not engine.ends.is_set() and engine.ready_from is not None and now_ms() >= engine.ready_from

    async def wait_exit(self, process: Process) -> Trouble:
        engine = self.engines[process.launch_id]
        await engine.ends.wait()
        return engine.trouble

    async def stop(self, process: Process, stop_timeout: float) -> bool:
        engine = self.engines[process.launch_id]
        if engine.ended_by_itself:
            engine.gone = True
            return True
        self.say("stop", process.model)
        self.on_stop(engine)
        if not self.stop_works:
            await asyncio.sleep(stop_timeout + 30)
            return False
        await asyncio.sleep(self.stop_seconds)
        engine.gone = True
        engine.ends.set()
        return True

    async def leftovers(self) -> list[int]:
        return [e.process.engine_pid for e in self.alive()]

    async def wait_memory_free(self) -> str:
        await asyncio.sleep(self.free_seconds)
        return self.memory or ("held" if self.holders else "")

    def gpu_memory(self, process: Process) -> int:
        return 17

    def why_died(self, process: Process) -> Trouble:
        return self.engines[process.launch_id].trouble


@dataclass
class FakeDoor:
    """Gateways with `running` requests, each ending when told."""

    running: int = 0
    calls: list[tuple[float, str, Any]] = field(default_factory=list)
    entries: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    ack_seconds: float = 0.002
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self, channel: str) -> int:
        self.calls.append((now_ms() / 1000, "close", channel))
        await asyncio.sleep(self.ack_seconds)
        return self.running

    async def wait_drained(self, channel: str) -> None:
        while self.running:
            self.changed.clear()
            await self.changed.wait()

    def in_flight(self, channel: str) -> int:
        return self.running

    def cut(self, channel: str, retry_after: int) -> None:
        self.calls.append((now_ms() / 1000, "cut", retry_after))
        self.finish()

    def finish(self) -> None:
        self.running = 0
        self.changed.set()

    def publish(self, channel: str, entry: dict[str, Any]) -> None:
        self.entries.append((now_ms() / 1000, json.loads(json.dumps(entry))))

    @property
    def entry(self) -> dict[str, Any]:
        return self.entries[-1][1]


class ExactTimer:
    """Sleeps as long as it is told."""

    async def sleep_until(self, at: int) -> None:
        await asyncio.sleep(max(at - now_ms(), 0) / 1000)


class _Faults(logging.Handler):
    """Turns that failed, which a test must not pass over."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(f"{record.getMessage()} {record.exc_info}")


class World:
    """A channel, its task, and all that is told."""

    def __init__(self, **runtime: Any) -> None:
        self.runtime = FakeRuntime(**runtime)
        self.door = FakeDoor()
        self.saved: dict[str, Any] | None = None
        self.statuses: list[tuple[float, dict[str, Any]]] = []
        self.loads: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.steps: tuple[Step, ...] = ()
        self.timing = Timing()
        self.faults = _Faults()
        logging.getLogger("agent.channels").addHandler(self.faults)
        self.begin()

    def begin(self) -> None:
        """A new agent."""
        self.task = ChannelTask(
            "main",
            runtime=self.runtime,
            door=self.door,
            now=now_ms,
            timer=ExactTimer(),
            load_retry=lambda: self.saved,
            save_retry=lambda kept: self._save(kept),
            on_status=lambda s: self.statuses.append((now_ms() / 1000, s)),
            on_load_result=lambda fields: self._report(self.loads, fields),
            on_event=lambda fields: self._report(self.events, fields),
        )
        if self.steps:
            self.task.set_steps(self.steps, self.timing)
        self.running = asyncio.ensure_future(self.task.run())

    def break_disk(self, full: Callable[..., None]) -> None:
        """From now on whatever is written fails so."""
        self._save = full  # type: ignore[method-assign]
        self._report = full  # type: ignore[method-assign]

    def _report(self, told: list[dict[str, Any]], fields: dict[str, Any]) -> None:
        told.append(fields)

    def _save(self, kept: dict[str, Any]) -> None:
        self.saved = json.loads(json.dumps(kept))

    def plan(self, *steps: Step) -> None:
        self.steps = steps
        self.task.set_steps(steps, self.timing)

    async def end(self) -> None:
        await self.kill()
        logging.getLogger("agent.channels").removeHandler(self.faults)
        assert self.faults.records == []
        assert self.runtime.violations == []

    async def kill(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def restart(self, away: float = 0.0) -> None:
        """The agent is killed and starts again."""
        await self.kill()
        await asyncio.sleep(away)
        self.begin()
        await asyncio.sleep(0)

    async def until(self, seconds: float) -> None:
        """Lets time pass up to that instant, and what is due then happen."""
        await asyncio.sleep(max(0.0, seconds - now_ms() / 1000))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def phase(self) -> str:
        return self.task.view.phase

    @property
    def jobs(self) -> frozenset[str]:
        return self.task.jobs.busy

    def starts(self, model: str = "") -> list[float]:
        return [at for at, what, about in self.runtime.calls if what == "start" and model in ("", about)]

    def stops(self, model: str = "") -> list[float]:
        return [at for at, what, about in self.runtime.calls if what == "stop" and model in ("", about)]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind]

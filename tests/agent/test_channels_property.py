"""Whatever happens to a channel: never two engines, nothing stopped over the heads of those it serves, retries as
announced, and once faults stop, what the plan says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.types import Launch, Timing
from agent.interfaces import Holder, Trouble
from tests.agent.channel_world import CRASH, Engine, World, launch, step
from tests.agent.virtual_time import now_ms, run

A, B, D = (launch(name, load=seconds) for name, seconds in (("A", 4.0), ("B", 9.0), ("D", 2.0)))
A2 = launch("A", version=2, load=4.0)
TARGETS = (A, A2, B, D, None)
SOMEBODY = Holder("GPU-1", 7, "eve", "game", 10**9)

plans = st.tuples(
    st.just("plan"),
    st.lists(st.tuples(st.sampled_from(TARGETS), st.booleans(), st.integers(1, 120)), min_size=1, max_size=3),
)
faults = st.sampled_from(
    [
        ("loads", "A", CRASH),
        ("loads", "A", "never"),
        ("loads", "D", CRASH),
        ("loads", "A", 4.0),
        ("loads", "D", 2.0),
        ("preflight", "A", Trouble("missing_file", "gone")),
        ("preflight", "A", None),
        ("start", "B", Trouble("bad_argument", "no")),
        ("start", "B", None),
        ("holders", [SOMEBODY], None),
        ("holders", [], None),
        ("stop_works", False, None),
        ("stop_works", True, None),
        ("stop_seconds", 12.0, None),
        ("stop_seconds", 0.0, None),
        ("ack", 3.0, None),
    ]
)
others = st.sampled_from(
    [
        ("crash",),
        ("restart", 0.0),
        ("restart", 40.0),
        ("command", "reload"),
        ("command", "retry"),
        ("command", "stop_engines"),
        ("nothing",),
    ]
)
pauses = st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0, 10.0, 31.0, 70.0, 130.0, 700.0])
traffic = st.sampled_from([("request",), ("request",), ("finish",)])
stories = st.lists(st.tuples(pauses, st.one_of(plans, plans, faults, others, traffic)), min_size=1, max_size=25)


class Story:
    """Plays a story and notes what must never be."""

    def __init__(self) -> None:
        self.world = World(free_seconds=0.05)
        self.world.timing = Timing(load_timeout=20.0, drain=5.0, stop_timeout=3.0, buffer=5.0)
        self.world.runtime.on_stop = self.stopped
        self.at_start = self.world.runtime.start
        self.world.runtime.start = self.started  # type: ignore[method-assign]

    def stopped(self, engine: Engine) -> None:
        if self.world.door.running and engine.ready_from is not None and now_ms() >= engine.ready_from + 1000:
            self.world.runtime.violations.append(f"stopped with {self.world.door.running} requests at {now_ms()}")

    async def started(self, launch: Launch, reservation_id: str, now: int) -> Any:
        last = self.world.task.status()["failure"]
        announced = last["retry_at_ms"] if last and last["target"] == launch.identity else 0
        if now < announced:
            self.world.runtime.violations.append(f"{launch.model} tried at {now}, announced for {announced}")
        return await self.at_start(launch, reservation_id, now)

    async def play(self, what: tuple[Any, ...]) -> None:
        world, runtime = self.world, self.world.runtime
        now = now_ms() / 1000
        match what:
            case ("plan", rows):
                steps, at = [], now
                for target, falls_back, seconds in rows:
                    steps.append(step(at, target, "reserved", fallback=D if falls_back and target is not D else None))
                    at += seconds
                world.plan(*steps)
            case ("loads", model, how):
                runtime.loads[model] = how
            case ("preflight", model, trouble):
                runtime.preflights.pop(model, None)
                runtime.preflights |= {model: trouble} if trouble else {}
            case ("start", model, trouble):
                runtime.start_troubles.pop(model, None)
                runtime.start_troubles |= {model: trouble} if trouble else {}
            case ("holders", holders, _):
                runtime.holders = holders
            case ("stop_works", works, _):
                runtime.stop_works = works
            case ("stop_seconds", seconds, _):
                runtime.stop_seconds = seconds
            case ("ack", seconds, _):
                world.door.ack_seconds = seconds
            case ("crash",):
                if len(runtime.alive()) == 1:
                    runtime.crash()
            case ("request",):
                if world.door.entries and world.door.entry["open"] and world.door.entry["serving"]:
                    world.door.running += 1
            case ("finish",):
                world.door.finish()
            case ("restart", away):
                await world.restart(away)
            case ("command", kind):
                await world.task.command(kind)

    def heal(self) -> None:
        runtime = self.world.runtime
        runtime.loads, runtime.preflights, runtime.start_troubles, runtime.holders = {}, {}, {}, []
        runtime.stop_works, runtime.stop_seconds = True, 1.0
        self.world.door.finish()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories, st.sampled_from(TARGETS), st.booleans())
def test_whatever_happens(story, target, falls_back) -> None:
    async def main() -> None:
        player = Story()
        world = player.world
        await player.play(("plan", [(D, False, 1)]))
        await world.until(5)
        for pause, what in story:
            await world.until(now_ms() / 1000 + pause)
            await player.play(what)
            assert len(world.runtime.alive()) <= 1
        player.heal()
        world.plan(
            step(now_ms() / 1000 - 1, target, "reserved", fallback=D if falls_back and target is not D else None)
        )
        await world.until(now_ms() / 1000 + 2500)
        status = world.task.status()
        assert status["running"] == (target.identity if target else ""), status
        assert status["phase"] == ("ready" if target else "off"), status
        assert status["failure"] is None
        assert world.door.entry["open"] is True
        assert len(world.runtime.alive()) == (1 if target else 0)
        told = [e["id"] for e in world.told("recovered")]
        assert len(told) == len(set(told)), "a recovery is told once"
        await world.end()

    run(main())


def sometimes(most: float) -> st.SearchStrategy[float]:
    return st.integers(0, round(most * 10)).map(lambda n: n / 10)


tries = st.lists(
    st.one_of(
        st.tuples(st.just("dies"), sometimes(15)),
        st.tuples(st.just("missing"), st.just(0.0)),
        st.tuples(st.just("slow"), st.just(20.0)),
        st.tuples(st.just("serves"), st.sampled_from([0.5, 4.0, 50.0, 580.0, 590.0, 610.0, 2000.0])),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tries, st.booleans(), sometimes(40), st.lists(sometimes(3000), max_size=4))
def test_retries_come_exactly_when_the_rules_say(outcomes, falls_back, loads_in, restarts) -> None:
    """An oracle of its own: the times of failures and of the fallback's readiness are taken from what the engines did."""

    async def main() -> None:
        world = World(loads={"D": loads_in}, free_seconds=0.0, stop_seconds=0.0)
        world.timing = Timing(load_timeout=20.0, buffer=5.0)
        left, fails, looks = list(outcomes), [], []
        fallback = launch("D", load=loads_in, load_timeout=600.0)

        async def preflight(target: Launch) -> Trouble | None:
            if target.model != "A" or (looks and looks[-1][1]):
                return None
            missing = bool(left) and left[0][0] == "missing"
            looks.append([now_ms() / 1000, not missing])  # when, and whether a start follows
            if missing:
                left.pop(0)
                fails.append((now_ms() / 1000, 0.0))
            return Trouble("missing_file", "gone") if missing else None

        start = world.runtime.start

        async def started(target: Launch, reservation_id: str, now: int) -> Any:
            if target.model != "A":
                return await start(target, reservation_id, now)
            how, seconds = left.pop(0) if left else ("serves", 10_000.0)
            looks[-1][1] = False
            world.runtime.loads["A"] = "never" if how != "serves" else 3.0
            process = await start(target, reservation_id, now)
            engine = world.runtime.engines[process.launch_id]
            if how == "slow":
                fails.append((now / 1000 + 20.0, 0.0))
            elif how == "dies" or seconds < 10_000:
                after = min(seconds, 19.0) if how == "dies" else 3.0 + seconds
                fails.append((now / 1000 + after, seconds if how == "serves" else 0.0))
                asyncio.get_running_loop().call_later(after, world.runtime._die, engine, CRASH)
            return process

        def stopped(engine: Engine) -> None:
            if engine.process.model == "D" and (engine.ready_from is None or now_ms() < engine.ready_from):
                world.runtime.violations.append(f"a retry interrupts the fallback while it loads at {now_ms()}")

        world.runtime.on_stop = stopped
        world.runtime.preflight = preflight  # type: ignore[method-assign]
        world.runtime.start = started  # type: ignore[method-assign]
        world.plan(step(0, A, "reserved", fallback=fallback if falls_back else None))
        for at in sorted(restarts):
            await world.until(at)
            if world.task.view.phase == "ready" and not world.jobs:
                await world.restart()
        await world.until(40_000)
        assert left == []
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        served = [
            e.ready_from / 1000 for e in world.runtime.engines.values() if e.process.model == "D" and e.ready_from
        ]
        count = 0
        for (failed_at, had_served), (tried_at, _) in zip(fails, looks[1:], strict=True):
            count = 1 if had_served >= 601 or count == 0 else count + 1
            since = max([failed_at, *(at for at in served if at < tried_at and falls_back)])
            expected = since + min(30 * 2 ** (count - 1), 600)
            assert tried_at == pytest.approx(expected, abs=0.5), (count, failed_at, fails, looks, served)
        await world.end()

    run(main())

"""Failures, fallback, restarts of the agent, commands; and that what the task tells are the protocol's own messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.core.types import Timing
from agent.interfaces import Holder, Trouble
from protos import fleet_pb2, types_pb2
from tests.agent.channel_world import World, launch, step
from tests.agent.virtual_time import run

A, D = launch("A"), launch("D", load=10.0)
OOM = Trouble("out_of_memory", "out of GPU memory; lower -ngl or -c", "cudaMalloc failed")
RESERVED = step(0, A, "reserved", fallback=D, reservation_id="r1")


async def in_fallback(**runtime) -> World:
    """A failed at once, D serves in its place, 20 s."""
    world = World(loads={"A": OOM}, **runtime)
    world.plan(RESERVED)
    await world.until(20)
    assert (world.phase, world.task.status()["fallback"]) == ("ready", True)
    return world


def test_fallback_as_others_see_it() -> None:
    async def main() -> None:
        world = await in_fallback()
        entry, status = world.door.entry, world.task.status()
        assert (entry["fallback"], entry["serving"]["model"]) == (True, "D")
        assert entry["failure"]["category"] == "out_of_memory"
        assert (status["phase"], status["running_model"], status["failure"]["model"]) == ("ready", "D", "A")
        assert status["failure"]["detail"] == "cudaMalloc failed"
        (event,) = world.told("failed")
        assert (event["reservation_id"], event["failure"]["count"]) == ("r1", 1)
        await world.end()

    run(main())


def test_while_the_fallback_loads_the_next_try_is_not_known() -> None:
    async def main() -> None:
        world = World(loads={"A": OOM})
        world.plan(RESERVED)
        await world.until(5)
        assert (world.phase, world.task.status()["fallback"]) == ("loading", True)
        assert world.task.status()["failure"]["retry_at_ms"] == 0
        assert world.door.entry["loading"]["model"] == "D"
        await world.end()

    run(main())


def test_the_retry_drains_the_fallback_and_says_so() -> None:
    async def main() -> None:
        world = await in_fallback()
        world.runtime.loads["A"] = 20.0
        world.door.running = 1
        await world.until(45)
        assert world.phase == "draining"
        assert world.door.entry["switching"]["retry_drain"] is True
        world.door.finish()
        await world.until(80)
        status = world.task.status()
        assert (status["phase"], status["running_model"], status["fallback"], status["failure"]) == (
            "ready",
            "A",
            False,
            None,
        )
        assert world.told("recovered") == []
        await world.until(140)
        assert [e["reservation_id"] for e in world.told("recovered")] == ["r1"]
        await world.until(1000)
        assert len(world.told("recovered")) == 1
        assert world.task.view.failures == {}
        await world.end()

    run(main())


def test_a_first_try_that_cannot_succeed_does_not_interrupt_the_default() -> None:
    async def main() -> None:
        world = World(preflights={"A": Trouble("bad_argument", "unknown argument --foo")})
        world.plan(step(0, D), step(100, A, "preload", fallback=D, prepares_for=280_000, reservation_id="r1"))
        await world.until(120)
        assert world.stops() == []
        assert world.task.status()["failure"]["category"] == "bad_argument"
        await world.end()

    run(main())


def test_somebody_on_the_gpu_is_a_failed_look() -> None:
    async def main() -> None:
        world = await in_fallback()
        world.runtime.holders = [Holder("GPU-1", 7, "eve", "game", 10**9)]
        await world.until(60)
        assert (world.phase, world.stops()) == ("ready", [])
        failure = world.task.status()["failure"]
        assert (failure["category"], failure["count"]) == ("gpu_busy", 2)
        await world.end()

    run(main())


def test_without_fallback_a_failed_check_ends_what_is_not_wanted_all_the_same() -> None:
    async def main() -> None:
        world = World(preflights={"A": Trouble("missing_file", "gone")})
        world.plan(step(0, D), step(100, A, "reserved"))
        await world.until(110)
        assert (world.phase, world.runtime.alive()) == ("retry_wait", [])
        await world.end()

    run(main())


def test_the_fallback_crashes() -> None:
    async def main() -> None:
        world = await in_fallback()
        world.runtime.crash()
        await world.until(21)
        assert world.phase == "retry_wait"
        failure = world.task.status()["failure"]
        assert failure["model"] == "A"
        assert failure["retry_at_ms"] == pytest.approx(30_100, abs=200), "from the target's own failure again"
        assert len(world.told("failed")) == 2
        await world.end()

    run(main())


def test_a_default_that_exits_is_a_failure() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        world.runtime.crash()
        await world.until(21)
        assert (world.phase, world.task.status()["failure"]["count"]) == ("retry_wait", 1)
        await world.until(70)
        assert world.phase == "ready"
        await world.end()

    run(main())


def test_an_exit_in_a_planned_stop_is_none() -> None:
    async def main() -> None:
        world = World(stop_seconds=5.0)
        world.plan(step(0, D), step(50, None, "idle"))
        world.door.running = 0
        await world.until(52)
        assert world.phase == "stopping"
        world.runtime.crash()
        await world.until(60)
        assert (world.phase, world.events, world.task.view.failures) == ("off", [], {})
        await world.end()

    run(main())


def test_an_exit_in_a_drain_goes_on_with_the_switch() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D), step(50, A))
        await world.until(49)
        world.door.running = 1
        await world.until(51)
        world.runtime.crash()
        await world.until(53)
        assert (world.phase, world.events) == ("loading", [])
        assert world.starts("A") == [pytest.approx(51.1, abs=0.05)]
        await world.end()

    run(main())


def test_load_time_out() -> None:
    async def main() -> None:
        world = World(loads={"A": "never"})
        slow = replace(A, load_timeout=40.0)
        world.plan(step(0, slow, "reserved"))
        await world.until(42)
        failure = world.task.status()["failure"]
        assert (failure["category"], failure["last_ms"]) == ("load_timeout", pytest.approx(40_100, abs=210))
        assert "40 s" in failure["reason"]
        assert world.stops("A") == [pytest.approx(40.1, abs=0.21)]
        (result,) = world.loads
        assert (result["ok"], result["seconds"]) == (False, pytest.approx(40, abs=0.21))
        await world.end()

    run(main())


def test_a_start_that_fails() -> None:
    async def main() -> None:
        world = World(start_troubles={"A": Trouble("missing_library", "libcuda.so.1 is missing")})
        world.plan(step(0, A))
        await world.until(1)
        assert (world.phase, world.task.status()["failure"]["category"]) == ("retry_wait", "missing_library")
        await world.end()

    run(main())


def test_a_hung_engine_is_given_up() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        world.task.give_up("launch-1", Trouble("hung", "it answers no more"))
        await world.until(23)
        assert world.stops("D") == [20]
        assert (world.phase, world.task.status()["failure"]["category"]) == ("retry_wait", "hung")
        await world.end()

    run(main())


# The agent restarts


# Commands


def test_what_is_told_are_the_protocols_messages() -> None:
    async def main() -> None:
        world = await in_fallback()
        await world.until(300)
        for _, status in world.statuses:
            types_pb2.ChannelStatus(**status)
        for result in world.loads:
            assert fleet_pb2.LoadResult(**result).gpu_memory_bytes == (17 if result["ok"] else 0)
        for event in world.events:
            fleet_pb2.Event(**event)
        for previous, (at, status) in zip(world.statuses, world.statuses[1:], strict=False):
            assert status != previous[1], f"told twice at {at}"
        await world.end()

    run(main())


def test_neighbours_that_fail_do_not_end_the_task() -> None:
    async def main() -> None:
        world = World()

        async def broken(*_):
            raise OSError("no such thing")

        world.runtime.preflight = broken  # type: ignore[method-assign]
        world.runtime.wait_memory_free = broken  # type: ignore[method-assign]
        world.timing = Timing(drain=3.0)
        world.plan(step(0, D), step(50, A))
        world.door.close = broken  # type: ignore[method-assign]
        await world.until(130)
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        assert world.stops("D") == [53.0]
        await world.end()

    run(main())


def test_a_look_that_never_comes_back_is_a_failure_and_the_fallback_goes_on() -> None:
    """A disk that is gone: the start would hang as well. It is looked at again at the announced time."""

    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(50)
        world.runtime.check_seconds = 10_000.0
        world.plan(step(50, A, "reserved", fallback=D))
        await world.until(71)
        failure = world.task.status()["failure"]
        assert (failure["category"], failure["retry_at_ms"]) == ("hung", pytest.approx(100_000, abs=50))
        assert (world.phase, world.stops("D")) == ("ready", [])
        world.runtime.check_seconds = 0.0
        await world.until(101)
        assert world.stops("D") == [pytest.approx(100, abs=0.1)]
        await world.until(170)
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        await world.end()

    run(main())


def test_a_start_that_hangs_is_a_failure_in_words() -> None:
    async def main() -> None:
        world = World()

        async def hangs(*_):
            await asyncio.sleep(10_000)

        start, world.runtime.start = world.runtime.start, hangs  # type: ignore[method-assign]
        world.plan(step(0, D))
        await world.until(119)
        assert (world.phase, world.task.status()["failure"]) == ("loading", None)
        await world.until(121)
        failure = world.task.status()["failure"]
        assert (world.phase, failure["category"]) == ("retry_wait", "hung")
        assert "the engine's start hangs" in failure["reason"]
        world.runtime.start = start  # type: ignore[method-assign]
        await world.until(220)
        assert world.phase == "ready"
        await world.end()

    run(main())


def test_an_engine_that_cannot_be_ended_is_named_by_what_is_left() -> None:
    async def main() -> None:
        world = World(stop_works=False)
        world.plan(step(0, D), step(50, A))
        await world.until(49)

        async def left() -> list[int]:
            return [4711, 4712]

        world.runtime.leftovers = left  # type: ignore[method-assign]
        await world.until(120)
        assert world.phase == "blocked"
        (event,) = world.told("blocked")
        assert "(pids 4711, 4712)" in event["text"]
        await world.end()

    run(main())


def test_a_full_disk_does_not_keep_a_crash_from_being_dealt_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported and kept cannot be written: the engine comes back all the same, and the gateways know."""

    def full(*_):
        raise OSError(28, "No space left on device")

    async def main() -> None:
        world = World()
        world.break_disk(full)
        world.plan(step(0, D))
        await world.until(20)
        world.runtime.crash()
        await world.until(21)
        assert (world.phase, world.door.entry["phase"]) == ("retry_wait", "retry_wait")
        await world.until(130)
        assert (world.phase, world.door.entry["phase"]) == ("ready", "ready")
        world.faults.records.clear()  # it was logged
        await world.end()

    run(main())

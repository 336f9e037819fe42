"""A channel whose agent was away: what is adopted, what survives, what counts as a failure; with virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agent.channel_world import World, step
from tests.agent.test_channels_failures import OOM, A, D, in_fallback
from tests.agent.virtual_time import now_ms, run


def test_counts_survive_a_restart() -> None:
    async def main() -> None:
        world = World(loads={"A": OOM})
        world.plan(step(0, A, "reserved", reservation_id="r1"))
        await world.until(100)
        assert world.task.status()["failure"]["count"] == 3
        before = world.task.status()["failure"]
        await world.restart(away=5)
        await world.until(106)
        assert world.task.status()["failure"] == before
        assert len({e["id"] for e in world.events}) == 1, "a repetition has the same id"
        await world.until(300)
        assert world.starts("A")[3] == pytest.approx(210.4, abs=0.3)
        await world.end()

    run(main())


@pytest.mark.parametrize("at", [5, 100])
def test_adoption_goes_on_with_what_loads_or_runs(at) -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, A))
        await world.until(at)
        await world.restart(away=2)
        await world.until(at + 3)
        assert world.phase == ("loading" if at == 5 else "ready")
        await world.until(200)
        assert (world.phase, len(world.starts()), world.stops()) == ("ready", 1, [])
        assert len({r["id"] for r in world.loads}) == len(world.loads) == 1
        await world.end()

    run(main())


def test_the_time_of_readiness_survives() -> None:
    async def main() -> None:
        world = await in_fallback()
        world.runtime.loads["A"] = 5.0
        due = world.task.status()["failure"]["retry_at_ms"]
        await world.restart(away=3)
        await world.until(24)
        assert world.task.status()["failure"]["retry_at_ms"] == due
        await world.end()

    run(main())


def test_it_became_ready_while_no_agent_ran() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, A))
        await world.until(30)
        process = world.runtime.the_engine().process
        world.runtime.adopt = lambda: process  # type: ignore[method-assign]
        await world.restart(away=1000)
        await world.until(1040)
        assert (world.phase, world.stops(), world.loads) == ("ready", [], [])
        await world.end()

    run(main())


def test_another_target_after_a_restart_is_a_normal_switch() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        world.door.running = 1
        world.steps = (step(0, A),)
        await world.restart()
        await world.until(40)
        assert world.phase == "draining"
        await world.until(52)
        assert world.starts("A") == [pytest.approx(51.1, abs=0.2)]
        await world.end()

    run(main())


def test_it_died_while_no_agent_ran() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        process = world.runtime.the_engine().process
        await world.kill()
        world.runtime.crash()
        world.runtime.died_unwatched = replace(process, was_ready=True), OOM
        world.begin()
        await world.until(21)
        assert (world.phase, world.task.status()["failure"]["category"]) == ("retry_wait", "out_of_memory")
        await world.end()

    run(main())


def test_unreadable_records_are_no_hindrance() -> None:
    async def main() -> None:
        world = World()
        for bad in ({"failures": "?"}, {"failures": [{}]}, {"ready": 3}, {"blocked_since": "x"}):
            world.saved = bad
            world.steps = (step(0, D),)
            await world.restart()
            await world.until(now_ms() / 1000 + 20)
            assert world.phase == "ready"
        await world.end()

    run(main())

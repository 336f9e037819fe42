"""Commands to a channel: reload, retry now, stop the engines; with virtual time."""

from __future__ import annotations

import asyncio

import pytest

from agent.interfaces import Trouble
from tests.agent.channel_world import World, launch, step
from tests.agent.test_channels_failures import OOM, A, D, in_fallback
from tests.agent.virtual_time import run


def test_reload_cuts_at_once_and_loads_anew() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        world.door.running = 2
        ok, why = await world.task.command("reload")
        assert (ok, why) == (True, "D is being loaded anew")
        await world.until(21)
        assert [c[1] for c in world.door.calls] == ["cut"]
        shut = next(at for at, e in world.door.entries if at >= 20 and not e["open"])
        assert shut == 20.0
        assert world.stops("D") == [20]
        await world.until(40)
        assert (world.phase, len(world.starts("D"))) == ("ready", 2)
        assert world.events == []
        await world.end()

    run(main())


def test_reload_takes_an_edit_without_a_drain() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        world.door.running = 2
        world.plan(step(0, launch("D", version=2, load=10.0)))
        await world.until(22)
        assert world.phase == "draining"
        assert (await world.task.command("reload"))[0]
        await world.until(40)
        assert world.stops("D") == [22]
        assert world.task.status()["running"] == "id-D-None-2"
        await world.end()

    run(main())


def test_retry_now() -> None:
    async def main() -> None:
        world = World(loads={"A": OOM})
        world.plan(step(0, A, "reserved"))
        assert (await world.task.command("retry")) == (False, "A is not waiting for another try")
        await world.until(100)
        assert world.task.status()["failure"]["count"] == 3
        assert await world.task.command("retry") == (True, "A is tried now")
        await world.until(101)
        assert world.starts("A")[-1] == pytest.approx(100.1)
        assert world.task.status()["failure"]["count"] == 1
        assert len({e["id"] for e in world.told("failed")}) == 2, "the old episode has ended"
        await world.end()

    run(main())


def test_retry_now_interrupts_a_fallback_only_after_a_look() -> None:
    async def main() -> None:
        world = await in_fallback()
        world.runtime.preflights["A"] = Trouble("missing_file", "gone")
        assert (await world.task.command("retry"))[0]
        await world.until(22)
        assert (world.phase, world.stops(), world.task.status()["failure"]["count"]) == ("ready", [], 1)
        del world.runtime.preflights["A"]
        world.runtime.loads["A"] = 1.0
        assert (await world.task.command("retry"))[0]
        await world.until(26)
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        await world.end()

    run(main())


def test_stop_engines_holds_until_told_otherwise() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, D))
        await world.until(20)
        assert (await world.task.command("stop_engines"))[0]
        await world.until(60)
        assert (world.phase, world.stops("D")) == ("off", [20])
        world.plan(step(0, D))
        await world.until(80)
        assert world.phase == "off", "the same plan again is no change"
        assert (await world.task.command("retry"))[0]
        await world.until(100)
        assert world.phase == "ready"
        assert (await world.task.command("stop_engines"))[0]
        await world.until(110)
        world.plan(step(0, A))
        await world.until(200)
        assert (world.phase, world.task.status()["running_model"]) == ("ready", "A")
        await world.end()

    run(main())


def test_commands_that_cannot_be() -> None:
    async def main() -> None:
        world = World()
        world.plan(step(0, None, "idle"))
        for kind in ("reload", "retry"):
            assert await world.task.command(kind) == (False, "nothing should be loaded on this channel now")
        assert await world.task.command("dance") == (
            False,
            "there is no command 'dance': reload, retry or stop_engines",
        )
        waits = asyncio.ensure_future(world.task.command("reload"))
        await asyncio.sleep(0)
        world.running.cancel()
        assert (await waits)[0] is False
        await world.end()

    run(main())

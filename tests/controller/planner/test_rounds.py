"""The planner over a real database: its rounds. What wakes it, what each writes and carries over a restart, and what goes
wrong meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from controller.fleet import planner_store
from controller.fleet.live import LiveChannel
from controller.store.tables import Channel, Reservation
from tests.controller.planner_world import START, World
from tests.parts import BOTH

DATABASES = BOTH


def test_a_restart_changes_the_epoch_and_nothing_else(world) -> None:
    world.book("r1", 600, 1200)
    world.look(7)
    world.look(420)
    before = world.planner.plan_for("n1")
    world.planner = world.new_planner()
    world.look(500)
    after = world.planner.plan_for("n1")
    assert (before[0], after[0]) == (1, 2)
    assert after[1:] == before[1:]
    assert world.channel().steps[0].at_ms == START + 420_000


def test_down_over_a_start_and_an_end(world) -> None:
    world.book("r1", 600, 1200)
    world.book("r2", 1200, 1800, "B")
    world.look()
    world.planner = world.new_planner()
    assert world.look(1500) == [("B", "reserved"), ("D", "default")]
    assert world.channel().steps[0].at_ms == START + 1_200_000
    assert world.row(Reservation, "r1").status == "finished"
    assert world.row(Reservation, "r2").pinned["model"] == "B"


def test_only_what_a_target_can_depend_on_wakes_the_planner(world) -> None:
    world.look()
    looks = world.planner.looks
    world.says(LiveChannel("loading", running="x"))
    world.look(1)
    assert world.planner.looks == looks + 1
    for channel in (LiveChannel("ready", running="x"), LiveChannel("ready", running="x", detail="5 of 9")):
        world.says(channel)
    world.look(2)
    assert world.planner.looks == looks + 1
    world.live.update("n1", online=False)
    world.look(3)
    assert world.planner.looks == looks + 2


def test_a_node_that_cannot_be_planned_keeps_its_plan_and_the_others_go_on(world, caplog) -> None:
    world.add_node("n0", "main")
    world.look()
    before = world.planner.plan_for("n1")
    world.set(Channel, "n1/main", current_target={"no": "launch"})
    world.set(Channel, "n0/main", default_model="B")
    with world.store.write() as session:
        session.touch(all_channels=True)
    world.look(1)
    assert world.planner.plan_for("n1") == before
    assert world.channel("n0").launches[0].model == "B"
    assert "cannot be planned" in caplog.text
    assert world.planner.next_due() == START + 4000, "tried again a tick later, not in a loop"
    world.set(Channel, "n1/main", current_target=None)
    world.look(4)
    assert world.planner.next_due() is None


def test_a_booking_does_not_wait_for_a_long_round(world, monkeypatch) -> None:
    for index in range(2, 7):
        world.add_node(f"n{index}", "main")
    pushed: list[str] = []

    def push(node: str) -> None:
        pushed.append(node)
        if len(pushed) == 1:  # in the middle of the first round
            world.book("r1", 0, 600, channel_id="n5/main")

    monkeypatch.setattr("controller.fleet.planner.BATCH_NODES", 1)
    planner = world.new_planner(push)
    asyncio.run(planner.step())
    assert pushed[:3] == ["n1", "n5", "n2"]
    assert sorted(pushed) == ["n1", "n2", "n3", "n4", "n5", "n6"], "nobody is passed over, nobody told twice the same"
    assert planner.decision("n5", "main")[0].why == "reserved"


def test_what_is_urgent_is_not_forgotten_where_it_fails(world, monkeypatch) -> None:
    world.add_node("n2", "main")
    world.add_node("n3", "main")
    monkeypatch.setattr("controller.fleet.planner.BATCH_NODES", 1)

    def push(node: str) -> None:
        if world.row(Reservation, "r1") and not world.row(Reservation, "r3"):
            world.book("r3", 0, 600, channel_id="n3/main")
            monkeypatch.setattr(planner, "_nodes_of", away)

    def away(_ids: object) -> set[str]:
        raise RuntimeError("away for a moment")

    planner = world.new_planner(push)
    asyncio.run(planner.step())
    kept = planner._nodes_of
    world.book("r1", 0, 600, channel_id="n1/main")
    world.book("r2", 0, 600, channel_id="n2/main")
    with pytest.raises(RuntimeError, match="away for a moment"):
        asyncio.run(planner.step())
    monkeypatch.setattr(planner, "_nodes_of", kept)
    asyncio.run(planner.step())
    assert [planner.decision(f"n{i}", "main")[0].why for i in (1, 2, 3)] == ["reserved"] * 3


def test_somebody_was_faster(world, monkeypatch) -> None:
    """Between reading and writing the booking was changed: the result is dropped, the next round sees the change."""
    world.book("r1", 600, 1200)
    world.look()
    generation = world.generation()
    real = planner_store.apply

    def late(store, writes, epoch):
        monkeypatch.undo()
        world.set(Reservation, "r1", touch=False, version=2, ends_at=START + 1_300_000)
        return real(store, writes, epoch)

    monkeypatch.setattr(planner_store, "apply", late)
    assert world.look(420)[0] == ("D", "default"), "still the old plan"
    assert world.generation() == generation
    assert not world.row(Reservation, "r1").committed
    assert world.look()[0] == ("A", "preload")
    assert world.row(Reservation, "r1").committed


def test_the_number_of_statements_does_not_grow(world) -> None:
    world.look()
    for n in range(4):
        world.add_node(f"x{n}", *"abcd")
        for channel in "abcd":
            id_ = f"x{n}/{channel}"
            world.set(Channel, id_, touch=False, override_set_at=START, override_model="B")
            for i in range(3):
                world.book(f"{id_}{i}", 5000 + i * 1000, 5600 + i * 1000, channel_id=id_)
    world.look(1)
    world.set(Channel, "n1/main", override_set_at=START, override_model="B")
    world.look(2)
    seen = world.statements()
    world.planner.wake("n1/main")
    world.look(3)
    one = [s for s in seen if s.startswith("SELECT")]
    seen.clear()
    world.planner.wake()
    world.look(4)
    assert len([s for s in seen if s.startswith("SELECT")]) == len(one) <= 9
    assert not [s for s in seen if s.startswith("UPDATE")], "nothing changed: nothing is written"


def test_the_horizon_moves_on_the_whole_hour(world) -> None:
    world.book("r1", 49 * 3600 + 900, 49 * 3600 + 1800)
    assert world.look(10) == [("D", "default")]
    generation = world.generation()
    assert world.planner.next_due() == START + 3_600_000
    assert len(world.look(3600)) == 4
    assert world.generation() == generation + 1


def test_what_another_process_writes_is_noticed_by_the_tick(world) -> None:
    async def play() -> None:
        planner = world.planner
        await planner._notice_foreign_writes()
        await planner.step()
        with world.store.engine.execution_options(write=True).begin() as connection:
            connection.execute(text("UPDATE channels SET default_model = 'B'"))
            connection.execute(text("UPDATE revision SET number = number + 1"))
        await planner._notice_foreign_writes()
        await planner.step()

    asyncio.run(play())
    assert world.steps() == [("B", "default")]


def test_the_running_planner_wakes_for_commits_nodes_and_due_times(tmp_path) -> None:
    """The loop itself, with the real clock: nothing here waits for the safety tick."""
    import time

    world = World(tmp_path, tick_seconds=60)
    offset = START - time.time_ns() // 1_000_000
    type(world).now = property(lambda self: time.time_ns() // 1_000_000 + offset, lambda self, value: None)
    try:

        async def play() -> list[tuple[str, str]]:
            task = asyncio.create_task(world.planner.run())
            seen = []

            async def expect(first: tuple[str, str]) -> None:
                async with asyncio.timeout(20):
                    while world.planner.plan_for("n1") is None or world.steps()[0] != first:
                        await asyncio.sleep(0.002)
                seen.append(first)

            await expect(("D", "default"))
            await asyncio.to_thread(world.book, "r1", 3, 6)  # each target holds longer than a busy machine stalls
            await expect(("A", "preload"))
            await expect(("A", "reserved"))
            await expect(("D", "default"))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return seen

        assert len(asyncio.run(play())) == 4
        met = dict(world.planner.lateness.buckets())
        assert met["10.0"] == met["+Inf"], "not by the tick of 60 s"
    finally:
        del type(world).now
        world.store.close()


def test_every_change_is_logged_with_its_reason(world, caplog) -> None:
    caplog.set_level("INFO")
    world.book("r1", 100, 1200)
    world.look()
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("decided")]
    assert lines == ["decided channel=n1/main target='A' why=preload reservation=r1 until=+100s was=nothing"]


def test_a_higher_epoch_than_a_nodes(world) -> None:
    world.planner.outgrow(41)
    assert world.planner.epoch == 42
    world.planner = world.new_planner()
    assert world.planner.epoch == 43

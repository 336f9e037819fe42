"""What an agent keeps: plan, spool, node time, its lock; damaged files are set aside, never fatal."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.clock import NodeClock
from agent.errors import AgentError, NotEnrolled
from agent.spool import Item, Spool
from agent.state import SavedPlan, State


def test_the_plan_survives(tmp_path: Path) -> None:
    State(tmp_path).save_plan(SavedPlan(3, 4, b"a\nb\0c"))
    assert State(tmp_path).load_plan() == SavedPlan(3, 4, b"a\nb\0c")
    assert stat.S_IMODE((tmp_path / "plan.bin").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"{}", b"{}\n", b"\xff\xff", b'{"epoch": 1}\nx'])
def test_a_damaged_plan_is_ignored(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    state = State(tmp_path)
    (tmp_path / "plan.bin").write_bytes(damage)
    assert state.load_plan() is None
    assert "saved plan ignored" in caplog.text


def test_a_plan_cut_short_is_ignored(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.save_plan(SavedPlan(1, 1, b"0123456789"))
    path = tmp_path / "plan.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert state.load_plan() is None


def test_retry_records_and_commands_survive(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.load_retry("main") is None
    state.save_retry("main", {"failures": [1]})
    assert State(tmp_path).load_retry("main") == {"failures": [1]}
    state.remember_commands([str(i) for i in range(600)])
    assert State(tmp_path).begun_commands()[-1] == "599"
    assert len(State(tmp_path).begun_commands()) == 500
    (tmp_path / "commands.json").write_text("{")
    assert state.begun_commands() == []


def test_a_node_that_is_not_enrolled_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotEnrolled, match="slotserve node add"):
        State(tmp_path).identity()


def test_two_agents_never_run_on_one_folder(tmp_path: Path) -> None:
    lock = State(tmp_path).lock()
    try:
        assert (tmp_path / "agent.pid").read_text() == f"{os.getpid()}\n"
        code = (
            "import sys; from agent.state import State; from pathlib import Path\n"
            "try: State(Path(sys.argv[1])).lock()\n"
            "except Exception as err: print(type(err).__name__, err)"
        )
        said = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=30
        ).stdout
        assert said.startswith("AgentError")
        assert f"pid {os.getpid()}" in said
        with pytest.raises(AgentError, match="another agent"):
            State(tmp_path).lock()
    finally:
        os.close(lock)
    os.close(State(tmp_path).lock())


def item(number: int, kind: str = "usage") -> Item:
    return Item(f"i{number}", kind, bytes([number % 256]))


def test_the_spool_keeps_until_taken(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    assert spool.add([item(1), item(2), item(1)]) == [item(1), item(2)]
    assert spool.add([item(2)]) == []
    assert Spool(path).items() == [item(1), item(2)]
    spool.taken(["i1", "unknown"])
    assert Spool(path).items() == [item(2)]


def test_a_half_written_line_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    Spool(path).add([item(1)])
    with path.open("a") as file:
        file.write('{"id": "i2", "ki')
    spool = Spool(path)
    assert spool.items() == [item(1)]
    spool.add([item(3)])
    assert Spool(path).items() == [item(1), item(3)]


def test_a_full_spool_drops_the_oldest_usage_first(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl", limit=3)
    spool.add([item(1, "event"), item(2), item(3)])
    spool.add([item(4)])
    assert [i.id for i in spool.items()] == ["i1", "i3", "i4"]


def test_the_spools_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    for start in range(0, 6000, 100):
        spool.add([Item(f"n{i}", "usage", b"x") for i in range(start, start + 100)])
        spool.taken([f"n{i}" for i in range(start, start + 100)])
    assert len(path.read_text().splitlines()) < 2200


class World:
    """Two clocks that a test turns."""

    def __init__(self) -> None:
        self.boot_ms, self.wall_ms = 1_000_000, 1_700_000_000_000

    def clock(self, path: Path | None = None, boot_id: str = "boot-1") -> NodeClock:
        return NodeClock(path, lambda: self.boot_ms * 1_000_000, lambda: self.wall_ms * 1_000_000, boot_id)

    def pass_ms(self, ms: int) -> None:
        self.boot_ms += ms
        self.wall_ms += ms


def test_node_time_is_the_controllers_with_the_trip_halved() -> None:
    world = World()
    clock = world.clock()
    assert clock.now_ms() == world.wall_ms
    assert clock.anchor() is None
    asked = world.boot_ms * 1_000_000
    world.pass_ms(20)
    assert clock.skew_seconds() is None
    assert clock.measure(5_000_000, asked) == 5_000_010 - world.wall_ms
    assert clock.now_ms() == 5_000_010
    world.pass_ms(1000)
    before, skew = clock.wall_offset_ms(), clock.skew_seconds()
    world.wall_ms -= 3_600_000  # stepped
    assert clock.now_ms() == 5_001_010
    assert clock.wall_offset_ms() == before - 3_600_000
    assert clock.skew_seconds() == pytest.approx((skew or 0) - 3600)


def test_a_measurement_survives_a_restart_but_no_reboot(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "clock.json"
    world.clock(path).measure(5_000_000, world.boot_ms * 1_000_000)
    world.pass_ms(500)
    assert world.clock(path).now_ms() == 5_000_500
    world.boot_ms = 3
    assert world.clock(path, "boot-2").now_ms() == world.wall_ms
    path.write_text("{")
    assert world.clock(path).now_ms() == world.wall_ms


def test_a_slow_answer_does_not_replace_a_good_one() -> None:
    world = World()
    clock = world.clock()
    clock.measure(5_000_000, world.boot_ms * 1_000_000)
    asked = world.boot_ms * 1_000_000
    world.pass_ms(4000)
    assert clock.measure(5_000_000, asked) is None
    assert clock.now_ms() == 5_004_000
    future = (world.boot_ms + 1) * 1_000_000
    assert clock.measure(9_000_000, future) is None, "an answer from the future is none"
    world.pass_ms(3_600_000)
    assert clock.measure(9_000_000, world.boot_ms * 1_000_000) is not None


def test_answers_that_are_each_a_little_slower_do_not_wear_a_good_one_away() -> None:
    """As on a machine that gets busier: what all have said, node time is true to the best of them."""
    world = World()
    clock = world.clock()
    clock.measure(world.boot_ms, world.boot_ms * 1_000_000)
    for trip in range(1, 101):
        asked, said = world.boot_ms * 1_000_000, world.boot_ms
        world.pass_ms(trip)
        clock.measure(said, asked)  # all of it on the way back
        assert abs(clock.now_ms() - world.boot_ms) <= 1


@pytest.mark.parametrize("by", [3_600_000, -3_600_000])
def test_a_slow_answer_that_cannot_be_true_with_the_last_one_counts(by: int) -> None:
    """The controller's clock was set: waiting for an answer as quick as the last one may take for ever."""
    world = World()
    clock = world.clock()
    clock.measure(50_000_000, world.boot_ms * 1_000_000)
    asked = world.boot_ms * 1_000_000
    world.pass_ms(4000)
    assert clock.measure(50_002_000 + by, asked) == by
    assert clock.now_ms() == 50_004_000 + by


@given(st.integers(0, 10**7), st.integers(0, 2000), st.integers(-(10**9), 10**9))
def test_the_error_is_at_most_half_the_trip(offset: int, there: int, step: int) -> None:
    world = World()
    clock = world.clock()
    asked = world.boot_ms * 1_000_000
    world.pass_ms(there)
    controller_ms = world.boot_ms + offset
    world.pass_ms(2000 - there)
    clock.measure(controller_ms, asked)
    world.wall_ms += step
    assert abs(clock.now_ms() - (world.boot_ms + offset)) <= 1001

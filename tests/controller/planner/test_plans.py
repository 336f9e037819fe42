"""The planner over a real database: what is decided and what stands in the plans."""

from __future__ import annotations

import hashlib

from controller.fleet import planner_store
from controller.fleet.live import LiveChannel, LiveFailure
from controller.store.tables import Channel, Node, Preset, Reservation
from tests.controller.planner_world import START
from tests.parts import BOTH

DATABASES = BOTH


def test_a_booking_gives_a_new_plan_and_nothing_gives_none(world) -> None:
    assert world.look() == [("D", "default")]
    epoch, generation, plan, digest = world.planner.plan_for("n1")
    assert (epoch, generation, digest) == (1, 1, hashlib.sha256(plan).digest())
    assert world.pushed == ["n1"]

    world.planner.wake()
    world.look(5)
    assert world.planner.plan_for("n1") == (epoch, generation, plan, digest), "nothing changed: the same bytes"
    assert world.pushed == ["n1"]

    world.book("r1", 600, 1200)
    assert world.look(6) == [("D", "default"), ("A", "preload"), ("A", "reserved"), ("D", "default")]
    assert world.generation() == 2
    assert world.pushed == ["n1", "n1"]
    assert world.row(Node, "n1").generation == 2
    preload, reserved = world.channel().steps[1:3]
    assert (preload.at_ms, preload.prepares_for_ms) == (START + 420_000, START + 600_000)
    assert (reserved.access.holder_id, reserved.access.ends_at_ms) == ("ann", START + 1_200_000)
    assert reserved.access.holder_name == "", "names go to nodes only where everyone may see them"
    assert reserved.fallback == world.identity(0)


def test_pending_bookings_load_nothing(world) -> None:
    world.book("r1", 60, 1200, status="pending", approved_at=None)
    assert world.look() == [("D", "default")]


def test_due_times_are_met_and_life_goes_on(world) -> None:
    world.book("r1", 600, 1200)
    world.book("r2", 100, 130, status="pending", approved_at=None)
    world.look()
    assert world.planner.next_due() == START + 130_000
    world.look(130)
    assert world.row(Reservation, "r2").status == "expired"
    assert world.planner.next_due() == START + 420_000

    assert world.look(420)[0] == ("A", "preload")
    assert world.row(Reservation, "r1").committed
    assert world.channel().steps[0].at_ms == START + 420_000
    assert world.row(Reservation, "r1").pinned is None

    assert world.look(600.02)[0] == ("A", "reserved")
    assert world.channel().steps[0].at_ms == START + 600_000, "since when it holds, not when it was looked at"
    assert world.row(Reservation, "r1").pinned["identity"] == world.identity()
    assert not world.row(Reservation, "r1").committed

    assert world.look(1200)[0] == ("D", "default")
    finished = world.row(Reservation, "r1")
    assert (finished.status, finished.ended_at) == ("finished", START + 1_200_000)
    assert world.planner.next_due() is None
    assert world.planner.lateness.sum == 0.02
    assert world.planner.lateness.buckets()[-1] == ("+Inf", 4)


def test_a_preload_survives_a_shorter_estimate_and_a_restart(world) -> None:
    world.set(Channel, "n1/main", preload_lead_seconds=400)
    world.book("r1", 600, 1200)
    assert world.look(200)[0] == ("A", "preload")
    world.set(Channel, "n1/main", preload_lead_seconds=10)
    world.planner = world.new_planner()
    assert world.look(201)[0] == ("A", "preload")
    world.set(Reservation, "r1", committed=False, starts_at=START + 900_000, version=2)
    assert world.look(202)[0] == ("D", "default"), "moved: chosen anew"


def test_ending_early_is_looked_at_at_once(world) -> None:
    world.book("r1", 0, 1200)
    assert world.look(1)[0] == ("A", "reserved")
    world.set(Reservation, "r1", status="ended_early", ended_at=START + 50_000)
    assert world.look(50) == [("D", "default")]
    assert world.planner.next_due() is None


def test_an_override_ends_with_a_booking_that_began_also_if_it_was_ended_early(world) -> None:
    world.set(Channel, "n1/main", override_set_at=START, override_model="B")
    assert world.look(1)[0] == ("B", "override")
    world.book("r1", 10, 1200)
    world.look(10)
    world.set(Reservation, "r1", status="ended_early", ended_at=START + 20_000)
    assert world.look(20)[0] == ("D", "default")


def test_an_override_outlives_bookings_that_never_began(world) -> None:
    world.set(Channel, "n1/main", override_set_at=START, override_model=None)
    world.book("r1", 1000, 1200)
    world.look(1)
    world.set(Reservation, "r1", status="cancelled", ended_at=START + 2000)
    world.book("r2", 5, 8, status="rejected", approved_at=None)
    assert world.look(1300)[0] == ("-", "override")


def test_approved_after_its_start_begins_at_the_approval(world) -> None:
    world.set(Channel, "n1/main", override_set_at=START + 60_000, override_model="B")
    world.now = START + 100_000
    world.book("r1", 10, 1200)
    assert world.look(100)[0] == ("A", "reserved")
    assert world.channel().steps[0].access.starts_at_ms == START + 100_000
    assert world.look(1200)[0] == ("D", "default"), "it began after the override was set"


def test_a_preset_edit_acts_at_once_but_not_on_what_is_running(world) -> None:
    world.preset("-c", "8")
    world.book("r1", 600, 1200, preset="p")
    world.look(450)
    first = world.identity()
    world.preset("-c", "16")
    world.look(451)
    second = world.identity()
    assert second != first, "a preload takes the edit"
    world.look(600)
    world.preset("-c", "32")
    world.look(601)
    assert world.identity() == second, "a running booking keeps what it was started with"
    with world.store.write() as session:
        planner_store.repin(session, "r1")
        session.touch("n1/main")
    world.look(602)
    third = world.identity()
    assert third not in (first, second), "Reload takes the edit"
    assert world.row(Reservation, "r1").pinned["args"] == ["-c", "32"]
    world.set(Preset, "Ap", deleted_at=START + 603_000, args=["-c", "99"])
    world.look(603)
    assert world.identity() == third


def test_white_space_in_a_preset_is_no_edit(world) -> None:
    world.preset("-c", "8")
    world.set(Channel, "n1/main", default_model="A", default_preset="p")
    world.look()
    before = world.planner.plan_for("n1")
    world.preset(" -c ", "8 ", "")
    world.look(1)
    assert world.planner.plan_for("n1")[2] == before[2]


def test_an_edit_is_taken_while_its_target_waits_after_a_failure(world) -> None:
    world.preset("-c", "8")
    world.book("r1", 0, 1200, preset="p")
    world.look(1)
    failed = world.identity()
    failure = LiveFailure(failed, "A", "p", "crashed", "it died", 1, START, START, None, "e1")
    world.says(LiveChannel("retry_wait", failure=failure))
    world.preset("-c", "4")
    world.look(2)
    assert world.identity() != failed
    assert world.row(Reservation, "r1").pinned["args"] == ["-c", "4"]


def test_what_a_node_runs_counts_as_there(world) -> None:
    """C has just ended, A comes in 200 s: D would not be loaded, but it serves as fallback already."""
    world.look()
    default = world.identity()
    world.book("r0", 0, 100, "B")
    world.look(1)
    world.book("r1", 300, 900)
    world.says(LiveChannel("ready", running=default, fallback=True))
    assert world.look(100)[0] == ("D", "default")


def test_short_gap(world) -> None:
    world.book("r0", 0, 100, "B")
    world.look(1)
    world.book("r1", 300, 900)
    assert world.look(100)[0] == ("A", "short_gap")


def test_what_runs_is_kept_before_an_exclusive_booking(world) -> None:
    world.book("r0", 0, 100, "B")
    world.look(1)
    world.book("r1", 260, 900, None)
    assert world.look(100) == [("B", "short_gap"), ("-", "clearing"), ("-", "exclusive"), ("D", "default")]
    assert world.channel().steps[1].at_ms == START + 170_000
    assert world.look(101)[0] == ("B", "short_gap")


def test_a_nodes_own_settings_win(world) -> None:
    world.set(Node, "n1", own_settings={"stop_timeout_seconds": 0, "drain_seconds": 7.5})
    world.book("r1", 600, 900, None)
    world.look(1)
    settings = world.plan().settings
    assert (settings.stop_timeout_seconds, settings.drain_seconds, settings.load_timeout_seconds) == (0, 7.5, 600)
    assert world.channel().steps[1].at_ms == START + 540_000


def test_limits_of_requests_are_in_the_plan(world) -> None:
    world.book("r1", 600, 900, None)
    world.look(1)
    assert (world.channel().max_concurrent, world.channel().max_concurrent_per_key) == (0, 0)
    before = world.generation()
    world.set(Channel, "n1/main", policy={"max_hours": 2, "max_concurrent": 8, "max_concurrent_per_key": None})
    world.look(2)
    assert (world.channel().max_concurrent, world.channel().max_concurrent_per_key) == (8, 0)
    assert world.generation() == before + 1


def test_a_model_or_preset_that_is_gone_does_not_stop_the_planning(world) -> None:
    world.set(Channel, "n1/main", default_model="gone", default_preset="gone as well")
    world.book("r1", 600, 900, "never seen")
    assert [s[0] for s in world.look()] == ["gone", "never seen", "never seen", "gone"]
    assert {launch.engine for launch in world.channel().launches} == {"simulated"}


def test_channels_and_nodes_come_and_go(world) -> None:
    world.look()
    world.add_node("n2", "a", "b")
    world.look(1)
    assert [c.channel for c in world.plan("n2").channels] == ["a", "b"]
    world.set(Channel, "n2/a", gone_at=START, touch=False)
    world.planner.wake("n2/a")
    world.look(2)
    assert [c.channel for c in world.plan("n2").channels] == ["b"]
    world.set(Node, "n2", removed_at=START, touch=False)
    world.planner.wake()
    world.look(3)
    assert world.planner.plan_for("n2") is None

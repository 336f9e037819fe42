"""A plan as bytes: joined from its channels it is one well-formed Plan, the same every time, and complete."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fleet.encoding import channel_plan, node_plan, step_key
from controller.scheduling.plan import timetable
from controller.scheduling.types import ChannelInput, PlanStep, Reservation, Target
from controller.settings import Settings
from controller.store.launches import Launch
from protos import types_pb2

NOW = 1_800_000_000_000
A, D = Target("A", "p", "a", 1.5), Target("D", None, "d", 2)


def launch(target: Target, **more) -> Launch:
    known = Launch(
        identity=target.identity,
        model=target.model,
        preset=target.preset,
        engine="simulated",
        args=["-c", "8"],
        env={"B": "2", "A": "1"},
        load_timeout_seconds=None,
        load_seconds=target.load_seconds,
    )
    return {**known, **more}


LAUNCHES = {"a": launch(A, load_timeout_seconds=7.0), "d": launch(D)}
BOOKED = Reservation("r", NOW + 500_000, NOW + 600_000, "model", A, "ann", "Ann", ("bob",))
STEPS = timetable(ChannelInput((BOOKED,), D, current=D), NOW)


def test_steps_and_launches() -> None:
    plan = types_pb2.ChannelPlan.FromString(channel_plan("main", STEPS, NOW - 5, LAUNCHES, names=False))
    assert [s.why for s in plan.steps] == ["default", "preload", "reserved", "default"]
    assert [s.at_ms for s in plan.steps] == [NOW - 5, NOW + 320_000, NOW + 500_000, NOW + 600_000]
    assert [s.target for s in plan.steps] == ["d", "a", "a", "d"]
    assert [s.fallback for s in plan.steps] == ["", "d", "d", ""]
    assert [s.reservation_id for s in plan.steps] == ["", "r", "r", ""]
    assert [s.prepares_for_ms for s in plan.steps] == [0, BOOKED.start, 0, 0]
    assert [s.HasField("access") for s in plan.steps] == [False, False, True, False]
    access = plan.steps[2].access
    assert (access.kind, access.holder_id, list(access.participant_ids), access.holder_name) == (
        "model",
        "ann",
        ["bob"],
        "",
    )
    assert (access.starts_at_ms, access.ends_at_ms) == (BOOKED.start, BOOKED.end)
    assert {launch.identity: launch.HasField("preset") for launch in plan.launches} == {"a": True, "d": False}
    assert {launch.identity: launch.HasField("load_timeout_seconds") for launch in plan.launches} == {
        "a": True,
        "d": False,
    }


def test_names_only_where_everyone_may_see_them() -> None:
    plan = types_pb2.ChannelPlan.FromString(channel_plan("main", STEPS, NOW, LAUNCHES, names=True))
    assert plan.steps[2].access.holder_name == "Ann"


@given(st.lists(st.integers(0, 40), max_size=5), st.booleans())
@settings(max_examples=30, deadline=None)
def test_joined_pieces_are_the_whole_plan(sizes: list[int], own: bool) -> None:
    names = [f"c{n}" for n, _ in enumerate(sizes)]
    pieces = [
        channel_plan(name, [PlanStep(NOW + i, D, "default") for i in range(size + 1)], NOW, LAUNCHES, False)
        for name, size in zip(names, sizes, strict=True)
    ]
    mine = {"drain_seconds": 0.0} if own else {}
    whole = node_plan("n1", pieces, Settings(), mine)
    plan = types_pb2.Plan.FromString(whole)
    assert (plan.node, [c.channel for c in plan.channels]) == ("n1", names)
    assert plan.settings.drain_seconds == (0 if own else 30)
    assert plan.settings.HasField("drain_seconds")
    assert plan.SerializeToString(deterministic=True) == whole
    assert node_plan("n1", pieces, Settings(), mine) == whole


def test_environment_order_does_not_change_the_bytes() -> None:
    turned = {"d": launch(D, env={"A": "1", "B": "2"})}
    steps = [PlanStep(NOW, D, "default")]
    assert channel_plan("c", steps, NOW, turned, False) == channel_plan("c", steps, NOW, LAUNCHES, False)


def test_a_step_is_told_from_the_next_by_what_it_means() -> None:
    reserved = STEPS[2]
    assert step_key(reserved) == step_key(reserved._replace(at=1))
    longer = replace(BOOKED, end=BOOKED.end + 1)
    assert step_key(reserved) == step_key(reserved._replace(reservation=longer, running=longer)), "an extension is none"
    for other in (
        reserved._replace(why="preload"),
        reserved._replace(target=D),
        reserved._replace(fallback=None),
        reserved._replace(running=None),
        reserved._replace(running=replace(BOOKED, participant_ids=())),
    ):
        assert step_key(other) != step_key(reserved)

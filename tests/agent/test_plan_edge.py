"""From the wire into the types of the core: everything that is carried over, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.types import Access, Launch, Step
from agent.errors import PlanRefused
from agent.plan import NodePlan, parse
from protos import types_pb2


def make(**changes: object) -> types_pb2.Plan:
    access = types_pb2.Access(
        reservation_id="r", kind="model", holder_id="u1", participant_ids=["u2"], starts_at_ms=20, ends_at_ms=30
    )
    launches = [
        types_pb2.Launch(
            identity="a", model="A", preset="p", engine="llama.cpp", args=["-c", "4096"], env={"X": "1"}, load_seconds=9
        ),
        types_pb2.Launch(identity="d", model="D", engine="vllm", load_timeout_seconds=0.5),
    ]
    steps = [
        types_pb2.Step(at_ms=10, target="a", why="preload", fallback="d", reservation_id="r", prepares_for_ms=20),
        types_pb2.Step(at_ms=20, target="a", why="reserved", fallback="d", reservation_id="r", access=access),
        types_pb2.Step(at_ms=30, target="d", why="default"),
    ]
    settings = types_pb2.Settings(
        stop_timeout_seconds=0.0, drain_seconds=7, switch_buffer_seconds=5, show_holders="everyone"
    )
    plan = types_pb2.Plan(
        node="n1", channels=[types_pb2.ChannelPlan(channel="main", steps=steps, launches=launches)], settings=settings
    )
    for name, value in changes.items():
        setattr(plan, name, value)
    return plan


def read(plan: types_pb2.Plan, **own: float) -> NodePlan:
    return parse(plan.SerializeToString(), "n1", ["main", "other"], own)


def test_everything_is_carried_over() -> None:
    plan = read(make(), drain_seconds=3.0)
    a = Launch("a", "A", "p", "llama.cpp", ("-c", "4096"), {"X": "1"}, None, 9.0)
    d = Launch("d", "D", None, "vllm", (), {}, 0.5, 0.0)
    assert plan.channels == {
        "main": (
            Step(10, a, "preload", d, "r", None, 20),
            Step(20, a, "reserved", d, "r", Access("r", "model", "u1", frozenset({"u2"}), "", 20, 30)),
            Step(30, d, "default"),
        )
    }
    assert plan.timing.stop_timeout == 0.0, "a duration of 0 counts"
    assert plan.timing.drain == 3.0, "the node's own wins"
    assert plan.timing.retry_max == 600.0, "what is not said has its default"
    assert (plan.timing.buffer, plan.show_holders) == (5.0, "everyone")


def test_limits_of_requests() -> None:
    plan = make()
    assert read(plan).limits == {}
    plan.channels[0].max_concurrent_per_key = 3
    assert read(plan).limits == {"main": (0, 3)}
    plan.channels[0].max_concurrent = 8
    assert read(plan).limits == {"main": (8, 3)}


def _no_steps(plan: types_pb2.Plan) -> None:
    del plan.channels[0].steps[:]


def _no_launch(plan: types_pb2.Plan) -> None:
    del plan.channels[0].launches[:]


def _twice(plan: types_pb2.Plan) -> None:
    plan.channels.append(plan.channels[0])


def _kind(plan: types_pb2.Plan) -> None:
    plan.channels[0].steps[1].access.kind = "whole"


def _window(plan: types_pb2.Plan) -> None:
    plan.channels[0].steps[1].access.ends_at_ms = 20


def _order(plan: types_pb2.Plan) -> None:
    plan.channels[0].steps[2].at_ms = 20


def _bare(plan: types_pb2.Plan) -> None:
    plan.channels[0].launches[0].engine = ""


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_steps, "no step"),
        (_no_launch, "no launch is that"),
        (_twice, "twice"),
        (_kind, "kind 'whole'"),
        (_window, "ends before it starts"),
        (_order, "order of time"),
        (_bare, "without identity, model or engine"),
    ],
)
def test_what_makes_no_sense_is_refused(spoil: object, words: str) -> None:
    plan = make()
    spoil(plan)  # type: ignore[operator]
    with pytest.raises(PlanRefused, match=words):
        read(plan)


def test_undeclared_channels_are_passed_over_only_in_a_saved_plan() -> None:
    data = make().SerializeToString()
    with pytest.raises(PlanRefused, match="'main' is not declared"):
        parse(data, "n1", ["other"], {})
    assert parse(data, "n1", ["other"], {}, lenient=True).channels == {}


@given(st.data())
def test_a_cut_off_plan_never_raises_anything_else(data: st.DataObject) -> None:
    whole = make().SerializeToString()
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        parse(whole[:cut], "n1", ["main"], {})
    except PlanRefused:
        pass


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    try:
        parse(noise, "n1", ["main"], {})
    except PlanRefused:
        pass

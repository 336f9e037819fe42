"""The resolver: what it does in every phase, and that it gets there from every intermediate state."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from agent.core import actions as a
from agent.core import retry
from agent.core import step as s
from agent.core import view as v
from agent.core.types import Step, Timing
from agent.core.view import ChannelView, Drain
from tests.agent.core.machine import Machine, launch, running, views_on_the_way

A, B, D = launch("A"), launch("B", 300.0), launch("D")
TIMING = Timing()
DEFAULT = Step(0, D, "default")
RESERVED_A = Step(0, A, "reserved", fallback=D, reservation_id="r1")
RESERVED_B = Step(0, B, "reserved", reservation_id="r2")
NOTHING = Step(0, None, "idle")
STEPS = (DEFAULT, RESERVED_A, RESERVED_B, NOTHING)


def ready(what, step=DEFAULT, *, since: float = 0.0, **more) -> ChannelView:
    return ChannelView(phase="ready", step=step, process=running(what, since, since), **more)


def failure(what, at: float, count: int = 1) -> retry.Failure:
    record = None
    for _ in range(count):
        record = retry.failed(record, what, category="crashed", reason="no", detail="", now=round(at * 1000))
    assert record is not None
    return record


def failures(*records) -> dict[str, retry.Failure]:
    return {r.identity: r for r in records}


# The golden cases that are states (histories are in test_channels_golden.py)


def test_fallback_serves_until_the_retry() -> None:
    """A failed once, 10 s ago, D ready since 5 s ago: D serves, retry of A in 25 s."""
    view = ready(D, RESERVED_A, since=95, failures=failures(failure(A, 90)))
    action = s.next_action(view, 100_000)
    assert action == a.Wait("D is ready: D serves while A waits", 125_000)
    assert isinstance(s.next_action(view, 124_999), a.Wait)
    assert s.next_action(view, 125_000) == a.Preflight(
        "A is tried again after failure 1; looking at it before D is stopped", A, gpu=True
    )


def test_a_missing_file_never_disturbs_the_fallback() -> None:
    """A's file is missing, D ready for 20 min, the 7th look fails: D goes on undisturbed, next look in 600 s."""
    machine = Machine(ready(D, RESERVED_A, failures=failures(failure(A, 600, 6))), now=1_200_000, bad={"A": "fails"})
    machine.run()
    assert machine.done == ["Preflight", "Wait"]
    assert machine.view.failures[A.identity].count == 7
    assert s.next_action(machine.view, machine.now) == a.Wait("D is ready: D serves while A waits", 1_800_000)


def test_both_failed() -> None:
    """A failed 10 s ago, D failed 5 s ago as well: nothing, D again in 25 s, A in 20 s."""
    view = ChannelView(phase="retry_wait", step=RESERVED_A, failures=failures(failure(A, 90), failure(D, 95)))
    action = s.next_action(view, 100_000)
    assert isinstance(action, a.Wait)
    assert action.until == 120_000
    assert isinstance(s.next_action(view, 120_000), a.Prepare)
    without_a = replace(view, step=DEFAULT)
    assert s.next_action(without_a, 100_000).until == 125_000  # type: ignore[union-attr]


def test_an_edit_is_tried_at_once() -> None:
    edited = replace(A, identity="id-A-2")
    view = ChannelView(
        phase="retry_wait", step=replace(RESERVED_A, fallback=None), failures=failures(failure(A, 99, 7))
    )
    assert isinstance(s.next_action(view, 100_000), a.Wait)
    view = v.enter_step(view, replace(RESERVED_A, fallback=None, target=edited), None, TIMING)
    assert isinstance(s.next_action(view, 100_000), a.Prepare)


def test_an_unwanted_load_is_stopped_without_a_drain() -> None:
    """The plan moves from A to B while A is still loading: the load of A is stopped, B starts."""
    view = ChannelView(phase="loading", step=RESERVED_B, process=running(A))
    assert s.next_action(view, 1000) == a.Stop("A is not wanted any more: B should run (reserved)")
    machine = Machine(view).run()
    assert machine.done[0] == "Stop"
    assert "CloseAndDrain" not in machine.done
    assert machine.view.process is not None
    assert machine.view.process.identity == B.identity


# One decision each


def test_a_retry_never_interrupts_a_fallback_that_loads() -> None:
    view = ChannelView(
        phase="loading", step=RESERVED_A, process=running(D), failures=failures(failure(A, 0)), again_at=10**9
    )
    action = s.next_action(view, 500_000)
    assert isinstance(action, a.Wait)
    assert action.until == 600_000, "only its own load time-out"


def test_if_the_fallback_fails_the_interval_counts_from_the_target_again() -> None:
    view = ready(D, RESERVED_A, since=80, failures=failures(failure(A, 0)))
    assert s.next_action(view, 90_000).until == 110_000  # type: ignore[union-attr]
    dead, _, _ = v.record_failure(view, D, "crashed", "no", "", 90_000)
    assert isinstance(s.next_action(v.gone(v.ended(dead, "died", 90_000), 90_000), 90_000), a.Free)
    machine = Machine(v.ended(dead, "died", 90_000), now=90_000).run()
    assert machine.view.process is not None
    assert machine.view.process.identity == A.identity


def test_no_plan_yet_keeps_what_runs() -> None:
    view = replace(ready(D), step=None)
    assert isinstance(s.next_action(view, 10), a.Wait)
    assert isinstance(s.next_action(replace(view, process=None, phase="off"), 10), a.Wait)


def test_back_to_back_with_the_same_target_does_nothing() -> None:
    assert isinstance(s.next_action(ready(A, RESERVED_A), 10), a.Wait)
    assert isinstance(s.next_action(ready(A, Step(0, A, "reserved", reservation_id="other")), 10), a.Wait)


def test_load_time_out_from_process_start() -> None:
    view = ChannelView(phase="loading", step=DEFAULT, process=running(D, started=10), again_at=10**9)
    assert s.next_action(view, 609_999) == a.Wait("D is loading: D should run (default)", 610_000)
    assert isinstance(s.next_action(view, 610_000), a.GiveUp)
    unwatched = replace(view, again_at=0)
    assert isinstance(s.next_action(unwatched, 700_000), a.Probe), "it may have loaded while no agent ran"
    looking = replace(view, again_at=609_000, busy=frozenset({"probe"}))
    assert s.next_action(looking, 610_000) == a.Wait("D is loading: D should run (default)", 615_000)
    assert isinstance(s.next_action(looking, 615_000), a.GiveUp)
    own = Step(0, replace(D, load_timeout=5.0), "default")
    assert isinstance(s.next_action(replace(view, step=own), 15_000), a.GiveUp)


def test_reload_skips_the_drain_and_cuts() -> None:
    view = v.discard(ready(D), "reload")
    assert s.next_action(view, 10) == a.Stop("reload", cut=True, retry_after=90)
    draining = v.draining(ready(A), Drain(0, 30_000, ("x", None), in_flight=3), 0)
    assert s.next_action(v.discard(draining, "reload"), 10) == a.Stop("reload", cut=True, retry_after=90)


@pytest.mark.parametrize(
    ("step", "since", "deadline"),
    [
        (DEFAULT, 0, 30_000),
        (Step(0, A, "preload", prepares_for=180_000), 0, 30_000),
        (Step(0, A, "preload", prepares_for=115_000), 0, 25_000),  # 115 - 60 - 30
        (Step(0, A, "preload", prepares_for=90_000), 0, 0),
        (Step(0, A, "preload", prepares_for=89_999), 0, 30_000),  # booked late
        (Step(0, None, "clearing", prepares_for=90_000), 0, 30_000),
        (Step(0, None, "clearing", prepares_for=50_000), 0, 20_000),
        (Step(0, None, "clearing", prepares_for=29_999), 0, 30_000),
        (RESERVED_A, 0, 30_000),
    ],
)
def test_drain_deadline(step, since, deadline) -> None:
    assert s.drain_deadline(step, since, since, TIMING) == deadline


def test_a_target_that_changes_in_a_drain_takes_its_own_deadline_never_a_longer_one() -> None:
    view = ready(D, Step(0, A, "preload", prepares_for=400_000))
    machine = Machine(view, bad={"CloseAndDrain": "fails"})
    machine.turn()
    assert machine.view.drain is not None
    assert machine.view.drain.deadline == 30_000
    machine.now = 10_000
    machine.enter(Step(0, None, "clearing", prepares_for=55_000))
    machine.turn()
    assert machine.view.drain.deadline == 25_000
    machine.now = 20_000
    machine.enter(Step(0, None, "clearing", prepares_for=45_000))  # its latest has passed: the usual length
    machine.turn()
    assert machine.view.drain.deadline == 30_000


def test_the_drains_end_cuts() -> None:
    drain = Drain(0, 30_000, (A.identity, None), in_flight=2)
    view = v.draining(ready(D, Step(0, A, "reserved")), drain, 0)
    assert s.next_action(view, 29_999) == a.Wait("D finishes its requests: A should run (reserved)", 30_000)
    action = s.next_action(view, 30_000)
    assert action == a.Stop("the drain of D is over: A should run (reserved)", cut=True, retry_after=90)
    unanswered = v.draining(ready(D, Step(0, A, "reserved")), replace(drain, in_flight=None), 0)
    assert s.next_action(replace(unanswered, busy=frozenset({"close"})), 30_000).cut  # type: ignore[union-attr]


def test_only_an_acknowledged_zero_is_zero() -> None:
    drain = Drain(0, 30_000, (A.identity, None), in_flight=None)
    view = replace(v.draining(ready(D, Step(0, A, "reserved")), drain, 0), busy=frozenset({"close"}))
    assert isinstance(s.next_action(view, 10), a.Wait)
    assert s.next_action(v.in_flight(view, 0), 10) == a.Stop("D is drained: A should run (reserved)")


def test_stuck_and_held_by_others_start_nothing() -> None:
    stuck = v.stuck(v.stopping(ready(D, RESERVED_B), 0), "pid 7 is still there", 0)
    assert s.next_action(stuck, 100) == a.Wait("pid 7 is still there", 2000)
    assert isinstance(s.next_action(stuck, 2000), a.Stop)
    held = v.freed(ChannelView(phase="freeing", step=DEFAULT), "held", "somebody", 0)
    assert held.phase == "blocked"
    assert s.next_action(held, 10) == a.Wait("somebody", 1000)
    assert isinstance(s.next_action(held, 1000), a.Look)
    assert isinstance(s.next_action(v.enter_step(held, NOTHING, None, TIMING), 10), a.Rest)


def test_memory_held_by_nobody_is_said_and_started_upon() -> None:
    view = v.checked(v.freed(ChannelView(phase="freeing", step=DEFAULT), "2 GB stay in use", "", 0), D)
    assert s.next_action(view, 0) == a.Start("D should run (default); 2 GB stay in use", D, False, "")


def test_held_by_hand() -> None:
    view = v.discard(replace(ready(D), held=True), "by hand")
    assert isinstance(s.next_action(view, 0), a.Stop)
    machine = Machine(view).run()
    assert machine.view.phase == "off"
    assert machine.view.process is None


# From everywhere to everywhere

STARTS = [
    ChannelView(step=DEFAULT),
    ready(D, DEFAULT),
    ready(A, RESERVED_A),
    ready(D, RESERVED_A, failures=failures(failure(A, 0))),
    ChannelView(phase="loading", step=RESERVED_A, process=running(A)),
    v.discard(ready(D, DEFAULT), "reload"),
]
FAULTS: list[dict[str, str]] = [
    {},
    {"Start": "fails"},
    {"Stop": "fails"},
    {"Free": "fails"},
    {"A": "fails"},
    {"CloseAndDrain": "fails"},
    {"Probe": "fails"},
]


def every_view() -> dict[ChannelView, None]:
    found: dict[str, ChannelView] = {}
    for start, step in itertools.product(STARTS, STEPS):
        for view in views_on_the_way(start, step, FAULTS):
            found.setdefault(repr(view), view)
    return list(found.values())  # type: ignore[return-value]


VIEWS = every_view()


def test_the_views_cover_every_phase() -> None:
    phases = {view.phase for view in VIEWS}
    assert phases == {"off", "freeing", "loading", "ready", "draining", "stopping", "retry_wait", "blocked"}
    assert len(VIEWS) > 80


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.why}-{step.target.model if step.target else None}")
def test_from_every_intermediate_state_to_every_target(step) -> None:
    """A task that starts anew in any state, with any step, ends with what the step says, and starts nothing beside."""
    for view in VIEWS:
        machine = Machine(replace(view, busy=frozenset(), held=False), now=10_000_000)
        machine.enter(step)
        running_now = machine.run_until(step.target)
        assert running_now == (step.target.identity if step.target else None), (view, machine.done)
        assert machine.view.phase == ("ready" if step.target else "off")


def test_asked_twice_it_answers_the_same() -> None:
    for view, now in itertools.product(VIEWS, (0, 1000, 31_000, 700_000)):
        assert s.next_action(view, now) == s.next_action(view, now)


def test_a_wait_is_never_shorter_than_announced() -> None:
    """Until the announced instant the answer stays: so the task need not look in between."""
    for view, now in itertools.product(VIEWS, (0, 1000, 31_000, 700_000)):
        action = s.next_action(view, now)
        if not isinstance(action, a.Wait):
            continue
        ends = action.until if action.until is not None else now + 10**9
        if ends > now + 1:
            assert isinstance(s.next_action(view, ends - 1), a.Wait), (view, now, action)


def test_every_action_says_why() -> None:
    for view in VIEWS:
        assert s.next_action(view, 0).why

"""Intervals, episodes, recovery, edits, and what is kept over a restart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import retry
from agent.core.types import Launch, Timing

A = Launch("a1", "A", None, "simulated")
TIMING = Timing()


def fail(before, at: float, launch: Launch = A, **more):
    return retry.failed(
        before, launch, category="crashed", reason="it crashed", detail="", now=round(at * 1000), **more
    )


@pytest.mark.parametrize(
    ("count", "seconds"), [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 600), (7, 600), (10_000, 600)]
)
def test_intervals(count, seconds) -> None:
    assert retry.interval(count, TIMING) == seconds


def test_intervals_by_settings() -> None:
    assert [retry.interval(n, Timing(retry_min=0.2, retry_max=0.5)) for n in (1, 2, 3)] == [0.2, 0.4, 0.5]
    assert retry.interval(3, Timing(retry_min=9, retry_max=1)) == 9


def test_counted_from_the_later_of_failure_and_fallback() -> None:
    failure = fail(None, 100)
    assert retry.retry_at(failure, None, TIMING) == 130_000
    assert retry.retry_at(failure, 90_000, TIMING) == 130_000
    assert retry.retry_at(failure, 160_000, TIMING) == 190_000


def test_an_episode_counts_on_over_being_ready_for_a_short_time() -> None:
    first = fail(None, 0)
    ready = retry.settle(first, 100_000, 100_000, TIMING).failure
    assert ready is not None
    assert not ready.waiting
    second = fail(ready, 220)
    assert (second.count, second.since, second.episode, second.waiting) == (2, 0, first.episode, True)


def test_recovery_is_told_once_an_episode() -> None:
    failure = fail(None, 0)
    assert not retry.settle(failure, 10_000, 69_999, TIMING).tell_recovery
    told = retry.settle(failure, 10_000, 70_000, TIMING)
    assert told.tell_recovery
    assert told.failure is not None
    assert not retry.settle(told.failure, 10_000, 80_000, TIMING).tell_recovery
    again = fail(told.failure, 100)
    assert again.count == 2
    assert not retry.settle(again, 200_000, 300_000, TIMING).tell_recovery


def test_ten_minutes_ready_end_the_episode() -> None:
    failure = fail(None, 0)
    kept = retry.settle(failure, 10_000, 609_999, TIMING).failure
    assert kept is not None
    assert kept.count == 1
    assert retry.settle(failure, 10_000, 610_000, TIMING).failure is None


def test_a_long_buffer_leaves_only_the_recovery_to_be_told() -> None:
    timing = Timing(buffer=900)
    over = retry.settle(fail(None, 0), 0, 600_000, timing)
    assert over.failure is not None
    assert (over.failure.count, over.tell_recovery) == (0, False)
    assert retry.settles_at(over.failure, 0, timing) == 900_000
    assert retry.settle(over.failure, 0, 900_000, timing) == retry.Settled(None, True)
    assert fail(over.failure, 700).count == 1


def test_forgiving_begins_a_new_episode_and_forgets_no_recovery() -> None:
    failure = fail(fail(None, 0), 40)
    rest = retry.forgive(failure)
    assert rest is not None
    assert (rest.count, rest.waiting) == (0, False)
    assert retry.settle(rest, 100_000, 160_000, TIMING).tell_recovery
    new = fail(rest, 90)
    assert (new.count, new.since) == (1, 90_000)
    assert new.episode != failure.episode
    told = retry.settle(failure, 100_000, 160_000, TIMING).failure
    assert told is not None
    assert retry.forgive(told) is None


def test_an_edit_is_tried_at_once() -> None:
    failures = {"a1": fail(None, 0)}
    edited = Launch("a2", "A", None, "simulated")
    assert retry.take_edits(failures, [edited, None])["a2"].waiting is False
    assert retry.take_edits(failures, [A]) is failures
    longer = Launch("a1", "A", None, "simulated", load_timeout=900)
    assert retry.take_edits(failures, [longer])["a1"].waiting is False
    other_preset = Launch("a3", "A", "p", "simulated")
    assert retry.take_edits(failures, [other_preset]) is failures


def test_two_versions_at_once_are_no_edit_of_each_other() -> None:
    """A running reservation keeps what it was started with while the default is the edited one."""
    failures = {"a1": fail(None, 0)}
    assert retry.take_edits(failures, [A, Launch("a2", "A", None, "simulated")]) is failures


def test_records_survive_json() -> None:
    failures = {"a1": fail(fail(None, 0), 40, reservation_id="r1")}
    assert retry.from_json(json.loads(json.dumps(retry.to_json(failures)))) == failures


@pytest.mark.parametrize(
    "bad", [None, {}, [1], [{}], [{"identity": "x"}], [{**retry.to_json({"a": fail(None, 0)})[0], "count": "two"}]]
)
def test_bad_records_are_refused_in_words(bad) -> None:
    with pytest.raises(ValueError, match="failure records"):
        retry.from_json(bad)


def test_unknown_keys_of_a_newer_version_are_left_out() -> None:
    row = {**retry.to_json({"a1": fail(None, 0)})[0], "colour": "red"}
    assert retry.from_json([row])["a1"].count == 1


def test_only_the_newest_records_are_kept() -> None:
    many = {f"a{n}": fail(None, n, Launch(f"a{n}", f"m{n}", None, "simulated")) for n in range(100)}
    assert set(retry.prune(many)) == {f"a{n}" for n in range(36, 100)}


@given(st.lists(st.tuples(st.floats(0, 2000), st.floats(0, 2000)), max_size=12))
def test_what_settle_announces_is_when_it_changes(rounds) -> None:
    now, failure = 0, None
    for ready_for, failing_for in rounds:
        now += round(failing_for * 1000)
        failure = fail(failure, now / 1000)
        ready_at, end = now, now + round(ready_for * 1000)
        failure = retry.became_ready(failure)
        while failure is not None:
            at = retry.settles_at(failure, ready_at, TIMING)
            assert retry.settle(failure, ready_at, at - 1, TIMING).failure == failure
            if at > end:
                break
            changed = retry.settle(failure, ready_at, at, TIMING)
            assert changed.failure != failure
            failure = changed.failure
        now = end

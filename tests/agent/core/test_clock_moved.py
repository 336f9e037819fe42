"""Node time that is corrected in the middle of everything: whatever waits goes on waiting for as long as before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core import actions as a
from agent.core import retry
from agent.core import step as s
from agent.core import view as v
from agent.core.types import Timing
from tests.agent.core.machine import launch, running
from tests.agent.core.test_step import VIEWS

HOUR = 3_600_000


def later(action: a.Action, by: int) -> a.Action:
    """The same action, its instants in the new time."""
    match action:
        case a.Wait(why=why, until=until):
            return a.Wait(why, None if until is None else until + by)
        case a.CloseAndDrain(drain=drain):
            return replace(action, drain=replace(drain, since=drain.since + by, deadline=drain.deadline + by))
    return action


@pytest.mark.parametrize("by", [HOUR, -HOUR, 90_000])
def test_what_is_done_next_is_the_same(by: int) -> None:
    """In every state there is, at the instant of its last change and some time after it."""
    for view in VIEWS:
        for now in (view.phase_since, view.phase_since + 7_000, view.phase_since + 700_000):
            before = s.next_action(view, now)
            assert s.next_action(v.clock_moved(view, by), now + by) == later(before, by), (view, now)


def test_nobody_is_told_of_a_recovery_that_has_not_lasted() -> None:
    what = launch("A")
    failed = retry.failed(None, what, category="crashed", reason="no", detail="", now=0)
    view = v.ChannelView(phase="ready", process=running(what, 5, 10), failures={what.identity: failed}, timing=Timing())
    assert v.recovery_due(view, 69_999) is None
    assert v.recovery_due(view, 70_000) is not None
    moved = v.clock_moved(view, HOUR)
    assert v.recovery_due(moved, HOUR + 69_999) is None
    assert v.recovery_due(moved, HOUR + 70_000) is not None


def test_what_was_kept_by_a_clock_that_was_ahead() -> None:
    """After a restart: a failure of the future is one of now, and an engine began at the latest now."""
    what = launch("A")
    ahead = retry.failed(None, what, category="crashed", reason="no", detail="", now=HOUR)
    (kept,) = retry.not_ahead({what.identity: ahead}, 1000).values()
    assert retry.retry_at(kept, None, Timing()) == 31_000
    assert retry.not_ahead({what.identity: kept}, 2000) == {what.identity: kept}
    view = v.adopted(v.ChannelView(), running(what, HOUR / 1000), 1000)
    assert view.process is not None
    assert view.process.started_at == 1000

"""What should run on a channel now: the step's target, its fallback while the target waits, or nothing. Pure.

1. Engines stopped by hand: nothing.
2. No timetable yet: whatever runs.
3. The step names no target: nothing.
4. The target itself loads or runs, or has no failure that waits: the target.
5. Its next try is due: the target. Not while the fallback is still loading: it has to serve first.
6. Its fallback has no failure that waits, or one whose next try is due: the fallback.
7. Nothing, until the first of the two is due.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import retry
from agent.core.retry import Failure
from agent.core.types import Launch, Millis
from agent.core.view import ChannelView


@dataclass(frozen=True, slots=True)
class Choice:
    """`until`: when the answer can next change by itself (not by a step, which the view's `next_step_at` tells)."""

    launch: Launch | None
    why: str
    keep: bool = False  # whatever runs, nothing new
    as_fallback: bool = False
    retry: bool = False  # another try of a target that failed
    until: Millis | None = None


def choose(view: ChannelView, now: Millis) -> Choice:
    """What should run now, and why."""
    step = view.step
    if view.held:  # 1
        return Choice(
            None, "engines were stopped by hand; the next change of the plan, a reload or a retry starts them"
        )
    if step is None:  # 2
        return Choice(None, "there is no plan yet: what runs stays, nothing is started", keep=True)
    target, fallback = step.target, fallback_of(view)
    if target is None:  # 3
        return Choice(None, f"nothing should run ({step.why})")
    failure = waiting(view, target)
    if failure is None or _alive(view, target):  # 4
        return Choice(target, f"{name(target)} should run ({step.why})", retry=failure is not None)
    due = next_try(view, failure)
    if due is not None and now >= due:  # 5
        return Choice(target, f"{name(target)} is tried again after failure {failure.count}", retry=True)
    if fallback is not None:
        second = waiting(view, fallback)
        if second is None or _alive(view, fallback):  # 6
            return Choice(fallback, f"{name(fallback)} serves while {name(target)} waits", as_fallback=True, until=due)
        second_due = retry.retry_at(second, None, view.timing)
        if now >= second_due:
            return Choice(fallback, f"{name(fallback)} is tried again as fallback", as_fallback=True, until=due)
        first = second_due if due is None else min(due, second_due)
        return Choice(None, f"{name(target)} and its fallback {name(fallback)} failed and wait", until=first)
    return Choice(None, f"{name(target)} failed and waits for its next try: {failure.reason}", until=due)  # 7


def next_try(view: ChannelView, failure: Failure) -> Millis | None:
    """When the step's target is tried again; None while that is not known because the fallback is loading."""
    fallback = fallback_of(view)
    process = view.process
    ready_at = None
    if fallback is not None:
        if view.starting is not None and view.starting.identity == fallback.identity:
            return None
        if process is not None and process.identity == fallback.identity and not process.discard:
            if view.phase == "loading":
                return None
            ready_at = process.ready_at
    return retry.retry_at(failure, ready_at, view.timing)


def waiting(view: ChannelView, launch: Launch | None) -> Failure | None:
    """The failure that a launch waits after, if any."""
    failure = view.failures.get(launch.identity) if launch is not None else None
    return failure if failure is not None and failure.waiting else None


def fallback_of(view: ChannelView) -> Launch | None:
    """The step's fallback; none where it would be the target itself."""
    step = view.step
    if step is None or step.target is None or step.fallback is None or step.fallback.identity == step.target.identity:
        return None
    return step.fallback


def serves_as_fallback(view: ChannelView) -> bool:
    """What is loaded or loading is the fallback of a target that waits."""
    fallback = fallback_of(view)
    running = view.process.identity if view.process else view.starting.identity if view.starting else ""
    if fallback is None or running != fallback.identity:
        return False
    return waiting(view, view.step.target if view.step else None) is not None


def name(launch: Launch) -> str:
    """A target as people write it."""
    return launch.model if launch.preset is None else f"{launch.model}:{launch.preset}"


def _alive(view: ChannelView, launch: Launch) -> bool:
    if view.starting is not None:
        return view.starting.identity == launch.identity
    process = view.process
    if process is None or process.discard or view.phase not in ("loading", "ready", "draining"):
        return False
    return process.identity == launch.identity

"""What a channel's owner task knows, as one frozen value, and what each thing that happens makes of it.

Every function here is one event: old view in, new view out, the phase by the transition table. The task holds the view,
asks `agent.core.step.next_action` what to do about it, does that, and feeds back what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.core import retry
from agent.core.phases import Event, after
from agent.core.retry import Failure
from agent.core.types import Launch, Millis, Phase, Seconds, Step, Timing


@dataclass(frozen=True, slots=True)
class Running:
    """The engine there is: loading, ready, draining or being stopped, as the phase says."""

    launch_id: str
    identity: str
    model: str
    preset: str | None
    started_at: Millis
    ready_at: Millis | None = None
    pid: int = 0
    load_seconds: Seconds = 0.0
    watched: bool = True  # False: adopted while loading and not looked at yet, so when it was ready is not known
    discard: str = ""  # why it must go whatever the plan says: reload, failure, stop engines


@dataclass(frozen=True, slots=True)
class Drain:
    """Closed to new requests since `since`. `in_flight` is None until every gateway has acknowledged."""

    since: Millis
    deadline: Millis
    to: tuple[str, Millis | None]  # what the deadline was made for: identity of the target, `prepares_for`
    retry: bool = False  # the fallback is drained for another try of the target
    in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelView:
    """All that decides about a channel. `busy`: the jobs under way now, of close, stop, free, look, preflight, start, probe."""

    phase: Phase = "off"
    phase_since: Millis = 0
    step: Step | None = None
    next_step_at: Millis | None = None
    timing: Timing = field(default_factory=Timing)
    process: Running | None = None
    starting: Launch | None = None
    drain: Drain | None = None
    stop_since: Millis | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)
    checked: str = ""  # identity of the launch that passed the preflight for the coming start
    freed: bool = False
    note: str = ""  # what is said along with the next start: memory that stays held by nobody
    holders: str = ""  # who holds the GPU, in words
    blocked_since: Millis = 0
    again_at: Millis = 0  # the next look: is it ready, is the GPU free, is it gone
    held: bool = False  # engines were stopped by hand
    busy: frozenset[str] = frozenset()


def enter_step(view: ChannelView, step: Step | None, next_step_at: Millis | None, timing: Timing) -> ChannelView:
    """The step in force by the clock. What was edited meanwhile is tried at once."""
    failures = view.failures
    if step is not None:
        failures = retry.take_edits(failures, (step.target, step.fallback))
    return replace(view, step=step, next_step_at=next_step_at, timing=timing, failures=failures)


def clock_moved(view: ChannelView, by: Millis) -> ChannelView:
    """Node time was corrected by so many ms (the controller's clock was set, or this node began with a wrong one): what
    has begun has lasted as long as before. The timetable's instants are the new time's already."""
    process, drain = view.process, view.drain
    if process is not None:
        ready_at = None if process.ready_at is None else process.ready_at + by
        process = replace(process, started_at=process.started_at + by, ready_at=ready_at)
    if drain is not None:
        drain = replace(drain, since=drain.since + by, deadline=drain.deadline + by)
    return replace(
        view,
        phase_since=view.phase_since + by,
        process=process,
        drain=drain,
        stop_since=None if view.stop_since is None else view.stop_since + by,
        failures=retry.moved(view.failures, by),
        blocked_since=view.blocked_since + by if view.blocked_since else 0,
        again_at=view.again_at + by,
    )


def adopted(view: ChannelView, process: Running, now: Millis) -> ChannelView:
    """An engine that ran before this agent started."""
    process = replace(process, started_at=min(process.started_at, now))  # else its clock was ahead then
    event: Event = "adopted_loading" if process.ready_at is None else "adopted_ready"
    return _move(replace(view, process=process, again_at=now, blocked_since=0), event, now)


def preparing(view: ChannelView, now: Millis) -> ChannelView:
    """Something is to be started: GPU memory first."""
    return _move(replace(view, freed=False, note="", holders="", checked=""), "prepare", now)


def freed(view: ChannelView, note: str, holders: str, now: Millis) -> ChannelView:
    """GPU memory has been waited for: free, held by nobody (`note`), or held by a foreign process (`holders`)."""
    if view.phase != "freeing":
        return view
    if not holders:
        return replace(view, freed=True, note=note, holders="")
    return held_by_others(view, holders, now)


def held_by_others(view: ChannelView, holders: str, now: Millis, poll: Seconds = 1.0) -> ChannelView:
    """Nothing can be started beside a foreign process; it is looked at again every `poll` seconds."""
    since = view.blocked_since or now
    view = replace(view, holders=holders, blocked_since=since, freed=False, again_at=now + round(poll * 1000))
    return _move(view, "held", now)


def checked(view: ChannelView, launch: Launch) -> ChannelView:
    """The preflight found nothing."""
    return replace(view, checked=launch.identity)


def starting(view: ChannelView, launch: Launch, now: Millis) -> ChannelView:
    """The program is being started."""
    return _move(replace(view, starting=launch, process=None, checked="", blocked_since=0, holders=""), "start", now)


def started(view: ChannelView, process: Running, now: Millis) -> ChannelView:
    """There is a process; whether it answers is asked at once."""
    return replace(view, starting=None, process=process, again_at=now)


def not_started(view: ChannelView, now: Millis) -> ChannelView:
    """The program could not be started (the failure is recorded with `record_failure`)."""
    return _move(replace(view, starting=None, process=None, freed=False), "not_started", now)


def ready(view: ChannelView, now: Millis) -> ChannelView:
    """The engine answers."""
    if view.process is None:
        return view
    failures = view.failures
    failure = failures.get(view.process.identity)
    if failure is not None:
        failures = {**failures, failure.identity: retry.became_ready(failure)}
    view = replace(view, process=replace(view.process, ready_at=now), failures=failures, note="")
    return _move(view, "ready", now)


def draining(view: ChannelView, drain: Drain, now: Millis) -> ChannelView:
    """Closed to new requests, or, where it is already, with another deadline."""
    if view.drain is not None:
        return replace(view, drain=replace(drain, in_flight=view.drain.in_flight))
    return _move(replace(view, drain=drain), "close", now)


def in_flight(view: ChannelView, count: int) -> ChannelView:
    """Every gateway has acknowledged, or requests have finished since."""
    return view if view.drain is None else replace(view, drain=replace(view.drain, in_flight=count))


def called_off(view: ChannelView, now: Millis) -> ChannelView:
    """The target became again what still runs."""
    return _move(replace(view, drain=None, checked=""), "call_off", now)


def discard(view: ChannelView, why: str) -> ChannelView:
    """What runs must go whatever the plan says, without a drain."""
    return view if view.process is None else replace(view, process=replace(view.process, discard=why))


def stopping(view: ChannelView, now: Millis) -> ChannelView:
    """SIGTERM goes out."""
    if view.phase in ("stopping", "blocked"):
        return view
    return _move(replace(view, drain=None, stop_since=now), "stop", now)


def ended(view: ChannelView, why: str, now: Millis) -> ChannelView:
    """The engine ended by itself, or is given up: what is left of its tree is cleared away before anything else."""
    return _move(replace(discard(view, why), drain=None, stop_since=now), "exit", now)


def gone(view: ChannelView, now: Millis) -> ChannelView:
    """Nothing of the process is left."""
    view = replace(view, process=None, stop_since=None, freed=False, note="", holders="", blocked_since=0)
    return _move(view, "gone", now)


def stuck(view: ChannelView, words: str, now: Millis, again: Seconds = 2.0) -> ChannelView:
    """Still there 30 s after SIGKILL."""
    since = view.blocked_since or now
    return _move(replace(view, holders=words, blocked_since=since, again_at=now + round(again * 1000)), "stuck", now)


def resting(view: ChannelView, waits: bool, now: Millis) -> ChannelView:
    """Nothing runs: because nothing should, or because what should waits for its next try."""
    if view.phase == ("retry_wait" if waits else "off"):
        return view
    view = replace(view, freed=False, blocked_since=0, holders="")
    return _move(view, "wait" if waits else "rest", now)


def record_failure(
    view: ChannelView, launch: Launch, category: str, reason: str, detail: str, now: Millis
) -> tuple[ChannelView, Failure, bool]:
    """One more failure of a target; also the record, and whether a new episode begins with it."""
    before = settled(view, now).failures.get(launch.identity)
    failure = retry.failed(
        before,
        launch,
        category=category,
        reason=reason,
        detail=detail,
        now=now,
        reservation_id=view.step.reservation_id if view.step else "",
    )
    failures = retry.prune({**view.failures, launch.identity: failure})
    return replace(view, failures=failures, checked=""), failure, failure.count == 1


def settled(view: ChannelView, now: Millis) -> ChannelView:
    """Time passes for what is ready: its recovery becomes due, its episode ends."""
    failure = _of_ready(view)
    if failure is None or view.process is None or view.process.ready_at is None:
        return view
    after_it = retry.settle(failure, view.process.ready_at, now, view.timing).failure
    if after_it == failure:
        return view
    others = {k: v for k, v in view.failures.items() if k != failure.identity}
    return replace(view, failures=others if after_it is None else {**others, failure.identity: after_it})


def recovery_due(view: ChannelView, now: Millis) -> Failure | None:
    """The episode whose recovery is to be told now, before `settled` marks it told."""
    failure = _of_ready(view)
    if failure is None or view.process is None or view.process.ready_at is None:
        return None
    return failure if retry.settle(failure, view.process.ready_at, now, view.timing).tell_recovery else None


def forgive(view: ChannelView) -> ChannelView:
    """ "Retry now": what the step names is tried at once."""
    failures = dict(view.failures)
    for launch in (view.step.target, view.step.fallback) if view.step else ():
        failure = failures.pop(launch.identity, None) if launch else None
        rest = retry.forgive(failure) if failure else None
        if rest is not None:
            failures[rest.identity] = rest
    return replace(view, failures=failures, checked="")


def _of_ready(view: ChannelView) -> Failure | None:
    if view.phase not in ("ready", "draining") or view.process is None or view.process.discard:
        return None
    return view.failures.get(view.process.identity)


def _move(view: ChannelView, event: Event, now: Millis) -> ChannelView:
    phase = after(view.phase, event)
    return view if phase == view.phase else replace(view, phase=phase, phase_since=now)

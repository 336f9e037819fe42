"""What a channel's owner task should do now: one action at a time, from what there is and what should be. Pure.

The resolver is safe to interrupt: every answer follows from the view alone, so that a task that starts anew in any
intermediate state goes on from there, and a target that changes on the way is honoured at the first safe point.
A switch runs  ready -> draining -> stopping -> freeing -> loading -> ready.  An action whose job is under way already
(`view.busy`) is not asked for again.
"""

from __future__ import annotations

import math

from agent.core import actions as do
from agent.core import retry
from agent.core.choice import Choice, choose, fallback_of, name
from agent.core.types import Launch, Millis, Step, Timing
from agent.core.view import ChannelView, Drain

PROBE_FIRST, PROBE_LAST = 25, 200  # ms between two looks whether an engine is ready
LAST_LOOK = 5000  # ms that a look under way may outlast the load time-out


def next_action(view: ChannelView, now: Millis) -> do.Action:
    """The next thing to do for this channel, with a sentence saying why."""
    choice = choose(view, now)
    match view.phase:
        case "ready":
            return _ready(view, choice, now)
        case "draining":
            return _draining(view, choice, now)
        case "loading":
            return _loading(view, choice, now)
        case "stopping":
            return _stopping(view, choice)
        case "freeing":
            return _freeing(view, choice)
        case "blocked":
            return _blocked(view, choice, now)
        case _:
            return _nothing_runs(view, choice)


def drain_deadline(step: Step | None, since: Millis, now: Millis, timing: Timing) -> Millis:
    """When a drain that began at `since` ends. Before a reservation: early enough to stop and load until its start;
    booked too late for that, the drain's usual length counts."""
    usual = since + round(timing.drain * 1000)
    if step is None or step.prepares_for is None:
        return usual
    load = step.target.load_seconds if step.target is not None else 0.0
    latest = step.prepares_for - round((load + timing.stop_timeout) * 1000)
    return usual if latest < now else min(usual, latest)


def ready_estimate(view: ChannelView, launch: Launch | None, now: Millis) -> Millis:
    """When what a switch goes to should be ready: drain left + stop + load."""
    stop = round(view.timing.stop_timeout * 1000)
    load = round(launch.load_seconds * 1000) if launch is not None else 0
    if view.drain is not None:
        return view.drain.deadline + stop + load
    if view.stop_since is not None:
        return view.stop_since + stop + load
    return (view.phase_since if view.phase == "freeing" else now) + load


def probe_interval(elapsed: Millis) -> Millis:
    """Often at first, then every fiftieth of the time it has been loading: never late by much."""
    return max(PROBE_FIRST, min(PROBE_LAST, elapsed // 50))


def _ready(view: ChannelView, choice: Choice, now: Millis) -> do.Action:
    process = view.process
    if process is None:
        return do.Stop("the engine is not there any more")
    if process.discard:
        return _cut(view, choice, process.discard)
    if choice.keep or _is(choice, process.identity):
        return do.Wait(f"{process.model} is ready: {choice.why}", _until(view, choice))
    checking = _check_first(view, choice)
    if isinstance(checking, do.Preflight):
        return checking
    if checking:
        return do.Wait(f"{choice.why}: looking at what can be known without stopping anything", view.next_step_at)
    return do.CloseAndDrain(f"{choice.why}; {process.model} is drained first", _drain(view, choice, now, now))


def _draining(view: ChannelView, choice: Choice, now: Millis) -> do.Action:
    process, drain = view.process, view.drain
    if process is None or drain is None:
        return do.Stop("the engine is not there any more")
    if process.discard:
        return _cut(view, choice, process.discard)
    if choice.keep or _is(choice, process.identity):
        return do.CallOffDrain(f"the drain is called off: {choice.why}")
    checking = _check_first(view, choice)
    if isinstance(checking, do.Preflight):
        return checking
    wanted = _drain(view, choice, drain.since, now)
    if wanted.to != drain.to or wanted.retry != drain.retry:
        return do.CloseAndDrain(f"{choice.why}; {process.model} is being drained already", wanted)
    if drain.in_flight == 0 and not checking:
        return do.Stop(f"{process.model} is drained: {choice.why}")
    if now >= drain.deadline:
        return _cut(view, choice, f"the drain of {process.model} is over: {choice.why}")
    if drain.in_flight is None and "close" not in view.busy:
        return do.CloseAndDrain(f"{choice.why}; the gateways are asked again", drain)
    until = _earliest(drain.deadline, view.next_step_at, choice.until)
    return do.Wait(f"{process.model} finishes its requests: {choice.why}", until)


def _loading(view: ChannelView, choice: Choice, now: Millis) -> do.Action:
    process = view.process
    if process is None:
        if "start" in view.busy:
            return do.Wait(f"starting: {choice.why}", view.next_step_at)
        return do.Stop("the start was interrupted")
    if process.discard:
        return do.Stop(process.discard)
    if not choice.keep:
        if choice.launch is None or choice.launch.identity != process.identity:
            return do.Stop(f"{process.model} is not wanted any more: {choice.why}")
        timeout = choice.launch.load_timeout or view.timing.load_timeout
        ends = process.started_at + round(timeout * 1000)
    else:
        ends = None
    probing = "probe" in view.busy
    if not probing and now >= view.again_at:  # one look comes before giving up: it may have loaded unwatched
        return do.Probe(f"{process.model} is loading: {choice.why}")
    if probing and ends is not None and now >= ends:
        ends = max(ends, view.again_at) + LAST_LOOK
    if ends is not None and now >= ends:
        assert choice.launch is not None
        return do.GiveUp(f"{process.model} was not ready within {timeout:g} s", choice.launch, timeout)
    again = None if probing else view.again_at
    return do.Wait(f"{process.model} is loading: {choice.why}", _earliest(again, ends, view.next_step_at, choice.until))


def _stopping(view: ChannelView, choice: Choice) -> do.Action:
    if "stop" not in view.busy:
        return do.Stop(f"stopping: {choice.why}")
    if choice.launch is not None and choice.launch.identity != view.checked and "preflight" not in view.busy:
        return do.Preflight(f"{choice.why}; looking at it while the last engine stops", choice.launch, gpu=False)
    words = f"{view.process.model} is being stopped" if view.process else "being stopped"
    return do.Wait(f"{words}: {choice.why}", _earliest(view.next_step_at, choice.until))


def _freeing(view: ChannelView, choice: Choice) -> do.Action:
    if not view.freed and "free" not in view.busy:
        return do.Free(f"waiting for GPU memory: {choice.why}")
    launch = choice.launch
    if launch is not None and launch.identity != view.checked:
        if "preflight" not in view.busy:
            return do.Preflight(f"{choice.why}; looking at it first", launch, gpu=False)
        return do.Wait(f"{choice.why}; looking at it first", _earliest(view.next_step_at, choice.until))
    if not view.freed:
        return do.Wait(f"waiting for GPU memory: {choice.why}", _earliest(view.next_step_at, choice.until))
    if launch is None:
        return _rest(choice)
    why = f"{choice.why}; {view.note}" if view.note else choice.why
    return do.Start(why, launch, choice.as_fallback, view.step.reservation_id if view.step else "")


def _blocked(view: ChannelView, choice: Choice, now: Millis) -> do.Action:
    if view.process is not None:
        if "stop" not in view.busy and now >= view.again_at:
            return do.Stop(view.holders)
        return do.Wait(view.holders, None if "stop" in view.busy else view.again_at)
    if choice.launch is None:
        return _rest(choice)
    if "look" not in view.busy and now >= view.again_at:
        return do.Look(view.holders)
    return do.Wait(view.holders, _earliest(None if "look" in view.busy else view.again_at, view.next_step_at))


def _nothing_runs(view: ChannelView, choice: Choice) -> do.Action:
    if choice.launch is not None:
        return do.Prepare(choice.why)
    rest = _rest(choice)
    if rest.waits != (view.phase == "retry_wait"):
        return rest
    return do.Wait(choice.why, _earliest(view.next_step_at, choice.until))


def _rest(choice: Choice) -> do.Rest:
    return do.Rest(choice.why, waits=choice.until is not None)


def _check_first(view: ChannelView, choice: Choice) -> do.Preflight | bool:
    """What runs is the fallback: is it worth being interrupted? The look, True while it is under way, False when done."""
    fallback, process = fallback_of(view), view.process
    if choice.launch is None or fallback is None or process is None or process.identity != fallback.identity:
        return False
    if choice.launch.identity == view.checked:
        return False
    if "preflight" in view.busy:
        return True
    return do.Preflight(f"{choice.why}; looking at it before {name(fallback)} is stopped", choice.launch, gpu=True)


def _drain(view: ChannelView, choice: Choice, since: Millis, now: Millis) -> Drain:
    target = choice.launch.identity if choice.launch else ""
    prepares_for = view.step.prepares_for if view.step else None
    deadline = drain_deadline(view.step if not view.held else None, since, now, view.timing)
    retry_drain = choice.retry and view.process is not None and _is_fallback(view, view.process.identity)
    return Drain(since, deadline, (target, prepares_for), retry_drain)


def _cut(view: ChannelView, choice: Choice, why: str) -> do.Stop:
    load = choice.launch.load_seconds if choice.launch is not None else 0.0
    return do.Stop(why, cut=True, retry_after=max(1, math.ceil(view.timing.stop_timeout + load)))


def _until(view: ChannelView, choice: Choice) -> Millis | None:
    """When a channel whose engine is ready must be looked at again."""
    process = view.process
    settles = None
    failure = view.failures.get(process.identity) if process is not None else None
    if failure is not None and process is not None and process.ready_at is not None:
        settles = retry.settles_at(failure, process.ready_at, view.timing)
    return _earliest(view.next_step_at, choice.until, settles)


def _is(choice: Choice, identity: str) -> bool:
    return choice.launch is not None and choice.launch.identity == identity


def _is_fallback(view: ChannelView, identity: str) -> bool:
    fallback = fallback_of(view)
    return fallback is not None and fallback.identity == identity


def _earliest(*instants: Millis | None) -> Millis | None:
    return min((x for x in instants if x is not None), default=None)

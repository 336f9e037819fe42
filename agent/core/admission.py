"""Who may call a channel now: the access table as one pure function of the channel, the step in force and the caller.

The gateway asks it once a request and again whenever an upstream is not to be reached. Whether the channel is reserved
is read from the timetable by the caller's clock; what runs is what the agent last said. Under a reservation the two are
compared by identity, so an agent that is away cannot make the wrong model answer. Outside reservations use is best
effort: whatever is loaded and open answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from agent.core.types import Access, Launch, Millis, Seconds, Step, access_at, step_at
from agent.core.words import when

OVERDUE: Seconds = 5
CLOSED_PHASES = frozenset({"draining", "stopping", "freeing"})


@dataclass(frozen=True, slots=True)
class Target:
    """A (model, preset) with the identity of its launch."""

    identity: str
    model: str
    preset: str | None = None

    @property
    def label(self) -> str:
        return f"{self.model}:{self.preset}" if self.preset else self.model


@dataclass(frozen=True, slots=True)
class FailureView:
    """The last failure of the channel's target, as the agent tells it; `retry_at` None while not known."""

    reason: str
    category: str = ""
    retry_at: Millis | None = None


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel as the gateway knows it. `serving` is set only while an engine is ready; `ready_at` are estimates."""

    name: str
    open: bool = True
    phase: str = "off"
    serving: Target | None = None
    loading: Target | None = None
    loading_ready_at: Millis | None = None
    fallback: bool = False
    switching_to: str | None = None  # identity; "" = to nothing
    switching_ready_at: Millis | None = None
    failure: FailureView | None = None
    blocked: str | None = None
    steps: tuple[Step, ...] = ()
    show_holders: str = "users"
    drain: Seconds = 30.0
    stop: Seconds = 30.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The person behind a valid key."""

    user_id: str
    user_name: str = ""
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict. `own`: a reservation of the caller runs here; `fallback`: the default answers in its place; `until`:
    the instant that the message names, as far as the refusal holds or is expected to."""

    verdict: Literal["serve", "refuse"]
    status: int = 200
    code: str = ""
    message: str = ""
    retry_after: int | None = None
    own: bool = False
    fallback: bool = False
    why: str = ""
    until: Millis | None = None

    @property
    def served(self) -> bool:
        return self.verdict == "serve"


NO_KEY = Admission(
    "refuse",
    401,
    "invalid_api_key",
    "A valid API key is needed: send 'Authorization: Bearer sk-ss-…' or 'x-api-key'.",
    why="no valid key",
)
_SERVE = {
    (own, fallback): Admission("serve", own=own, fallback=fallback, why="own reservation" if own else "not reserved")
    for own in (False, True)
    for fallback in (False, True)
}


def admit(channel: ChannelView, caller: Caller | None, now: Millis) -> Admission:
    """Whether `caller` is served by `channel` at `now` (node time), else the refusal with its code and words."""
    if caller is None:
        return NO_KEY
    step = step_at(channel.steps, now)
    access = access_at(step, now)
    if access is None:
        fallback = _serves_fallback(channel, step)
        if channel.serving is not None and channel.open and channel.blocked is None:
            return _SERVE[False, fallback]
        return _not_ready(channel, step, now, own=False)
    if not may_use(access, caller):
        return _reserved(channel, access, caller, now)
    if access.kind == "exclusive":
        return _refuse(
            503,
            "gpu_exclusive",
            f"Your reservation of channel {channel.name} is exclusive: no model is served on it until "
            f"{when(access.end, now)}.",
            own=True,
            until=access.end,
        )
    if channel.serving is not None and channel.open and channel.blocked is None:
        if step is not None and step.target is not None and channel.serving.identity == step.target.identity:
            return _SERVE[True, False]
        if _serves_fallback(channel, step):
            return _SERVE[True, True]
    return _not_ready(channel, step, now, own=True)


def may_use(access: Access, caller: Caller) -> bool:
    """The holder and the participants the holder named; administrators are anyone else."""
    return caller.user_id == access.holder_id or caller.user_id in access.participant_ids


def ends_at(channel: ChannelView, caller: Caller, now: Millis) -> Millis | None:
    """Until when a caller who is served now can count on it: the end of the own reservation, else the next step that
    changes the model or shuts the caller out; None where nothing of the kind is planned. `now` where the switch is due
    already."""
    current = step_at(channel.steps, now)
    access = access_at(current, now)
    if access is not None:
        return access.end
    serving = channel.serving.identity if channel.serving else None
    if current is not None and not _serves_fallback(channel, current):
        due = current.target.identity if current.target else None
        if due != serving:
            return now
    for step in channel.steps:
        if step.at <= now:
            continue
        target = step.target.identity if step.target else None
        shut_out = step.access is not None and not may_use(step.access, caller)
        if target != serving or shut_out:
            return step.at
    return None


def retry_after(ready_at: Millis, now: Millis) -> int:
    """Whole seconds until an expected instant, rounded up; 5 where it is overdue."""
    return int(OVERDUE) if ready_at <= now else max(1, math.ceil((ready_at - now) / 1000))


def switch_ready_at(channel: ChannelView, step: Step | None, now: Millis) -> Millis:
    """When the switch that goes on should be over: as the agent says where it heads for the step's target, else
    drain + stop + load from the step's beginning (the agent has not begun it)."""
    target = step.target.identity if step and step.target else ""
    if channel.switching_ready_at is not None and channel.switching_to == target:
        return channel.switching_ready_at
    load = step.target.load_seconds if step and step.target else 0.0
    begun = step.at if step else now
    return begun + int(1000 * (channel.drain + channel.stop + load))


def _serves_fallback(channel: ChannelView, step: Step | None) -> bool:
    return (
        channel.fallback
        and channel.serving is not None
        and step is not None
        and step.fallback is not None
        and channel.serving.identity == step.fallback.identity
    )


def _reserved(channel: ChannelView, access: Access, caller: Caller, now: Millis) -> Admission:
    end, after = access.end, access_at(step_at(channel.steps, access.end), access.end)
    while after is not None and not may_use(after, caller):  # back to back: nobody else comes in between
        end, after = after.end, access_at(step_at(channel.steps, after.end), after.end)
    then = " Open to all after that." if after is None else " Your own reservation begins then."
    named = channel.show_holders == "everyone" and access.holder_name and end == access.end
    whose = f" by {access.holder_name}" if named else ""
    message = f"Channel {channel.name} is reserved{whose} until {when(end, now)}.{then}"
    return _refuse(403, "gpu_reserved", message, until=end)


def _not_ready(channel: ChannelView, step: Step | None, now: Millis, own: bool) -> Admission:
    """The rows of the table for a channel on which nothing (or not the right thing) is ready."""
    name = channel.name
    target = step.target if step else None
    if channel.blocked is not None:
        who = channel.blocked or "a process that is not SlotServe's holds the GPU"
        return _refuse(503, "gpu_busy", f"Nothing can be loaded on channel {name} just now: {who}.", own=own)
    if channel.phase in CLOSED_PHASES or (channel.serving is not None and (own or not channel.open)):
        return _switching(channel, step, now, own)
    if channel.loading is not None:
        wanted = {x.identity for x in (target, step.fallback if step else None) if x is not None}
        if own and channel.loading.identity not in wanted:
            return _switching(channel, step, now, own)
        ready_at = channel.loading_ready_at
        after = None if ready_at is None else retry_after(ready_at, now)
        message = f"Model {channel.loading.label} is being loaded on channel {name}{_expected(ready_at, now)}."
        return _refuse(503, "model_loading", message, after, own, ready_at)
    if target is None:
        return _no_model(channel, now, own)
    if channel.failure is not None:
        at = channel.failure.retry_at
        after = None if at is None else retry_after(at, now)
        again = f". It is tried again at {when(at, now)}" if at is not None and at > now else ""
        reason = channel.failure.reason.rstrip(". ")
        message = f"Model {_label(target)} could not be started on channel {name}: {reason}{again}."
        return _refuse(503, "model_failed", message, after, own, at)
    ready_at = max(step.at if step else now, now - 1) + int(1000 * target.load_seconds)
    message = f"Model {_label(target)} is about to be loaded on channel {name}{_expected(ready_at, now)}."
    return _refuse(503, "model_loading", message, retry_after(ready_at, now), own, ready_at)


def _switching(channel: ChannelView, step: Step | None, now: Millis, own: bool) -> Admission:
    target = step.target if step else None
    doing = f"switching to model {_label(target)}" if target else "unloading its model"
    ready_at = switch_ready_at(channel, step, now)
    message = f"Channel {channel.name} is {doing}{_expected(ready_at, now)}."
    return _refuse(503, "model_switching", message, retry_after(ready_at, now), own, ready_at)


def _no_model(channel: ChannelView, now: Millis, own: bool) -> Admission:
    upcoming = next((s for s in channel.steps if s.at > now and s.target is not None), None)
    if upcoming is None or upcoming.target is None:
        return _refuse(503, "no_model", f"No model is loaded on channel {channel.name}, and none is planned.", own=own)
    ready_at = upcoming.at + int(1000 * upcoming.target.load_seconds)
    message = (
        f"No model is loaded on channel {channel.name}; {_label(upcoming.target)} is planned from "
        f"{when(upcoming.at, now)} on."
    )
    return _refuse(503, "no_model", message, retry_after(ready_at, now), own, ready_at)


def _expected(ready_at: Millis | None, now: Millis) -> str:
    if ready_at is None:
        return ""
    return f"; it should be ready at {when(ready_at, now)}" if ready_at > now else "; it should be ready any moment"


def _label(launch: Launch) -> str:
    return f"{launch.model}:{launch.preset}" if launch.preset else launch.model


def _refuse(
    status: int,
    code: str,
    message: str,
    after: int | None = None,
    own: bool = False,
    until: Millis | None = None,
) -> Admission:
    return Admission("refuse", status, code, message, retry_after=after, own=own, why=code, until=until)

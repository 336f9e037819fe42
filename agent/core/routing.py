"""Which channel of a node answers a request: the numbered rules as one pure function over the channels and the caller.

Names that match a channel: the catalogue name of its target, `name:preset`, in fallback also the reserved name; `auto`,
an empty name or none match all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent.core.admission import (
    NO_KEY,
    Admission,
    Caller,
    ChannelView,
    admit,
    ends_at,
    may_use,
    retry_after,
)
from agent.core.types import Launch, Millis, Step, access_at, step_at
from agent.core.words import moment, when

AUTO = "auto"
HOPE = {
    "model_loading": 0,
    "model_switching": 1,
    "model_failed": 2,
    "gpu_busy": 3,
    "gpu_exclusive": 4,
    "gpu_reserved": 5,
    "no_model": 6,
}


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes (`channel` set, `admission` serves), or the refusal it gets; `about`: the channel that the
    refusal speaks of, "" where it is no single one."""

    admission: Admission
    channel: ChannelView | None = None
    about: str = ""


def route(
    channels: Sequence[ChannelView],
    in_flight: Mapping[str, int],
    caller: Caller | None,
    model: str | None,
    named: str | None,
    now: Millis,
) -> Route:
    """Chooses the channel for `model`; `named` is the channel that the path or header asks for, None where none."""
    if caller is None:
        return Route(NO_KEY)
    wanted = None if model in (None, "", AUTO) else model
    if named is not None:
        return _named(channels, caller, wanted, named, now)
    if len(channels) == 1 and wanted is None:
        admission = admit(channels[0], caller, now)
        return Route(admission, channels[0] if admission.served else None, channels[0].name)
    return _choose(channels, in_flight, caller, wanted, now)


def names_of(channel: ChannelView, caller: Caller, now: Millis) -> frozenset[str]:
    """Every name under which the channel answers the caller now, with those that match any channel."""
    return _ready_names(channel, admit(channel, caller, now), now) | {"", AUTO}


def models(channels: Sequence[ChannelView], caller: Caller, now: Millis) -> list[dict[str, Any]]:
    """What the caller may use now, as `GET /v1/models` lists it: names of ready channels, then `auto`."""
    items: dict[str, dict[str, Any]] = {}
    admitted = sorted(((c, admit(c, caller, now)) for c in channels), key=lambda x: (not x[1].own, x[0].name))
    for channel, admission in admitted:
        if not admission.served or channel.serving is None:
            continue
        end = ends_at(channel, caller, now)
        for name in sorted(_ready_names(channel, admission, now)):
            items.setdefault(name, listed(name, channel.name, end))
    items.setdefault(AUTO, listed(AUTO, None, None))
    return list(items.values())


def _named(channels: Sequence[ChannelView], caller: Caller, wanted: str | None, named: str, now: Millis) -> Route:
    """Only the named channel is asked; a model that does not match it is 404, never an answer from another model."""
    channel = next((c for c in channels if c.name == named), None)
    if channel is None:
        there = ", ".join(sorted(c.name for c in channels)) or "none"
        message = f"There is no channel {named!r} on this node; its channels: {there}."
        return Route(Admission("refuse", 404, "channel_not_found", message, why="channel not found"))
    admission = admit(channel, caller, now)
    if admission.served:
        if wanted is None or wanted in _ready_names(channel, admission, now):
            return Route(admission, channel, named)
        return Route(_not_found([channel], caller, wanted, now), about=named)
    known = _names_now(channel, now)
    if wanted is None or wanted in known or not known or admission.code == "gpu_reserved":
        return Route(admission, about=named)
    return Route(_not_found([channel], caller, wanted, now), about=named)


def _choose(
    channels: Sequence[ChannelView], in_flight: Mapping[str, int], caller: Caller, wanted: str | None, now: Millis
) -> Route:
    if len(channels) == 1:  # the common case, in short
        admission = admit(channels[0], caller, now)
        if admission.served and (wanted is None or wanted in _ready_names(channels[0], admission, now)):
            return Route(admission, channels[0], channels[0].name)
    own: list[tuple[int, str, ChannelView, Admission]] = []
    free: list[tuple[int, str, ChannelView, Admission]] = []
    refusals: list[tuple[ChannelView, Admission]] = []
    for channel in channels:
        admission = admit(channel, caller, now)
        if not admission.served:
            refusals.append((channel, admission))
        elif wanted is None or wanted in _ready_names(channel, admission, now):
            ready = (in_flight.get(channel.name, 0), channel.name, channel, admission)
            (own if admission.own else free).append(ready)
    # 1. a matching own running reservation that is ready; `auto` stops at own reservations (never exclusive ones)
    if own:
        return _fewest(own)
    if wanted is None:
        waiting = [x for x in refusals if x[1].own and x[1].code != "gpu_exclusive"]
        if waiting:
            return _most_hopeful([(c, a, 0) for c, a in waiting])
    # 2. unreserved channels with a match ready. A name that only own reservations carry finds none here
    if free:
        return _fewest(free)
    # 3. the refusal of the most hopeful candidate, by target now or next
    candidates = list(_candidates(channels, refusals, caller, wanted, now))
    if candidates:
        return _most_hopeful(candidates)
    # 4. nobody knows it
    if wanted is None:
        return Route(
            Admission("refuse", 503, "no_model", "This node has no channel that serves models.", why="no_model")
        )
    return Route(_not_found(channels, caller, wanted, now))


def _candidates(
    channels: Sequence[ChannelView],
    refusals: Sequence[tuple[ChannelView, Admission]],
    caller: Caller,
    wanted: str | None,
    now: Millis,
) -> list[tuple[ChannelView, Admission, int]]:
    """Channels that know the name, with their refusals; 0 = by the target now, 1 = by the next."""
    found = [(c, a, 0) for c, a in refusals if wanted is None or wanted in _names_now(c, now)]
    if wanted is None:
        return found
    taken = {c.name for c, _, _ in found}
    refused = {c.name: a for c, a in refusals}
    for channel in channels:
        following = _next_step(channel, now)
        if channel.name in taken or following is None or wanted not in _names(following.target):
            continue
        found.append((channel, refused.get(channel.name) or _planned(channel, following, wanted, caller, now), 1))
    return found


def _planned(channel: ChannelView, step: Step, wanted: str, caller: Caller, now: Millis) -> Admission:
    """The channel serves the caller something else now; what is wanted comes with its next step."""
    load = step.target.load_seconds if step.target else 0.0
    ready_at = step.at + int(1000 * (channel.drain + channel.stop + load))
    serving = channel.serving.label if channel.serving else "nothing"
    access = access_at(step_at(channel.steps, ready_at), ready_at)
    shut_out = access is not None and not may_use(access, caller)
    whose = f", for a reservation that lasts until {when(access.end, now)}" if access and shut_out else ""
    message = (
        f"Model {wanted} is not loaded now: channel {channel.name} serves {serving} until {when(step.at, now)} "
        f"and switches to it then{whose}."
    )
    own = access_at(step_at(channel.steps, now), now) is not None
    return Admission(
        "refuse",
        503,
        "model_switching",
        message,
        retry_after(ready_at, now),
        own=own,
        why="planned next",
        until=ready_at,
    )


def _most_hopeful(candidates: Sequence[tuple[ChannelView, Admission, int]]) -> Route:
    def hope(candidate: tuple[ChannelView, Admission, int]) -> tuple[bool, int, int, float, str]:
        channel, admission, by_next = candidate
        own = admission.own and admission.code != "gpu_exclusive"
        after = float("inf") if admission.retry_after is None else float(admission.retry_after)
        return (not own, HOPE.get(admission.code, 9), by_next, after, channel.name)

    channel, admission, _ = min(candidates, key=hope)
    return Route(admission, about=channel.name)


def _fewest(ready: list[tuple[int, str, ChannelView, Admission]]) -> Route:
    _, _, channel, admission = min(ready, key=lambda x: (x[0], x[1]))
    return Route(admission, channel, channel.name)


def _not_found(channels: Sequence[ChannelView], caller: Caller, wanted: str, now: Millis) -> Admission:
    """`channels`: all, or the one that was asked for."""
    there = ", ".join(item["id"] for item in models(channels, caller, now))
    where = f"on channel {channels[0].name}" if len(channels) == 1 else "here"
    message = f"The model {wanted!r} is not served {where}. What there is for you now: {there}."
    return Admission("refuse", 404, "model_not_found", message, why="nobody knows the name")


def _ready_names(channel: ChannelView, admission: Admission, now: Millis) -> frozenset[str]:
    """Names under which the channel answers now."""
    serving = channel.serving
    if serving is None:
        return frozenset()
    names = _spellings(serving.model, serving.preset)
    if admission.fallback:
        step = step_at(channel.steps, now)
        names = names | _names(step.target if step else None)
    return names


def _names_now(channel: ChannelView, now: Millis) -> frozenset[str]:
    """Names the channel is known by while it cannot answer: of its target, of what still runs or is being loaded."""
    step = step_at(channel.steps, now)
    names = _names(step.target if step else None)
    for thing in (channel.serving, channel.loading):
        if thing is not None:
            names = names | _spellings(thing.model, thing.preset)
    if channel.fallback and step is not None:
        names = names | _names(step.fallback)
    return names


def _next_step(channel: ChannelView, now: Millis) -> Step | None:
    """The next step with another target than the one in force."""
    current = step_at(channel.steps, now)
    identity = current.target.identity if current and current.target else None
    for step in channel.steps:
        if step.at > now and step.target is not None and step.target.identity != identity:
            return step
    return None


def _names(launch: Launch | None) -> frozenset[str]:
    return frozenset() if launch is None else _spellings(launch.model, launch.preset)


@lru_cache(maxsize=1024)
def _spellings(model: str, preset: str | None) -> frozenset[str]:
    return frozenset({model, f"{model}:{preset}"} if preset else {model})


def listed(name: str, channel: str | None, end: Millis | None) -> dict[str, Any]:
    """A row of `GET /v1/models`."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "slotserve",
        "channel": channel,
        "until": None if end is None else moment(end),
    }

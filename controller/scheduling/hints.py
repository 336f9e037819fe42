"""What a person is told beside a booking or an override: nothing here refuses anything.

Each hint has a stable code, an English sentence with %(name)s places (gettext's message id) and the values for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.said import Said
from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Millis, Rules, Seconds, Target
from controller.words import N_


@dataclass(frozen=True, slots=True)
class Hint:
    """`str(hint)` is the sentence (said.py)."""

    code: str
    message: str
    values: Mapping[str, str | int | float] = field(default_factory=dict)

    def __str__(self) -> str:
        return Said(self.message, self.values)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A booking beside, on the same channel. `target` None = exclusive."""

    start: Millis
    end: Millis
    target: Target | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a booking will begin: load(target) unrounded, when it will about be ready, and the hints."""

    load_seconds: Seconds
    ready_at: Millis
    exceeds_gpu_memory: bool
    hints: tuple[Hint, ...]


def outlook(
    target: Target | None,
    start: Millis,
    now: Millis,
    rules: Rules,
    drain: Seconds,
    before: Neighbour | None = None,
    running: str | None = None,
    size_bytes: int = 0,
    gpu_memory_bytes: int = 0,
    load_timeout: Seconds | None = None,
    after: Neighbour | None = None,
    missing: str = "",
) -> Outlook:
    """What the booking dialog, check, create and approve say.

    target: None for an exclusive booking. before: the booking that ends at or before `start`, if any; after: one that
    begins exactly at its end. running: identity of what runs on the channel now. size_bytes: all weight files;
    gpu_memory_bytes: 0 where unknown or without GPU. load_timeout: in force for that preset on that node.
    missing: what of the model's files is not there, in the node's words.
    """
    load = 0.0 if target is None else target.load_seconds
    touches = before is not None and before.end == start
    exceeds = exceeds_gpu_memory(size_bytes, gpu_memory_bytes)
    hints = []
    if touches and before is not None:
        hints.append(_touching(target, before, rules, drain))
    if after is not None:
        hints.append(_touched(target, after, rules, drain))
    if missing:
        hints.append(incomplete_hint(missing))
    if exceeds:
        hints.append(Hint("exceeds_gpu_memory", N_("The model's files are larger than the channel's GPU memory.")))
    if load_timeout is not None and (late := load_timeout_hint(load, load_timeout)):
        hints.append(late)
    return Outlook(load, _ready_at(target, start, now, rules, before, running), exceeds, tuple(hints))


def incomplete_hint(missing: str, where: str = "") -> Hint:
    """It may be booked all the same: perhaps it is being copied, and there by then. `where`: the node, if not clear."""
    text = N_("The model is incomplete on this node (%(missing)s): it cannot be loaded before its files are there.")
    if where:
        text = N_("The model is incomplete on %(node)s (%(missing)s): it cannot be loaded before its files are there.")
    return Hint("incomplete_model", text, {"missing": missing, "node": where})


def exceeds_gpu_memory(size_bytes: int, gpu_memory_bytes: int) -> bool:
    """Whether a model's files are larger than the channel's GPUs together; unknown memory never is."""
    return 0 < gpu_memory_bytes < size_bytes


def load_timeout_hint(load: Seconds, load_timeout: Seconds, where: str = "") -> Hint | None:
    """Where a load will probably take longer than it may: every try would be given up. `where`: the node, if not clear."""
    if load <= load_timeout:
        return None
    values: dict[str, str | int | float] = {
        "seconds": math.ceil(load),
        "limit": math.floor(load_timeout),
        "node": where,
    }
    text = N_(
        "It will take about %(seconds)d s to load, but is given up after %(limit)d s: give the preset a longer "
        "load_timeout_seconds."
    )
    if where:
        text = N_(
            "On %(node)s it will take about %(seconds)d s to load, but is given up after %(limit)d s: give the preset a "
            "longer load_timeout_seconds."
        )
    return Hint("load_timeout_short", text, values)


def override_hint(channel: ChannelInput, now: Millis) -> Hint | None:
    """For an override that is set now: that it has no effect yet, where the next booking has been chosen already, or
    only after the booking that runs. `channel` is the input without the new override."""
    decision = decide(channel, now)
    if decision.reservation is None:
        return None
    if decision.why in ("preload", "clearing", "short_gap"):
        return Hint(
            "override_without_effect",
            N_("The next booking is being prepared: the override has no effect before it, and ends with it."),
            {"starts_at_ms": decision.reservation.start},
        )
    return Hint(
        "override_after_booking",
        N_("A booking is running: the override takes over at its end."),
        {"ends_at_ms": decision.reservation.end},
    )


def _touching(target: Target | None, before: Neighbour, rules: Rules, drain: Seconds) -> Hint:
    if target is None:
        seconds = math.ceil(drain + rules.stop_timeout)
        if before.target is None:
            return Hint("no_reload", N_("The card is clear already: the booking before is exclusive too."))
        text = N_("Up to %(seconds)d s at the start go to clearing the card.")
        return Hint("clearing_at_start", text, {"seconds": seconds})
    if before.target is not None and before.target.identity == target.identity:
        return Hint("no_reload", N_("No reload: the booking before uses the same model and preset."))
    text = N_("About %(seconds)d s at the start go to loading.")
    return Hint("loading_at_start", text, {"seconds": math.ceil(target.load_seconds)})


def _touched(target: Target | None, after: Neighbour, rules: Rules, drain: Seconds) -> Hint:
    """What the booking that follows at once loses of its time."""
    if after.target is None:
        if target is None:
            return Hint("no_reload_after", N_("The card stays clear: the booking after is exclusive too."))
        text = N_("Up to %(seconds)d s at the start of the booking after go to clearing the card.")
        return Hint("clearing_after", text, {"seconds": math.ceil(drain + rules.stop_timeout)})
    if target is not None and after.target.identity == target.identity:
        return Hint("no_reload_after", N_("No reload at the end: the booking after uses the same model and preset."))
    text = N_("About %(seconds)d s at the start of the booking after go to loading.")
    return Hint("loading_after", text, {"seconds": math.ceil(after.target.load_seconds)})


def _ready_at(
    target: Target | None, start: Millis, now: Millis, rules: Rules, before: Neighbour | None, running: str | None
) -> Millis:
    """The later of the start and the end of a load that begins when the rules let it begin."""
    begins = max(start, now)
    if target is None:
        return begins
    if before is not None and before.end >= now:
        there = before.end == start and before.target is not None and before.target.identity == target.identity
        free = before.end
    else:
        there = running == target.identity and start <= now
        free = now
    if there:
        return begins
    load = math.ceil(target.load_seconds * 1000)
    lead = math.floor(max(target.load_seconds + rules.buffer, rules.lead) * 1000)
    return max(begins, max(free, start - lead) + load)

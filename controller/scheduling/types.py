"""What the scheduler is told and what it answers. Instants are integer milliseconds, durations float seconds.

Nothing here reads a clock, a file or the store. What is made by the hundred thousand (decisions, steps) is a named tuple:
as immutable as a frozen dataclass, at a third of the price.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Millis = int
Seconds = float
Kind = Literal["model", "exclusive"]
Why = Literal["reserved", "exclusive", "preload", "clearing", "short_gap", "override", "default", "idle"]


@dataclass(frozen=True, slots=True)
class Target:
    """A (model, preset) as one unit; `identity` is what two targets are compared by.

    `load_seconds` is the estimate of how long it takes to load; it is no part of what makes two targets equal.
    """

    model: str
    preset: str | None
    identity: str
    load_seconds: Seconds = field(default=0.0, compare=False)


def identity_of(model: str, preset: str | None, engine: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """The identity of a target: the model, the preset's name and what the engine would be started with.

    `args` are tokens, so white space between them does not count; their order does. 16 hexadecimal digits.
    """
    text = json.dumps([model, preset, engine, list(args), sorted(env.items())], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reservation:
    """An approved reservation that has not ended (others never reach the scheduler).

    `start` is when it takes effect: the later of its start and its approval. Half-open [start, end).
    `target` is None exactly for kind `exclusive`. `access` is opaque to the rules and carried into the plan.
    """

    id: str
    start: Millis
    end: Millis
    kind: Kind
    target: Target | None
    holder_id: str = ""
    holder_name: str = ""
    participant_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Override:
    """An administrator's choice; `target` None = "unload". Spent once a reservation has begun after `set_at`."""

    target: Target | None
    set_at: Millis
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings a channel is computed with (the node's own already applied)."""

    buffer: Seconds = 60.0
    lead: Seconds = 180.0
    stop_timeout: Seconds = 30.0


@dataclass(frozen=True, slots=True)
class ChannelInput:
    """Everything the target of one channel depends on.

    reservations: approved ones that have not ended, sorted by start, not overlapping.
    last_begun: the latest instant at which any reservation of the channel took effect, ended ones included.
    committed: id of the reservation whose target rule 2 or 3 has already chosen, if any.
    current: the target last decided (being run, loaded or switched to), None = nothing.
    present: identities that run, load, are being switched to or serve as fallback; `current` belongs to it always.
    """

    reservations: tuple[Reservation, ...] = ()
    default: Target | None = None
    override: Override | None = None
    last_begun: Millis | None = None
    committed: str | None = None
    current: Target | None = None
    present: frozenset[str] = frozenset()
    rules: Rules = Rules()


class Decision(NamedTuple):
    """The answer for one instant.

    target None = nothing. `fallback` as "Failures, retries, fallback" says. `reservation` is the one that runs or is
    prepared. `committed` is to be given back with the next input. `until` is the first instant at which the answer
    can change without a change of input, given that it is acted on (the target becomes `current`); None = never.
    """

    target: Target | None
    why: Why
    fallback: Target | None = None
    reservation: Reservation | None = None
    committed: str | None = None
    until: Millis | None = None


class PlanStep(NamedTuple):
    """One step of a timetable; `running` is the reservation in force (who may call), else None."""

    at: Millis
    target: Target | None
    why: Why
    fallback: Target | None = None
    reservation: Reservation | None = None
    running: Reservation | None = None

"""What an agent's pure parts are told and what they answer. Instants are integer milliseconds of node time
(controller time at the last measurement + the boot clock since), durations float seconds. Nothing here reads a clock or a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Millis = int
Seconds = float
Phase = Literal["off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked"]
Category = Literal[
    "out_of_memory",
    "kv_cache_too_small",
    "gpu_busy",
    "bad_argument",
    "missing_file",
    "broken_file",
    "unsupported_architecture",
    "port_taken",
    "missing_library",
    "killed_by_kernel",
    "cpu_fallback",
    "load_timeout",
    "hung",
    "crashed",
]


@dataclass(frozen=True, slots=True)
class Launch:
    """What an engine would be started with; two launches are the same target when `identity` is the same."""

    identity: str
    model: str
    preset: str | None
    engine: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    load_timeout: Seconds | None = None
    load_seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call while a reservation runs: [start, end) in node time."""

    reservation_id: str
    kind: Literal["model", "exclusive"]
    holder_id: str
    participant_ids: frozenset[str]
    holder_name: str
    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the timetable; `prepares_for` is the start of the reservation that is prepared, if any."""

    at: Millis
    target: Launch | None
    why: str
    fallback: Launch | None = None
    reservation_id: str = ""
    access: Access | None = None
    prepares_for: Millis | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """The settings in force on this node."""

    stop_timeout: Seconds = 30.0
    drain: Seconds = 30.0
    load_timeout: Seconds = 600.0
    retry_min: Seconds = 30.0
    retry_max: Seconds = 600.0
    buffer: Seconds = 60.0


def step_at(steps: tuple[Step, ...], now: Millis) -> Step | None:
    """The step in force at `now`: the last one whose `at` has come, the first where none has; None without steps.

    Past the last step's window the last target stays; access ends by the reservation's own end (see `access_at`).
    """
    if not steps:
        return None
    chosen = steps[0]
    for step in steps[1:]:
        if step.at > now:
            break
        chosen = step
    return chosen


def access_at(step: Step | None, now: Millis) -> Access | None:
    """Who may call at `now`, or None where the channel is not reserved: a window is half-open."""
    if step is None or step.access is None or not (step.access.start <= now < step.access.end):
        return None
    return step.access

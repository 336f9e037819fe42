"""What a channel's owner task can do next: one of these, each with the sentence that says why. agent/core/step.py chooses,
agent/channel_effects.py carries out."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.types import Launch, Millis, Seconds
from agent.core.view import Drain


@dataclass(frozen=True, slots=True)
class Action:
    """`why`: for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Nothing to do before `until` (None: before something happens)."""

    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class CloseAndDrain(Action):
    """Close the door in every gateway and let running requests finish; or, closed already, with another deadline."""

    drain: Drain


class CallOffDrain(Action):
    """Open the door again: what runs is wanted."""


@dataclass(frozen=True, slots=True)
class Stop(Action):
    """SIGTERM to the tree now. `cut`: first end the requests that still run, telling them `retry_after` seconds."""

    cut: bool = False
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp(Action):
    """Not ready within its load time-out: a failure; it is stopped next."""

    launch: Launch
    seconds: Seconds


class Prepare(Action):
    """Nothing runs and something should: on to freeing."""


class Free(Action):
    """Wait until GPU memory is seen to be free."""


class Look(Action):
    """Ask again whether the foreign process on the GPU is gone."""


@dataclass(frozen=True, slots=True)
class Preflight(Action):
    """Look at what can be known without stopping anything. `gpu`: also whether somebody else holds the GPU."""

    launch: Launch
    gpu: bool


@dataclass(frozen=True, slots=True)
class Start(Action):
    """Start the engine."""

    launch: Launch
    as_fallback: bool
    reservation_id: str


class Probe(Action):
    """Ask the engine whether it is ready."""


@dataclass(frozen=True, slots=True)
class Rest(Action):
    """Nothing runs and nothing is started: `waits` for its next try, or nothing should run."""

    waits: bool

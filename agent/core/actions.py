"""What a channel's owner task can do next: one of these, each with the sentence that says why. agent/core/step.py chooses,
agent/channel_effects.py carries out."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.types import Launch, Millis, Seconds
from agent.core.view import Drain


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until` (None: before something happens)."""

    why: str
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class CloseAndDrain:
    """Close the door in every gateway and let running requests finish; or, closed already, with another deadline."""

    drain: Drain
    why: str


@dataclass(frozen=True, slots=True)
class CallOffDrain:
    """Open the door again: what runs is wanted."""

    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM to the tree now. `cut`: first end the requests that still run, telling them `retry_after` seconds."""

    why: str
    cut: bool = False
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Not ready within its load time-out: a failure; it is stopped next."""

    launch: Launch
    seconds: Seconds
    why: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Nothing runs and something should: on to freeing."""

    why: str


@dataclass(frozen=True, slots=True)
class Free:
    """Wait until GPU memory is seen to be free."""

    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ask again whether the foreign process on the GPU is gone."""

    why: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """Look at what can be known without stopping anything. `gpu`: also whether somebody else holds the GPU."""

    launch: Launch
    gpu: bool
    why: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start the engine."""

    launch: Launch
    as_fallback: bool
    reservation_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the engine whether it is ready."""

    why: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing runs and nothing is started: `waits` for its next try, or nothing should run."""

    waits: bool
    why: str


Action = Wait | CloseAndDrain | CallOffDrain | Stop | GiveUp | Prepare | Free | Look | Preflight | Start | Probe | Rest

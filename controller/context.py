"""What the web side is given: the store, the nodes' last words, and three ways to wake somebody. No gRPC in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.fleet.figures import Figures, Histogram
from controller.fleet.live import Live
from controller.polled import Polled
from controller.settings import Settings
from controller.store.session import Store


def wall_ms() -> int:
    """Now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class EngineLogs(Protocol):
    """The controller's copy of the engines' output (controller/fleet/logs.py)."""

    def read(self, node: str, channel: str, offset: int, limit: int, launch: str = "current") -> dict[str, Any] | None:
        """{file, offset, next_offset, text, ended} of a launch ("current", "previous" = the failed one before, or an id);
        offset < 0 = the last `-offset` bytes; None where there is none."""

    def launches(self, node: str, channel: str) -> list[dict[str, Any]]:
        """Newest first: {id, launched_at, model, preset, reservation_id, ended, failed, size}."""

    def line_at(self, node: str, channel: str, launch: str, offset: int) -> int:
        """The number (from 1) of the line that holds an offset, of what is kept."""

    def find(self, node: str, channel: str, launch: str, text: str, most: int) -> tuple[list[tuple[int, int]], int]:
        """Lines with a text, whatever its case: ((offset, number) of the first `most`, how many there are)."""


class Ca(Protocol):
    """What join strings need of the certificate authority (controller/fleet/ca.py)."""

    def certificate_pem(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Counted:
    """What the planner and the agents' streams have counted since the start: `looks` at channels, `changes` of decisions,
    `lateness` of switches against their due times."""

    looks: int
    changes: int
    lateness: Histogram
    streams: Figures


def steps_of_the_clock() -> Callable[[], float]:
    """By how many seconds this machine's clock has been stepped since now (a slewed one is not: both slow down)."""

    def offset() -> int:
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    began = offset()
    return lambda: (offset() - began) / 1e9


@dataclass(slots=True)
class Context:
    """One a process. `wake_planner(*channel_ids)` (none = all) and `wake_commands()` are thread-safe and return at once;
    `keys_changed()` tells the fleet that a key or person changed. `plan_looked_at()` = ms of the planner's last look;
    `fleet_figures()`: what was counted since the start; `clock_stepped()`: seconds by which this machine's clock was.
    `leads()`: whether this controller plans; `leader()`: where the one that does is, as agents dial it ("" = none known)."""

    settings: Settings
    store: Store
    live: Live
    clock: Callable[[], int] = wall_ms
    wake_planner: Callable[..., None] = lambda *_: None
    wake_commands: Callable[[], None] = lambda: None
    keys_changed: Callable[[], None] = lambda: None
    plan_looked_at: Callable[[], int | None] = lambda: None
    logs: EngineLogs | None = None
    ca: Ca | None = None
    enrol_address: str = ""
    fleet_figures: Callable[[], Counted | None] = lambda: None
    clock_stepped: Callable[[], float] = lambda: 0.0
    leads: Callable[[], bool] = lambda: True
    leader: Callable[[], str] = lambda: ""
    polled: Polled = field(default_factory=Polled)
    extra: dict[str, Any] = field(default_factory=dict)  # what `once` has made
    _making: threading.RLock = field(default_factory=threading.RLock)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What there is one of in a process, made when it is first asked for; whatever `make` raises is raised."""
        with self._making:
            if name not in self.extra:
                self.extra[name] = make()
            return self.extra[name]

"""Node time: the controller's time at the last measurement plus what CLOCK_BOOTTIME has counted since.

A stepped wall clock changes nothing. The measurement is saved with the boot's id: after an agent restart it still
counts, after a reboot it cannot, and the wall clock stands in until the controller answers.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.runtime import proc
from protos.shared.files import write_private

log = logging.getLogger(__name__)
DRIFT = 50e-6  # of a quartz, a second: how fast an old measurement loses worth
ROUNDING_MS = 2  # two measurements' whole milliseconds
JUMP_MS = 1000  # what is less is the measurement's inaccuracy, not a clock that was set


@dataclass(frozen=True, slots=True)
class Anchor:
    """`controller_ms` was the time when CLOCK_BOOTTIME stood at `boottime_ms`; true to `error_ms`."""

    controller_ms: int
    boottime_ms: int
    error_ms: float = 0.0
    boot_id: str = ""


class NodeClock:
    """One a process. `path` is clock.json; the other arguments are for tests."""

    def __init__(
        self,
        path: Path | None = None,
        boottime_ns: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        wall_ns: Callable[[], int] = time.time_ns,
        boot_id: str | None = None,
    ) -> None:
        self._path, self.boottime_ns, self._wall_ns = path, boottime_ns, wall_ns
        self.boot_id = boot_id if boot_id is not None else proc.boot_id()
        self._anchor = self._saved()

    @property
    def measured(self) -> bool:
        """False while the wall clock stands in."""
        return self._anchor is not None

    def now_ms(self) -> int:
        """Now, in node time."""
        return self.at_boottime(self.boottime_ns())

    def boottime_ms(self) -> int:
        return self.boottime_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The node's own wall clock."""
        return self._wall_ns() // 1_000_000

    def wall_offset_ms(self) -> int:
        """Changes when somebody sets the wall clock, and else not."""
        return self.wall_ms() - self.boottime_ms()

    def skew_seconds(self) -> float | None:
        """By how much the wall clock is ahead of the controller's; None while that was not measured."""
        return None if self._anchor is None else (self.wall_ms() - self.now_ms()) / 1000

    def at_boottime(self, boottime_ns: int) -> int:
        """Node time when CLOCK_BOOTTIME stands at `boottime_ns`."""
        if self._anchor is None:
            return self.wall_ms() + (boottime_ns - self.boottime_ns()) // 1_000_000
        return self._anchor.controller_ms + boottime_ns // 1_000_000 - self._anchor.boottime_ms

    def anchor(self) -> dict[str, int | str] | None:
        """{"controller_ms", "boottime_ms", "boot_id"} for the gateways; None while the wall clock stands in."""
        if self._anchor is None:
            return None
        said = self._anchor
        return {"controller_ms": said.controller_ms, "boottime_ms": said.boottime_ms, "boot_id": said.boot_id}

    def measure(self, controller_ms: int, asked_ns: int) -> int | None:
        """Takes an answer that has just come in to what was asked at `asked_ns` (CLOCK_BOOTTIME).

        The round trip halved is the answer's age. A slow one is passed over while the last measurement, aged, is better
        and the two can both be true (else the controller's clock was set). By how many ms node time has moved; None
        where the answer was passed over.
        """
        now_ns = self.boottime_ns()
        trip_ms = (now_ns - asked_ns) / 1e6
        if trip_ms < 0:
            return None
        error = trip_ms / 2
        now_ms = now_ns // 1_000_000
        moved = controller_ms + round(error) - self.now_ms()
        if self._anchor:
            before = self._anchor.error_ms + (now_ms - self._anchor.boottime_ms) * DRIFT
            if before < error and abs(moved) <= error + before + ROUNDING_MS:
                return None
        self._anchor = Anchor(controller_ms + round(error), now_ms, error, self.boot_id)
        if abs(moved) > JUMP_MS:
            log.warning("node time moved by_ms=%s round_trip_ms=%.1f", moved, trip_ms)
        self._save()
        return moved

    def _saved(self) -> Anchor | None:
        if self._path is None:
            return None
        try:
            anchor = Anchor(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as err:
            log.warning("saved clock ignored path=%s error=%r", self._path, str(err))
            return None
        return anchor if anchor.boot_id == self.boot_id else None

    def _save(self) -> None:
        if self._path and self._anchor:
            try:
                write_private(self._path, json.dumps(asdict(self._anchor)).encode(), sync=False)
            except OSError as err:
                log.warning("clock not saved path=%s error=%r", self._path, str(err))

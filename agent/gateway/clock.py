"""Node time in the gateway: the controller's time at the agent's last measurement plus CLOCK_BOOTTIME since.

A stepped wall clock changes nothing. The wall clock counts only where nothing was measured in this boot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boottime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clock:
    """`now_ms()` is node time; `set` takes a measurement as the agent sends it."""

    def __init__(self) -> None:
        self._offset: int | None = None  # node time - boot time
        self._boot = boot_id()

    def set(self, clock: Mapping[str, Any] | None) -> None:
        """{"controller_ms", "boottime_ms", "boot_id"?}; one of another boot, or none, means the wall clock."""
        self._offset = None
        if not clock or clock.get("controller_ms") is None or clock.get("boottime_ms") is None:
            return
        boot = clock.get("boot_id")
        if (boot and self._boot and boot != self._boot) or clock["boottime_ms"] > boottime_ms() + 1000:
            return
        self._offset = int(clock["controller_ms"]) - int(clock["boottime_ms"])

    def now_ms(self) -> int:
        if self._offset is None:
            return time.time_ns() // 1_000_000
        return self._offset + time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

"""What systemd is told by its services (`Type=notify`, `WatchdogSec=`), where it runs them; nothing happens elsewhere.

The watchdog is fed from the event loop that does the work: one that is stuck is started anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)
FEEDS = 3  # in the time that systemd waits


def notify(*lines: str) -> None:
    """Sends lines such as `READY=1` to whoever started this process, where that wants to hear any."""
    where = os.environ.get("NOTIFY_SOCKET")
    if not where:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.connect("\0" + where[1:] if where.startswith("@") else where)
            out.send("".join(f"{line}\n" for line in lines).encode())
    except OSError as err:
        log.warning("systemd not told error=%s", err)


def watchdog_seconds() -> float | None:
    """How often the watchdog is to be fed; None where there is none. A process that took over from the one that systemd
    started has inherited WATCHDOG_PID, so that is not asked."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 / FEEDS if text.isdigit() and int(text) else None


async def feed_watchdog(well: Callable[[], bool] = lambda: True) -> None:
    """Until cancelled, at each time at which all is `well`; where there is no watchdog it sleeps."""
    seconds = watchdog_seconds()
    if seconds is None:
        await asyncio.Event().wait()
        return
    while True:
        if well():
            notify("WATCHDOG=1")
        await asyncio.sleep(seconds)

"""A gateway process as the agent sees it: connected, or known to run but not connected; and what is saved of either."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.runtime import proc

log = logging.getLogger(__name__)


class GatewayLink:
    """One connected gateway: its counts as last reported, the barriers it has still to answer."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.pid = 0
        self.id = ""
        self.counts: dict[str, int] = {}
        self.callers: dict[str, list[tuple[str, str, int]]] = {}  # who runs how many, on channels with a limit
        self.asked: dict[str, str] = {}  # channel: barrier
        self.told: dict[str, Any] = {}  # what it was told of the others; nothing: it is alone

    def ask(self, channel: str, barrier: str) -> None:
        self.asked[channel] = barrier
        self.send({"type": "close", "channel": channel, "barrier": barrier})

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_line(line_of(message))

    def send_line(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)

    def tell_others(self, others: Sequence[GatewayLink]) -> None:
        """What runs in the other processes together, where that has changed."""
        channels: dict[str, int] = {}
        callers: dict[str, dict[tuple[str, str], int]] = {}
        for other in others:
            for channel, number in other.counts.items():
                channels[channel] = channels.get(channel, 0) + number
            for channel, rows in other.callers.items():
                known = callers.setdefault(channel, {})
                for user, key, number in rows:
                    known[user, key] = known.get((user, key), 0) + number
        said = {
            "channels": channels,
            "callers": {c: [(*who, n) for who, n in sorted(known.items())] for c, known in callers.items()},
            "gateways": len(others) + 1,
        }
        if others or self.told:
            if said != self.told:
                self.send({"type": "others", **said})
            self.told = said if others else {}

    def close(self) -> None:
        self._writer.close()


class GatewayAway:
    """A gateway that was connected: waited for until `until` (loop time), its last counts held for as long."""

    def __init__(self, pid: int, start: str, until: float, counts: dict[str, int]) -> None:
        self.pid, self.start, self.until, self.counts = pid, start, until, counts


def line_of(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def start_of(pid: int) -> str:
    """When a process began, in clock ticks of this boot; "" where it does not run (a zombie has ended)."""
    found = proc.stat(pid)
    return str(found.ticks) if found is not None and found.alive else ""


def read_saved(path: Path) -> dict[str, Any] | None:
    """A JSON object that was saved; None where there is none, or none that can be read (which is said)."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        log.error("saved state cannot be read file=%s error=%s", path, err)
        return None
    return found if isinstance(found, dict) else None

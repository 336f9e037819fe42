"""What the gateways are told: the table of the channels, the keys, the other nodes, settings, clock, figures.

Each change goes to every gateway that is connected, and table, keys and directory into files of <state>/gateway, so that
a gateway that starts while the agent is away serves from them, and an agent that starts goes on from its predecessor's.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.core.types import Millis
from agent.gateway_peers import line_of, read_saved
from protos.shared.files import write_private

log = logging.getLogger(__name__)


class Told(ABC):
    """The state as it is now; who inherits sends it. All methods belong to the agent's event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded = False  # before, nothing is written: it would go over a predecessor's words
        self._version = 0
        self._clock: dict[str, Any] | None = None
        self._clock_known = False  # set here, whatever a predecessor's table says
        self._settings: dict[str, Any] = {"show_holders": "users", "drain_seconds": 30.0, "stop_timeout_seconds": 30.0}
        self._entries: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, dict[str, Any]] | None = None
        self._directory: dict[str, Any] | None = None  # of the other nodes, as it was said last
        self._figures = ""
        self._flush_due = False

    @abstractmethod
    def _tell_all(self, message: dict[str, Any]) -> None:
        """Sends to every gateway that is connected."""

    # said by a channel's task and by the node

    def publish(self, channel: str, entry: Mapping[str, Any]) -> None:
        """Puts a channel's entry into the table; it goes out with the next turn of the loop. The same one: nothing."""
        if self._entries.get(channel) == entry:
            return
        self._entries[channel] = dict(entry)
        self._flush_soon()

    def forget(self, channel: str) -> None:
        """A channel that is no longer declared."""
        if self._entries.pop(channel, None) is not None:
            self._flush_soon()

    def keep_channels(self, names: set[str]) -> None:
        """Forgets every channel but these (a predecessor's table may name others)."""
        for name in set(self._entries) - names:
            self.forget(name)

    def set_keys(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        """The keys that open the gateways, whole: {sha256: {id, user_id, user_name, role, expires_at_ms}}."""
        new = {sha: dict(row) for sha, row in keys.items()}
        if new == self._keys:
            return
        self._keys = new
        message = {"type": "keys", "keys": new}
        self._write("keys.json", message)
        self._tell_all(message)

    def set_directory(self, places: list[dict[str, Any]], members: str = "") -> None:
        """What other nodes serve and which nodes there are, whole, from a controller that is there."""
        self._say_directory({"type": "directory", "as_of_ms": None, "places": places, "members": members})

    def directory_ages(self, now: Millis) -> None:
        """The controller is not reached any more: what it has said of other nodes is as of now."""
        if self._directory is not None and self._directory["as_of_ms"] is None:
            self._say_directory({**self._directory, "as_of_ms": now})

    def _say_directory(self, message: dict[str, Any]) -> None:
        if message != self._directory:
            self._directory = message
            self._write("directory.json", message)
            self._tell_all(message)

    def set_figures(self, text: str) -> None:
        """What /metrics says beside the gateway's own."""
        if text != self._figures:
            self._figures = text
            self._tell_all({"type": "figures", "text": text})

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """show_holders, drain_seconds, stop_timeout_seconds, gateway_linger_seconds, limits: those that are given."""
        new = {**self._settings, **settings}
        if new != self._settings:
            self._settings = new
            self._flush_soon()

    def set_clock(self, anchor: Mapping[str, Any] | None) -> None:
        """Node time as it was measured (NodeClock.anchor()); None: not measured, the wall clock counts."""
        clock = None if anchor is None else dict(anchor)
        self._clock_known = True
        if clock == self._clock:
            return
        self._clock = clock
        self._write("table.json", self._table())
        self._tell_all({"type": "clock", **(clock or {"controller_ms": None, "boottime_ms": None})})

    # below: how it is done

    def _everything(self) -> Iterator[dict[str, Any]]:
        """What a gateway that has just connected is told."""
        if self._entries:
            yield self._table()
        if self._keys is not None:
            yield {"type": "keys", "keys": self._keys}
        if self._directory is not None:
            yield self._directory
        if self._figures:
            yield {"type": "figures", "text": self._figures}

    def _shut(self, channel: str) -> None:
        """Closes a channel's entry; the table is out when this returns."""
        entry = self._entries.get(channel)
        if entry is not None and entry.get("open"):
            self._entries[channel] = {**entry, "open": False}
        self._flush()

    def _table(self) -> dict[str, Any]:
        return {
            "type": "table",
            "version": self._version,
            "clock": self._clock,
            "settings": self._settings,
            "channels": list(self._entries.values()),
        }

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_if_due)

    def _flush_if_due(self) -> None:
        if self._flush_due:
            self._flush()

    def _flush(self) -> None:
        """The table, whole, to everybody and to the file. Always before a barrier or a cut, so that they come in order."""
        self._flush_due = False
        self._version += 1
        table = self._table()
        self._tell_all(table)
        self._write("table.json", table)

    def _write(self, name: str, message: dict[str, Any]) -> None:
        if not self._loaded:
            return
        try:
            write_private(self._folder / name, line_of(message), sync=False)
        except OSError as err:
            log.error("state for the gateways not saved file=%s error=%s", self._folder / name, err)

    def _load(self) -> None:
        table, keys = read_saved(self._folder / "table.json"), read_saved(self._folder / "keys.json")
        try:
            if table:
                self._version = int(table.get("version") or 0)
                if not self._clock_known:
                    self._clock = table.get("clock")
                self._settings |= table.get("settings") or {}
                self._entries = {str(e["name"]): e for e in table["channels"]}
            if keys:
                self._keys = dict(keys["keys"])
            if directory := read_saved(self._folder / "directory.json"):
                self._directory = {"members": "", **directory, "as_of_ms": directory["as_of_ms"]}
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            log.error("what was saved for the gateways cannot be used folder=%s error=%r", self._folder, err)
        self._loaded = True
        if self._entries:
            self._write("table.json", self._table())

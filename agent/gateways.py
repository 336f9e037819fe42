"""The agent's side of the gateways: the socket they dial, the table and keys they get, the barrier, the counts, the cut.

    Gateways(state_dir, run_dir, on_usage=…)     `await start()`, then a GatewayDoor; at the end `await close_server()`
    publish, close, wait_drained, in_flight, cut   what a channel's task does (see agent/interfaces.py)
    set_keys, set_settings, set_clock, set_directory   what the node does
    on_in_flight                                   called with a channel's name whenever its count has changed

Listens on <run>/agent.sock (0600 in a 0700 folder). Table and keys are also written to <state>/gateway, so that a
gateway that starts while the agent is away serves from them. Several gateway processes may be connected at once (a
planned restart): counts are summed, and a barrier is over when all have answered. One that is known, by its pid, from
before this agent's start or before its connection broke is waited for shortly: it dials again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from agent.core.types import Millis
from agent.files import write_private
from agent.gateway_peers import GatewayAway, GatewayLink, line_of, read_saved, start_of

log = logging.getLogger(__name__)
LINE_LIMIT = 64 * 1024 * 1024
GRACE_SECONDS = 1.0  # for a gateway that runs but is not connected
OTHERS_SECONDS = 0.01  # for several counts to go out as one
BARRIER_SECONDS = 5.0  # for an answer of a gateway that is connected
Rows = list[dict[str, Any]]
OnUsage = Callable[[Rows], Awaitable[None] | None]


class Gateways:
    """See the module's docstring. All methods belong to the agent's event loop."""

    def __init__(self, state_dir: Path, run_dir: Path, on_usage: OnUsage | None = None) -> None:
        self.on_in_flight: Callable[[str], None] | None = None
        self._folder = state_dir / "gateway"
        self._socket = run_dir / "agent.sock"
        self._known_file = run_dir / "gateways.json"
        self._on_usage = on_usage
        self._version = 0
        self._clock: dict[str, Any] | None = None
        self._clock_known = False  # set here, whatever a predecessor's table says
        self._started = False
        self._settings: dict[str, Any] = {"show_holders": "users", "drain_seconds": 30.0, "stop_timeout_seconds": 30.0}
        self._entries: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, dict[str, Any]] | None = None
        self._directory: dict[str, Any] | None = None  # of the other nodes, as it was said last
        self._figures = ""
        self._links: set[GatewayLink] = set()
        self._away: dict[str, GatewayAway] = {}  # by gateway id: it runs, as far as is known, but is not connected
        self._barriers: dict[str, str] = {}  # channel: its last barrier
        self._barrier_number = 0
        self._changed = asyncio.Condition()
        self._flush_due = False
        self._others_due = False
        self._server: asyncio.AbstractServer | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    # life

    async def start(self) -> None:
        """Listens. What a predecessor left is read: its table, so that a gateway never gets an empty one, its keys, and
        the gateways that were connected."""
        for folder in (self._folder, self._socket.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        self._load()
        self._started = True
        if self._entries:
            self._write("table.json", self._table())
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._socket), limit=LINE_LIMIT)
        self._socket.chmod(0o600)

    async def close_server(self) -> None:
        """Ends the connections; the gateways go on with what they have."""
        if self._server is not None:
            self._server.close()
        for link in tuple(self._links):
            link.close()
        if self._server is not None:
            await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving, timeout=1.0)

    @property
    def connected(self) -> int:
        """Gateway processes that are connected now."""
        return len(self._links)

    # GatewayDoor

    async def close(self, channel: str) -> int:
        """Closes the channel in every gateway; the requests that still run, once all have said so."""
        entry = self._entries.get(channel)
        if entry is not None and entry.get("open"):
            self._entries[channel] = {**entry, "open": False}
        self._flush()
        self._barrier_number += 1
        barrier = f"{os.getpid()}-{self._barrier_number}"
        self._barriers[channel] = barrier
        for link in self._links:
            link.ask(channel, barrier)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BARRIER_SECONDS
        async with self._changed:
            while self._barriers.get(channel) == barrier:
                waiting = [link for link in self._links if link.asked.get(channel) is not None]
                away = self._running_away()
                if not waiting and not away:
                    break
                if loop.time() >= deadline and waiting:
                    log.error(
                        "gateway does not answer the barrier channel=%s pids=%s", channel, [x.pid for x in waiting]
                    )
                    break
                until = min([deadline, *(a.until for a in away)]) if waiting or away else deadline
                await self._wait(max(0.01, until - loop.time()))
        return self.in_flight(channel)

    async def wait_drained(self, channel: str) -> None:
        """Returns when no request runs on the channel any more."""
        loop = asyncio.get_running_loop()
        async with self._changed:
            while self.in_flight(channel) or any(channel in link.asked for link in self._links):
                away = self._running_away()
                await self._wait(max(0.01, min(a.until for a in away) - loop.time()) if away else 60.0)

    def in_flight(self, channel: str) -> int:
        """Requests running now, as last reported; of a gateway whose connection broke a moment ago as well."""
        return sum(link.counts.get(channel, 0) for link in self._links) + sum(
            away.counts.get(channel, 0) for away in self._running_away()
        )

    def cut(self, channel: str, retry_after: int) -> None:
        """Ends what still runs on the channel, in every gateway."""
        self._flush()
        self._tell_all({"type": "cut", "channel": channel, "retry_after": int(retry_after)})

    def publish(self, channel: str, entry: Mapping[str, Any]) -> None:
        """Puts a channel's entry into the table; it goes out with the next turn of the loop. The same one: nothing."""
        if self._entries.get(channel) == entry:
            return
        if entry.get("open"):
            self._barriers.pop(channel, None)
        self._entries[channel] = dict(entry)
        self._flush_soon()

    # the node

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

    def set_clock(
        self, controller_ms: Millis | Mapping[str, Any] | None, boottime_ms: Millis | None = None, boot_id: str = ""
    ) -> None:
        """Node time as it was measured: controller time when CLOCK_BOOTTIME stood at `boottime_ms` (both ms), or the
        same as one mapping (NodeClock.anchor()); None: not measured, the wall clock counts."""
        if controller_ms is None or isinstance(controller_ms, Mapping):
            clock = None if controller_ms is None else dict(controller_ms)
        else:
            clock = {"controller_ms": controller_ms, "boottime_ms": boottime_ms}
            if boot_id:
                clock["boot_id"] = boot_id
        self._clock_known = True
        if clock == self._clock:
            return
        self._clock = clock
        self._write("table.json", self._table())
        self._tell_all({"type": "clock", **(clock or {"controller_ms": None, "boottime_ms": None})})

    # below: how it is done

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = GatewayLink(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while line := await reader.readline():
                try:
                    await self._take(link, json.loads(line))
                except (KeyError, TypeError, ValueError, AttributeError) as err:
                    log.error("message of a gateway cannot be used pid=%s error=%r", link.pid, err)
        except (OSError, ValueError) as err:
            log.warning("gateway connection broke pid=%s error=%r", link.pid, err)
        finally:
            await self._lost(link)

    async def _take(self, link: GatewayLink, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "hello":
            await self._hello(link, message)
        elif kind == "in_flight":
            callers = message.get("callers") or {}
            link.callers = {str(c): [(str(u), str(k), int(n)) for u, k, n in rows] for c, rows in callers.items()}
            await self._counted(link, {str(c): int(n) for c, n in message["channels"].items()})
            self._tell_others_soon()
        elif kind == "closed":
            channel = str(message["channel"])
            if link.asked.get(channel) == message["barrier"]:
                del link.asked[channel]
            await self._counted(link, {**link.counts, channel: int(message["in_flight"])})
        elif kind == "usage":  # beside: it waits for the disk, and counts and barriers must not wait for that
            fields, rows = message.get("fields"), list(message["rows"])
            if fields is not None:  # a gateway of an earlier version says them with every row
                rows = [dict(zip(fields, row, strict=True)) for row in rows]
            task = asyncio.ensure_future(self._usage(link, rows))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        else:
            log.warning("unknown message of a gateway type=%s pid=%s", kind, link.pid)

    async def _hello(self, link: GatewayLink, message: Mapping[str, Any]) -> None:
        link.pid, link.id = int(message["pid"]), str(message["gateway_id"])
        self._away.pop(link.id, None)
        self._links.add(link)
        log.info("gateway connected pid=%s version=%s gateways=%s", link.pid, message.get("version"), len(self._links))
        self._remember()
        if self._entries:
            link.send(self._table())
        if self._keys is not None:
            link.send({"type": "keys", "keys": self._keys})
        if self._directory is not None:
            link.send(self._directory)
        if self._figures:
            link.send({"type": "figures", "text": self._figures})
        for channel, barrier in self._barriers.items():
            link.ask(channel, barrier)
        self._tell_others_soon()
        await self._notify()

    async def _lost(self, link: GatewayLink) -> None:
        link.close()
        if link not in self._links:
            return
        self._links.discard(link)
        self._tell_others_soon()
        log.info("gateway disconnected pid=%s gateways=%s", link.pid, len(self._links))
        if start_of(link.pid):
            until = asyncio.get_running_loop().time() + GRACE_SECONDS
            self._away[link.id] = GatewayAway(link.pid, start_of(link.pid), until, link.counts)
            task = asyncio.ensure_future(self._look_after(link.id, tuple(link.counts)))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        self._remember()
        await self._notify()
        for channel in link.counts:
            self._count_changed(channel)

    async def _look_after(self, gateway_id: str, channels: tuple[str, ...]) -> None:
        """A process that is being killed closes its sockets a moment before it is gone: its counts go with it, not when
        its grace is over."""
        pause = 0.02
        while gateway_id in self._away:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.2)
            self._running_away()
        await self._notify()
        for channel in channels:
            self._count_changed(channel)

    async def _counted(self, link: GatewayLink, counts: dict[str, int]) -> None:
        changed = [c for c in counts.keys() | link.counts.keys() if counts.get(c, 0) != link.counts.get(c, 0)]
        link.counts = counts
        await self._notify()
        for channel in changed:
            self._count_changed(channel)

    async def _usage(self, link: GatewayLink, rows: Rows) -> None:
        try:
            if self._on_usage is not None:
                taken = self._on_usage(rows)
                if inspect.isawaitable(taken):
                    await taken
            ids = [r["id"] for r in rows]
        except (OSError, KeyError, TypeError, ValueError) as err:
            log.error("usage rows not taken, the gateway keeps them pid=%s rows=%s error=%r", link.pid, len(rows), err)
            return
        link.send({"type": "usage_taken", "ids": ids})

    def _tell_others_soon(self) -> None:
        """Gateways that are several are told what runs in the others: for limits, and for their figures."""
        if not self._others_due and (len(self._links) > 1 or any(link.told for link in self._links)):
            self._others_due = True
            asyncio.get_running_loop().call_later(OTHERS_SECONDS, self._tell_others)

    def _tell_others(self) -> None:
        self._others_due = False
        for link in self._links:
            link.tell_others([other for other in self._links if other is not link])

    def _count_changed(self, channel: str) -> None:
        if self.on_in_flight is not None:
            self.on_in_flight(channel)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _running_away(self) -> list[GatewayAway]:
        """Gateways that are waited for: their process runs, and their grace is not over."""
        now = asyncio.get_running_loop().time()
        for gateway_id, away in tuple(self._away.items()):
            if now >= away.until or start_of(away.pid) != away.start:
                del self._away[gateway_id]
        return list(self._away.values())

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

    def _tell_all(self, message: dict[str, Any]) -> None:
        if self._links:
            line = line_of(message)
            for link in self._links:
                link.send_line(line)

    def _write(self, name: str, message: dict[str, Any]) -> None:
        if not self._started:
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
            known = read_saved(self._known_file) or {}
            until = asyncio.get_running_loop().time() + GRACE_SECONDS
            for gateway_id, (pid, start) in known.items():
                if start_of(pid) == start:
                    self._away[gateway_id] = GatewayAway(pid, start, until, {})
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            log.error("what was saved for the gateways cannot be used folder=%s error=%r", self._folder, err)

    def _remember(self) -> None:
        """Which gateways there are, for the agent that comes after this one."""
        known = {link.id: (link.pid, start_of(link.pid)) for link in self._links}
        known |= {gateway_id: (away.pid, away.start) for gateway_id, away in self._away.items()}
        try:
            write_private(self._known_file, json.dumps(known).encode(), sync=False)
        except OSError as err:
            log.error("known gateways not saved file=%s error=%s", self._known_file, err)

"""The agent's side of the gateways: the socket they dial, the barrier, the counts, the cut.

    Gateways(state_dir, run_dir, on_usage=…)     `await start()`, then a GatewayDoor; at the end `await close_server()`
    publish, close, wait_drained, in_flight, cut   what a channel's task does (see agent/interfaces.py)
    set_keys, set_settings, set_clock, set_directory   what the node does
    on_in_flight                                   called with a channel's name whenever its count has changed

Listens on <run>/agent.sock (0600 in a 0700 folder); what goes down it is in agent/gateway_told.py. Several gateway
processes may be connected at once (a planned restart): counts are summed, and a barrier is over when all have answered.
One that is known, by its pid, from before this agent's start or before its connection broke is waited for shortly: it
dials again.
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

from agent.gateway_peers import GatewayAway, GatewayLink, line_of, read_saved, start_of
from agent.gateway_told import Told
from protos.shared.files import write_private

log = logging.getLogger(__name__)
LINE_LIMIT = 64 * 1024 * 1024
GRACE_SECONDS = 1.0  # for a gateway that runs but is not connected
OTHERS_SECONDS = 0.01  # for several counts to go out as one
BARRIER_SECONDS = 5.0  # for an answer of a gateway that is connected
Rows = list[dict[str, Any]]
OnUsage = Callable[[Rows], Awaitable[None] | None]


class Gateways(Told):
    """See the module's docstring. All methods belong to the agent's event loop."""

    def __init__(self, state_dir: Path, run_dir: Path, on_usage: OnUsage | None = None) -> None:
        super().__init__(state_dir / "gateway")
        self.on_in_flight: Callable[[str], None] | None = None
        self._socket = run_dir / "agent.sock"
        self._known_file = run_dir / "gateways.json"
        self._on_usage = on_usage
        self._links: set[GatewayLink] = set()
        self._away: dict[str, GatewayAway] = {}  # by gateway id: it runs, as far as is known, but is not connected
        self._barriers: dict[str, str] = {}  # channel: its last barrier
        self._barrier_number = 0
        self._changed = asyncio.Condition()
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
        self._load_known()
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
        self._shut(channel)
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
        """As `Told.publish`; an entry that is open ends the channel's barrier."""
        if entry.get("open"):
            self._barriers.pop(channel, None)
        super().publish(channel, entry)

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
        for said in self._everything():
            link.send(said)
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

    def _tell_all(self, message: dict[str, Any]) -> None:
        if self._links:
            line = line_of(message)
            for link in self._links:
                link.send_line(line)

    def _load_known(self) -> None:
        known = read_saved(self._known_file) or {}
        until = asyncio.get_running_loop().time() + GRACE_SECONDS
        try:
            for gateway_id, (pid, start) in known.items():
                if start_of(pid) == start:
                    self._away[gateway_id] = GatewayAway(pid, start, until, {})
        except (TypeError, ValueError) as err:
            log.error("known gateways cannot be used file=%s error=%r", self._known_file, err)

    def _remember(self) -> None:
        """Which gateways there are, for the agent that comes after this one."""
        known = {link.id: (link.pid, start_of(link.pid)) for link in self._links}
        known |= {gateway_id: (away.pid, away.start) for gateway_id, away in self._away.items()}
        try:
            write_private(self._known_file, json.dumps(known).encode(), sync=False)
        except OSError as err:
            log.error("known gateways not saved file=%s error=%s", self._known_file, err)

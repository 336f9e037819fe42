"""The gateway of a node: what its connections share, and what the agent tells it.

Everything runs on one event loop; nothing here waits. What the agent says arrives through `take` (see ipc.py), what it
should know goes out through `send`, which is None while the agent is away: requests go on without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from agent.core import routing
from agent.core.admission import may_use
from agent.core.directory import Directory
from agent.core.types import access_at, step_at
from agent.gateway import tokens
from agent.gateway.access_log import AccessLog
from agent.gateway.board import Board
from agent.gateway.clock import Clock
from agent.gateway.connection import ClientConnection
from agent.gateway.cors import Cors
from agent.gateway.elsewhere import read as read_directory
from agent.gateway.elsewhere import read_members
from agent.gateway.errors import Refusal
from agent.gateway.keys import Key, Keys
from agent.gateway.limits import Limits
from agent.gateway.metrics import Metrics
from agent.gateway.relay import Relays
from agent.gateway.reply import Reply
from agent.gateway.table import Table, read
from agent.gateway.usage import FIELDS, Usage

log = logging.getLogger(__name__)
VERSION = "0.1.0"
BODY_LIMIT = 64 * 1024 * 1024
TICK_SECONDS = 0.5  # expired keys, access log, usage
SWEEP_SECONDS = 5.0  # idle connections, engines that say nothing
ENGINE_IDLE_SECONDS = 3600.0  # of an engine, before it is given up on
LAST_HANDSHAKE_SECONDS = 1.0  # of a connection that was accepted before that
LAST_REQUEST_SECONDS = 3.0  # for a connection without one, when another process accepts already
MOST_ANSWERS = 2000  # before their tokens are read
MOST_BATCHES = 10  # of usage rows in one tick
REPORT_SECONDS = 0.05  # in-flight counts, where nobody waits for them
SHORT_REPORT_SECONDS = 0.01  # of channels with a limit, which other processes count on


class Gateway:
    """State of one gateway process. `in_flight` counts admitted requests by channel, to the end of each."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        node: str = "",
        body_limit: int = BODY_LIMIT,
        idle_seconds: float = ENGINE_IDLE_SECONDS,
        metrics_apart: bool = False,
        access_log: AccessLog | None = None,
        board: Board | None = None,
        cors: Cors | None = None,
        absorbs: bool = False,
        relays: Relays | None = None,
    ) -> None:
        self.loop = loop
        self.cors = cors or Cors()
        self.node = node  # a channel may be asked for as node/name as well
        self.id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.body_limit = body_limit
        self.idle_seconds = idle_seconds
        self.absorbs = absorbs  # what a client breaks off goes on at the engine
        self.metrics_apart = metrics_apart  # /metrics has an address of its own
        self.table = Table()
        self.directory = Directory()  # of the other nodes; looked into only for what is not served here
        self.members: frozenset[str] | None = None  # nodes that may relay to this one; None: not said
        self.relays = relays  # None: nothing is relayed to other nodes
        self.relaying: set[Reply] = set()  # requests that run on other nodes
        self.keys = Keys()
        self.clock = Clock()
        self.usage = Usage()
        self.usage_folder: Path | None = None  # where gateways leave what nobody has taken
        self.limits = Limits()
        self.in_flight: dict[str, int] = {}
        self.in_flight_elsewhere: dict[str, int] = {}  # in the other gateway processes, as the agent says
        self.metrics = Metrics(self._all_in_flight, lambda: {v.name: v.phase for v in self.table.order})
        self.connections: set[ClientConnection] = set()
        self.stopping = False  # every answer is the last of its connection
        self.refusing = False  # and what is not running yet is not begun
        self.agent_tried = asyncio.Event()  # it has said something, or is away
        self._board = board
        if board is not None:
            self.metrics.add(board.read(board.own))  # of the worker that was here before
        self.send: Callable[[dict[str, Any]], None] | None = None
        self._running: dict[str, set[Reply]] = {}
        self._access_log = access_log or AccessLog()
        self._answers: list[tuple[str, str, list[bytes]]] = []  # that have ended, and whose tokens are to be read
        self._ids = count(1)
        self._turns = count()
        self._id_prefix = f"req_{secrets.token_hex(8)}"
        self._report_due = False
        self._expiring = False
        self._swept = 0.0
        self._empty: asyncio.Event | None = None
        self._tick_handle = loop.call_later(TICK_SECONDS, self._tick)

    # what connections and exchanges ask and tell

    @property
    def agent_connected(self) -> bool:
        return self.send is not None

    def connection(self) -> ClientConnection:
        """The factory for asyncio's servers."""
        return ClientConnection(self)

    def metrics_connection(self) -> ClientConnection:
        """The same for the address of /metrics, where nothing else is to be had."""
        return ClientConnection(self, for_metrics=True)

    def relay_connection(self) -> ClientConnection:
        """The same for the address of other nodes' gateways."""
        return ClientConnection(self, for_relay=True)

    def next_turn(self) -> int:
        return next(self._turns)

    def metrics_text(self) -> str:
        """Of all workers."""
        self.read_tokens()
        return self.metrics.text(self._board.others() if self._board is not None else ())

    def health(self) -> dict[str, Any]:
        """What /healthz says; of several workers one answers, and says how many there are."""
        said = {"status": "ok", "agent": self.agent_connected, "stopping": self.stopping}
        if self._board is not None:
            said |= {"workers": self._board.workers, "workers_alive": self._board.alive()}
        return said

    def next_id(self) -> str:
        return f"{self._id_prefix}{next(self._ids):08x}"

    def route(self, key: Key, model: str | None, named: str | None, now: int) -> tuple[routing.Route, Refusal | None]:
        """Where a request goes; with a refusal where every channel that would serve it has as many as it may have."""
        in_flight = self._all_in_flight() if self.in_flight_elsewhere else self.in_flight
        found = chosen = routing.route(self.table.order, in_flight, key.caller, model, named, now)
        full: set[str] = set()
        first: Refusal | None = None
        while chosen.channel is not None and self.limits.limited(chosen.channel.name):
            channel = chosen.channel
            access = access_at(step_at(channel.steps, now), now)
            refusal = self.limits.refusal(channel.name, key, access, self.loop.time())
            if refusal is None:
                break
            self._report(channel.name)  # somebody waits
            first = first or refusal
            full.add(channel.name)
            left = [v for v in self.table.order if v.name not in full]
            chosen = routing.route(left, in_flight, key.caller, model, named, now)
        if first is None or chosen.channel is not None:
            return chosen, None
        return found, first

    def admitted(self, exchange: Reply) -> None:
        channel = exchange.channel
        running = self._running.get(channel)
        if running is None:
            running = self._running[channel] = set()
        running.add(exchange)
        self.in_flight[channel] = len(running)
        if exchange.key is not None:
            self.limits.begun(channel, exchange.key)
            if exchange.key.expires_at is not None:
                self._expiring = True
        self._report(channel)

    def finished(self, exchange: Reply, outcome: str) -> None:
        duration = monotonic() - exchange.begun
        at_ms = self.clock.now_ms() - int(duration * 1000)
        channel, answer = exchange.channel, exchange.answer
        if exchange.places:  # counted where it is served
            self.relaying.discard(exchange)
            channel, outcome = "", "relayed" if exchange.answer is not None and outcome != "client_gone" else outcome
        self.metrics.count(
            channel, outcome, exchange.status, exchange.first_byte, exchange.bytes_in, exchange.bytes_out
        )
        self._access_log.add(exchange, outcome, at_ms, duration)
        running = self._running.get(channel)
        if running is not None and exchange in running:
            running.discard(exchange)
            self.in_flight[channel] = len(running)
            if exchange.key is not None:
                self.limits.ended(channel, exchange.key, duration)
            self.usage.add(exchange, outcome, at_ms, duration)
            if answer is not None and not exchange.is_websocket:
                self._answers.append((exchange.id, channel, answer.pieces))
                if len(self._answers) > MOST_ANSWERS:
                    self.read_tokens()
            self._report(channel)

    def refused(self, refusal: Refusal, request_id: str) -> None:
        """A request whose head could not even be read."""
        self.metrics.count("", refusal.code, refusal.status, 0.0, 0, 0)
        log.info("request refused id=%s status=%s why=%s", request_id, refusal.status, refusal.message)

    # what the agent says

    def take(self, message: Mapping[str, Any]) -> None:
        """One message of the agent. Raises TableError, KeyError, TypeError or ValueError where it cannot be used."""
        kind = message["type"]
        if kind == "table":
            table = read(message)
            self.clock.set(message.get("clock"))
            self._take_table(table)
        elif kind == "clock":
            self.clock.set(message)
        elif kind == "keys":
            self.keys.replace(message["keys"])
            self._cut_dead_keys()
        elif kind == "close":
            channel = str(message["channel"])
            self.table.close(channel)
            self._tell(
                {
                    "type": "closed",
                    "channel": channel,
                    "barrier": message["barrier"],
                    "in_flight": self.in_flight.get(channel, 0),
                }
            )
        elif kind == "cut":
            self.cut(str(message["channel"]), int(message["retry_after"]))
        elif kind == "others":
            self.limits.others(message["callers"], int(message["gateways"]))
            self.in_flight_elsewhere = {str(c): int(n) for c, n in message["channels"].items()}
        elif kind == "directory":
            self.directory = read_directory(message, self.node)
            self.members = read_members(message)
        elif kind == "figures":
            self.metrics.of_agent = str(message["text"])
        elif kind == "usage_taken":
            self.usage.taken([str(i) for i in message["ids"]])
        else:
            log.warning("unknown message from the agent type=%s", kind)

    def connected(self, send: Callable[[dict[str, Any]], None]) -> None:
        """The agent is there: it is told who this is and what runs."""
        self.send = send
        self.usage.resend()
        if self.usage_folder is not None:  # of gateways that have ended while the agent was away
            self.usage.find(self.usage_folder)
        send({"type": "hello", "pid": os.getpid(), "gateway_id": self.id, "version": VERSION})
        self._send_counts()

    def disconnected(self) -> None:
        self.send = None
        self.metrics.of_agent = ""
        self.limits.alone()
        self.in_flight_elsewhere.clear()

    def cut(self, channel: str, after: int) -> None:
        """The drain is over: what still runs on the channel is told and ends."""
        refusal = Refusal(
            503,
            "model_switching",
            f"Channel {channel} is switching; this request could not be finished before.",
            retry_after=max(1, after),
        )
        for exchange in tuple(self._running.get(channel, ())):
            exchange.cut(refusal)

    def cut_all(self) -> None:
        """This process ends: what still runs is told."""
        refusal = Refusal(503, "restarting", "This gateway process is being replaced; try again.", retry_after=1)
        for running in (*self._running.values(), self.relaying):
            for exchange in tuple(running):
                exchange.cut(refusal)

    def send_usage(self) -> None:
        """Hands rows over to the agent, if it is there."""
        self.read_tokens()
        for _ in range(MOST_BATCHES):
            if self.send is None or not (rows := self.usage.batch()):
                return
            self.send({"type": "usage", "fields": FIELDS, "rows": rows})

    def read_tokens(self) -> None:
        """What the engines have said of tokens; many answers at once, which costs half of one by one."""
        answers, self._answers = self._answers, []
        for request_id, channel, pieces in answers:
            found = tokens.read(pieces)
            if found != tokens.NONE:
                self.usage.tokens(request_id, found)
                self.metrics.tokens(channel, found)

    # the end

    def stop_accepting(self, handed_over: bool = False) -> None:
        """No new connections. Those that wait for a request are closed; with `handed_over`, for then nothing may be lost,
        each is closed behind its next answer, or when no request has come for a while."""
        self.stopping = True
        if handed_over:
            return
        self.refusing = True
        for connection in tuple(self.connections):
            connection.close_if_idle()

    @property
    def empty(self) -> bool:
        """No client is connected, and nothing runs that a client has left (see `absorbs`)."""
        return not self.connections and not any(self._running.values())

    async def wait_empty(self) -> None:
        """Returns when no connection is left (call after `stop_accepting`); where another process has taken over, also
        when none has come out of a handshake for a while."""
        last = self.loop.time()
        while not self.empty or (not self.refusing and self.loop.time() - last < LAST_HANDSHAKE_SECONDS):
            if not self.empty:
                last = self.loop.time()
            await asyncio.sleep(0.05)

    async def hand_over_usage(self, seconds: float) -> None:
        """Returns when the agent has all rows, is away, or has taken too long."""
        deadline = self.loop.time() + seconds
        while self.send is not None and len(self.usage) and self.loop.time() < deadline:
            self.send_usage()
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Ends everything at once."""
        self._tick_handle.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()
        self.loop.call_soon(self._access_log.flush)  # behind the lines of what has just been ended
        self._access_log.flush()

    # below: how it is done

    def _take_table(self, table: Table) -> None:
        self.table = table
        if table.limits or self.limits.in_force:
            running = {c: [e.key for e in running if e.key is not None] for c, running in self._running.items()}
            self.limits.limit(table.limits, running)
        for name in table.views:
            self.in_flight.setdefault(name, 0)

    def _cut_dead_keys(self) -> None:
        now = self.clock.now_ms()
        refusal = Refusal(401, "invalid_api_key", "The API key was revoked or has expired, or its owner was disabled.")
        expiring = False
        for running in self._running.values():
            for exchange in tuple(running):
                if exchange.key is None:
                    continue
                if not self.keys.still_valid(exchange.key, now):
                    exchange.cut(refusal)
                elif exchange.key.expires_at is not None:
                    expiring = True
        self._expiring = expiring

    def _end_websockets(self) -> None:
        """Of others, when a reservation has run for as long as a drain lasts: they have no end of their own."""
        now = self.clock.now_ms()
        for channel, running in self._running.items():
            view = self.table.views.get(channel)
            access = access_at(step_at(view.steps, now), now) if view is not None and running else None
            if view is None or access is None or now < access.start + view.drain * 1000:
                continue
            for exchange in tuple(running):
                if exchange.is_websocket and exchange.key is not None and not may_use(access, exchange.key.caller):
                    exchange.cut(Refusal(503, "gpu_reserved", f"Channel {channel} is reserved for somebody else now."))

    def _report(self, channel: str) -> None:
        """Tells the agent the counts: at once while the channel is closed (somebody waits for zero), else soon."""
        if self.send is None:
            return
        view = self.table.views.get(channel)
        if view is not None and not view.open:
            self._send_counts()
        elif not self._report_due:
            self._report_due = True
            self.loop.call_later(
                SHORT_REPORT_SECONDS if self.limits.limited(channel) else REPORT_SECONDS, self._send_counts
            )

    def _send_counts(self) -> None:
        self._report_due = False
        message: dict[str, Any] = {"type": "in_flight", "channels": dict(self.in_flight)}
        if self.table.limits:
            message["callers"] = self.limits.report(self.loop.time())
        self._tell(message)

    def _all_in_flight(self) -> dict[str, int]:
        elsewhere = self.in_flight_elsewhere
        return {c: self.in_flight.get(c, 0) + elsewhere.get(c, 0) for c in self.in_flight.keys() | elsewhere.keys()}

    def _tell(self, message: dict[str, Any]) -> None:
        if self.send is not None:
            self.send(message)

    def _tick(self) -> None:
        self._tick_handle = self.loop.call_later(TICK_SECONDS, self._tick)
        now = self.loop.time()
        if self._expiring:
            self._cut_dead_keys()
        self._access_log.flush()
        self.send_usage()
        self._end_websockets()
        if self._board is not None:
            self._board.write(self.metrics.dump())
        if self.stopping and not self.refusing:
            for connection in tuple(self.connections):
                if now - connection.last_read > LAST_REQUEST_SECONDS:
                    connection.close_if_idle()
        if now - self._swept > SWEEP_SECONDS:
            self._swept = now
            for connection in tuple(self.connections):
                connection.check_idle(now)
            for running in (*self._running.values(), self.relaying):
                for exchange in tuple(running):
                    exchange.check_engine(now)

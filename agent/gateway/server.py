"""The gateway of a node: what its connections share.

Everything runs on one event loop; nothing here waits. What the agent says is taken in link.py, what it should know goes
out through `send`, which is None while the agent is away: requests go on without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from importlib.metadata import version
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from agent.core import routing
from agent.core.directory import Directory
from agent.core.types import access_at, step_at
from agent.gateway import tokens
from agent.gateway.access_log import AccessLog
from agent.gateway.board import Board
from agent.gateway.clock import Clock
from agent.gateway.connection import ClientConnection
from agent.gateway.cors import Cors
from agent.gateway.errors import Refusal
from agent.gateway.keys import Key, Keys
from agent.gateway.metrics import Metrics
from agent.gateway.relay import Relays
from agent.gateway.reply import Reply
from agent.gateway.running import Running
from agent.gateway.table import Table
from agent.gateway.usage import FIELDS, Usage

log = logging.getLogger(__name__)
VERSION = version("slotserve")
BODY_LIMIT = 64 * 1024 * 1024
TICK_SECONDS = 0.5  # expired keys, access log, usage
SWEEP_SECONDS = 5.0  # idle connections, engines that say nothing
ENGINE_IDLE_SECONDS = 3600.0  # of an engine, before it is given up on
LAST_REQUEST_SECONDS = 3.0  # for a connection without one, when another process accepts already
MOST_ANSWERS = 2000  # before their tokens are read
MOST_BATCHES = 10  # of usage rows in one tick
REPORT_SECONDS = 0.05  # in-flight counts, where nobody waits for them
SHORT_REPORT_SECONDS = 0.01  # of channels with a limit, which other processes count on


class Gateway:
    """State of one gateway process."""

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
        self.keys = Keys()
        self.clock = Clock()
        self.usage = Usage()
        self.usage_folder: Path | None = None  # where gateways leave what nobody has taken
        self.running = Running()
        self.metrics = Metrics(self.running.everywhere, lambda: {v.name: v.phase for v in self.table.order})
        self.connections: set[ClientConnection] = set()
        self.stopping = False  # every answer is the last of its connection
        self.refusing = False  # and what is not running yet is not begun
        self.agent_tried = asyncio.Event()  # it has said something, or is away
        self._board = board
        if board is not None:
            self.metrics.add(board.read(board.own))  # of the worker that was here before
        self.send: Callable[[dict[str, Any]], None] | None = None
        self._access_log = access_log or AccessLog()
        self._answers: list[tuple[str, str, list[bytes]]] = []  # that have ended, and whose tokens are to be read
        self._ids = count(1)
        self._turns = count()
        self._id_prefix = f"req_{secrets.token_hex(8)}"
        self._report_due = False
        self._swept = 0.0
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
        """Of all workers. What is said here is on the board before, so that whoever is asked next says no less."""
        self.read_tokens()
        self.show_figures()
        return self.metrics.text(self._board.others() if self._board is not None else ())

    def show_figures(self) -> None:
        """To the other workers, which see by it as well that this one serves."""
        if self._board is not None:
            self._board.write(self.metrics.dump())

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
        in_flight, limits = self.running.everywhere(), self.running.limits
        found = chosen = routing.route(self.table.order, in_flight, key.caller, model, named, now)
        full: set[str] = set()
        first: Refusal | None = None
        while chosen.channel is not None and limits.limited(chosen.channel.name):
            channel = chosen.channel
            access = access_at(step_at(channel.steps, now), now)
            refusal = limits.refusal(channel.name, key, access, self.loop.time())
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
        self.running.begun(exchange)
        self._report(exchange.channel)

    def finished(self, exchange: Reply, outcome: str) -> None:
        duration = monotonic() - exchange.begun
        at_ms = self.clock.now_ms() - int(duration * 1000)
        channel, answer = exchange.channel, exchange.answer
        if exchange.places:  # counted where it is served
            self.running.relaying.discard(exchange)
            channel, outcome = "", "relayed" if exchange.answer is not None and outcome != "client_gone" else outcome
        self.metrics.count(
            channel, outcome, exchange.status, exchange.first_byte, exchange.bytes_in, exchange.bytes_out
        )
        self._access_log.add(exchange, outcome, at_ms, duration)
        if self.running.ended(exchange, duration):
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

    # the agent

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
        self.running.limits.alone()
        self.running.elsewhere.clear()

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
        return not self.connections and self.running.none()

    def close(self) -> None:
        """Ends everything at once."""
        self._tick_handle.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()
        self.loop.call_soon(self._access_log.flush)  # behind the lines of what has just been ended
        self._access_log.flush()

    # below: how it is done

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
                SHORT_REPORT_SECONDS if self.running.limits.limited(channel) else REPORT_SECONDS, self._send_counts
            )

    def _send_counts(self) -> None:
        self._report_due = False
        message: dict[str, Any] = {"type": "in_flight", "channels": dict(self.running.in_flight)}
        if self.table.limits:
            message["callers"] = self.running.limits.report(self.loop.time())
        self.tell(message)

    def tell(self, message: dict[str, Any]) -> None:
        """Said to the agent where it is there."""
        if self.send is not None:
            self.send(message)

    def _tick(self) -> None:
        self._tick_handle = self.loop.call_later(TICK_SECONDS, self._tick)
        now = self.loop.time()
        self.running.cut_expired(self.keys, self.clock.now_ms())
        self._access_log.flush()
        self.send_usage()
        self.running.cut_websockets(self.table, self.clock.now_ms())
        self.show_figures()
        if self.stopping and not self.refusing:
            for connection in tuple(self.connections):
                if now - connection.last_read > LAST_REQUEST_SECONDS:
                    connection.close_if_idle()
        if now - self._swept > SWEEP_SECONDS:
            self._swept = now
            for connection in tuple(self.connections):
                connection.check_idle(now)
            self.running.check_engines(now)

"""The gateway's real code without sockets and without time: a loop and transports whose every step the caller decides.

A thousand times as many requests as over sockets, each reproducible to the byte.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from agent.gateway.access_log import AccessLog
from agent.gateway.link import take
from agent.gateway.server import Gateway

KEY = b"sk-ss-tomas"
MODEL = "the-model"
NOW = 1_800_000_000_000


class Handle:
    """A call for later, or a task."""

    def __init__(self, call: Callable[[], Any] | None, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
        self._call, self._coroutine = call, coroutine

    def cancel(self) -> bool:
        if self._coroutine is not None:
            self._coroutine.close()
        self._call = self._coroutine = None
        return True

    def cancelled(self) -> bool:
        return self._call is None and self._coroutine is None

    def done(self) -> bool:
        return self.cancelled()

    def run(self) -> None:
        call, coroutine = self._call, self._coroutine
        self._call = self._coroutine = None
        if call is not None:
            call()
        elif coroutine is not None:
            try:
                coroutine.send(None)
            except StopIteration:
                return
            raise AssertionError("a task waits for something that this loop does not know")


class Loop:
    """As much of an event loop as the gateway's connections ask for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.soon: deque[Handle] = deque()
        self.dialled: list[Line] = []
        self.refuses = False
        self.quiet, self._other = socket.socketpair()  # what stands for every transport's socket: nothing happens there
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = itertools.count()

    def close(self) -> None:
        self.quiet.close()
        self._other.close()

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(lambda: call(*args))
        self.soon.append(handle)
        return handle

    def call_later(self, seconds: float, call: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(lambda: call(*args))
        heapq.heappush(self._timers, (self.now + seconds, next(self._count), handle))
        return handle

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> Handle:
        handle = Handle(None, coroutine)
        self.soon.append(handle)
        return handle

    async def create_unix_connection(self, factory: Callable[[], Any], path: str) -> tuple[Any, Any]:
        if self.refuses:
            raise ConnectionRefusedError("nobody there")
        line = Line(self, factory())
        self.dialled.append(line)
        line.protocol.connection_made(line)
        return line, line.protocol

    def run_soon(self) -> bool:
        """What is due now; whether there was anything."""
        ran = False
        for _ in range(10_000):
            if not self.soon:
                return ran
            self.soon.popleft().run()
            ran = True
        raise AssertionError("the loop never comes to rest")

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        self.run_soon()
        while self._timers and self._timers[0][0] <= end:
            self.now, _, handle = heapq.heappop(self._timers)
            handle.run()
            self.run_soon()
        self.now = end


class Line:
    """A transport; `written` is what the gateway has sent, `lost` whether the protocol was told of the end."""

    def __init__(self, loop: Loop, protocol: Any) -> None:
        self.protocol = protocol
        self.written = b""
        self.lost = self.eof_written = self.aborted = False
        self._loop = loop
        self._reading, self._closing = True, False

    # what the gateway calls

    def write(self, data: bytes) -> None:
        assert not self.eof_written, "written after the end of file"
        if not self._closing:
            self.written += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        self.eof_written = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self.aborted = True
        self._end()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 1), "socket": self._loop.quiet}.get(name, default)

    # what the other side does

    def says(self, data: bytes) -> bool:
        """False where the gateway does not read now."""
        if self._closing:
            return True  # for nobody
        if not self._reading:
            return False
        self.protocol.data_received(data)
        return True

    def goes(self, error: Exception | None = None) -> None:
        """The other side closes (or breaks off)."""
        if not self._closing:
            if error is None:
                self.protocol.eof_received()
            self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        assert not self.lost
        self.lost = True
        self.protocol.connection_lost(error)


class _Lines(AccessLog):
    """Makes the access log's lines and keeps none."""

    def flush(self) -> None:
        self._lines.clear()


class World:
    """A gateway that serves one channel, `main`, to one key."""

    def __init__(self, body_limit: int = 1_000_000) -> None:
        self.loop = Loop()
        self.gateway = Gateway(self.loop, body_limit=body_limit, access_log=_Lines(as_json=True))  # type: ignore[arg-type]
        self.gateway.clock.now_ms = lambda: NOW + int(self.loop.now * 1000)  # type: ignore[method-assign]
        self.rows: list[dict[str, Any]] = []
        self.gateway.connected(self._taken)
        self.set_keys(True)
        self.set_table()

    def set_keys(self, valid: bool) -> None:
        row = {"id": "k1", "user_id": "u1", "user_name": "fuzz", "role": "user", "expires_at_ms": None}
        take(self.gateway, {"type": "keys", "keys": {hashlib.sha256(KEY).hexdigest(): row} if valid else {}})

    def set_table(self) -> None:
        target = {"identity": "i", "model": MODEL, "preset": None}
        serving = {**target, "launch_id": "l", "socket": "/engine", "host": "", "port": 0, "engine_key": "engine-key",
                   "served_name": MODEL}  # fmt: skip
        entry = {"name": "main", "open": True, "phase": "ready", "serving": serving, "loading": None, "fallback": False,
                 "switching": None, "failure": None, "blocked": None,
                 "steps": [{"at": 0, "target": target, "why": "default"}]}  # fmt: skip
        take(self.gateway, {"type": "table", "version": 1, "clock": None, "settings": {}, "channels": [entry]})

    def connect(self) -> Line:
        """A client's connection."""
        protocol: asyncio.Protocol = self.gateway.connection()
        line = Line(self.loop, protocol)
        protocol.connection_made(line)  # type: ignore[arg-type]
        return line

    def _taken(self, message: dict[str, Any]) -> None:
        if message["type"] == "usage":
            rows = [dict(zip(message["fields"], row, strict=True)) for row in message["rows"]]
            self.rows += rows
            ids = [row["id"] for row in rows]
            self.loop.call_soon(lambda: take(self.gateway, {"type": "usage_taken", "ids": ids}))

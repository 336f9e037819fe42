"""The clients of the gateway's benchmark: requests as OpenAI's clients send them, and the times until something comes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

KEY = "sk-ss-bench"
ANSWER_ENDS, STREAM_ENDS = b'"}}]}', b"\r\n0\r\n\r\n"
PATIENCE_SECONDS = 60.0
MANY = 1_000_000
Where = int | Path  # a port of 127.0.0.1, or a Unix socket


def request(stream: bool, pace: str = "", length: int = 930) -> bytes:
    """1 kB of JSON; `pace` as upstream.py reads it; `length`: of the text in it."""
    content = {
        "messages": [{"role": "user", "content": (pace + "x" * length)[:length]}],
        "model": "bench-model",
        "stream": stream,
    }
    body = json.dumps(content, separators=(",", ":")).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 3.57.0\r\nAccept-Encoding: gzip, deflate\r\n"
        b"Authorization: Bearer %b\r\nX-Stainless-Lang: python\r\nX-Stainless-OS: Linux\r\nContent-Length: %d\r\n\r\n%b"
    ) % (KEY.encode(), len(body), body)


REQUESTS = [request(False, length=length) for length in range(880, 981, 7)]  # no two in a row are of one length


async def call(where: Where, connections: int, data: bytes | Sequence[bytes], number: int, ends: bytes) -> list[float]:
    """`number` requests one after another on each connection; the times to each answer's first byte, in seconds."""
    callers = [Caller(data, number, ends) for _ in range(connections)]
    for caller in callers:
        await _connect(where, caller)
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [t for times in await asyncio.gather(*(c.done for c in callers)) for t in times]


async def first_bytes(where: Where, engine: Path, streams: int, probes: int) -> tuple[list[float], list[float]]:
    """The first bytes' times of `probes` streams that begin one by one while `streams` others run, one after another on
    each of their connections for as long as that takes; and, each in turn with one of them, of as many that go to the
    engine directly."""
    others = [Caller(request(True), MANY, STREAM_ENDS) for _ in range(streams)]
    for other in others:
        await _connect(where, other)
    while not all(other.first for other in others):
        await asyncio.sleep(0.05)
    through: list[float] = []
    direct: list[float] = []
    for _ in range(probes):
        for way, times in ((where, through), (engine, direct)):
            times += await call(way, 1, request(True, "every=0.01 chunks=1 "), 1, STREAM_ENDS)
    for other in others:
        other.last()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(other.done for other in others))
    return through, direct


class Caller(asyncio.Protocol):
    """Sends `number` requests one after another; `done` has the first bytes' times after the last answer."""

    def __init__(self, data: bytes | Sequence[bytes], number: int, ends: bytes) -> None:
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.first: list[float] = []
        self._data = cycle([data] if isinstance(data, bytes) else data)
        self._left, self._ends = number, ends
        self._tail = b""
        self._sent = 0.0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        if not self._tail:
            self.first.append(time.perf_counter() - self._sent)
        self._tail = (self._tail + data)[-len(self._ends) :]
        if self._tail != self._ends:
            return
        self._left -= 1
        if self._left:
            self._send()
        else:
            self.done.set_result(self.first)
            self._transport.close()

    def last(self) -> None:
        """The answer under way is the last."""
        self._left = min(self._left, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed in the middle"))

    def _send(self) -> None:
        self._tail = b""
        self._sent = time.perf_counter()
        self._transport.write(next(self._data))


async def _connect(where: Where, caller: Caller) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(where, int):
        await loop.create_connection(lambda: caller, "127.0.0.1", where)
    else:
        await loop.create_unix_connection(lambda: caller, str(where))

"""The engine of the benchmarks: answers as fast as it can, on a Unix socket. A stream's chunks come at a steady pace, which
the body may set: "every=1.5 chunks=8"."""

from __future__ import annotations

import asyncio
import re
import sys
from itertools import cycle
from typing import Any

import uvloop

ANSWERS = [
    b'{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":"' + b"x" * length + b'"}}]}'
    for length in range(350, 451, 7)
]
WHOLE = cycle(
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for body in ANSWERS
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"'
    + b"x" * 40
    + b'"}}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream": ?true')
PACE = re.compile(rb"every=([\d.]+) chunks=(\d+)")
CHUNKS, EVERY_SECONDS = 100, 0.02


class Engine(asyncio.Protocol):
    """One connection, one request after another."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: Any = None
        self._left = 0
        self._every = EVERY_SECONDS

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not found or len(body) < (int(length.group(1)) if length else 0):
            return
        self._data = b""
        if STREAM.search(body):
            self._transport.write(HEAD)
            pace = PACE.search(body)
            self._every, self._left = (float(pace[1]), int(pace[2])) if pace else (EVERY_SECONDS, CHUNKS)
            asyncio.get_running_loop().call_later(self._every, self._next)
            return
        self._transport.write(next(WHOLE))
        if b"connection: close" in head.lower() or b"HTTP/1.0" in head:
            self._transport.close()

    def _next(self) -> None:
        if self._transport.is_closing():
            return
        self._left -= 1
        if self._left:
            self._transport.write(CHUNK)
            asyncio.get_running_loop().call_later(self._every, self._next)
        else:
            self._transport.write(CHUNK + b"0\r\n\r\n")


async def main(path: str) -> None:
    await asyncio.get_running_loop().create_unix_server(Engine, path, backlog=1024)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))

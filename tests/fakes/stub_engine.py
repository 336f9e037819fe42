"""An engine whose every byte the test decides: it answers each request by a coroutine, and records what reached it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Seen:
    """A request as it arrived; `gone` is set as soon as the other side has closed."""

    line: str
    headers: dict[str, str]
    raw_headers: list[str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    later: bytearray = field(default_factory=bytearray)  # what came behind the request

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]

    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            raise ConnectionResetError("the gateway has closed")
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))


Behaviour = Callable[[Seen], Awaitable[None]]
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nServer: stub\r\n\r\n"


def token(text: str = "x") -> bytes:
    content = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def complete(seen: Seen) -> None:
    """A whole answer that says which model was asked for."""
    try:
        model = seen.json().get("model")
    except ValueError:
        model = None
    body = json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        }
    ).encode()
    await seen.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n%b"
        % (len(body), body)
    )


async def stream_for_ever(seen: Seen) -> None:
    """Tokens until the other side goes."""
    await seen.send(SSE_HEAD)
    while not seen.gone.is_set():
        await seen.chunk(token())
        await asyncio.sleep(0.005)


async def silent(seen: Seen) -> None:
    """Takes the request and never answers."""
    await seen.gone.wait()


class StubEngine:
    """Listens on a Unix socket. `behaviour` answers; `seen` holds the requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.behaviour: Behaviour = complete
        self.seen: list[Seen] = []
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, backlog: int = 100) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=2**18, backlog=backlog)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def next(self, number: int = 1, seconds: float = 5.0) -> Seen:
        """The `number`-th request, once it is there."""
        async with asyncio.timeout(seconds):
            while len(self.seen) < number:
                await asyncio.sleep(0.002)
        return self.seen[number - 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            seen = await self._read(reader, writer)
            self.seen.append(seen)
            watcher = asyncio.create_task(self._watch(seen))
            try:
                await self.behaviour(seen)
            finally:
                watcher.cancel()
                if writer.transport.is_closing():
                    seen.gone.set()  # a write was the first to notice
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the gateway went away, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    @staticmethod
    async def _watch(seen: Seen) -> None:
        try:
            while data := await seen.reader.read(65536):
                seen.later += data
        except ConnectionError:
            pass  # a reset is as good an end as any
        seen.gone.set()

    @staticmethod
    async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head[:-4].split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        body = b""
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        return Seen(line, headers, lines, body, reader, writer)

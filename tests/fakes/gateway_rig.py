"""A gateway in the test's own loop: the real server code and the agent's real side, a stub engine, a clock by hand."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from agent.gateway.access_log import AccessLog
from agent.gateway.link import keep_linked
from agent.gateway.server import Gateway
from agent.gateways import Gateways
from tests.fakes.stub_engine import StubEngine
from tests.parts import until

NOW = 1_800_000_000_000
WHO = {"holder": "maya", "participant": "noor", "stranger": "tomas", "admin": "root"}


def secret(who: str) -> str:
    return f"sk-ss-{who}"


def target(model: str = "default-model", preset: str | None = None) -> dict[str, Any]:
    return {"identity": f"id:{model}:{preset}", "model": model, "preset": preset}


def step(at: int, what: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    base = {"why": "default", "fallback": None, "reservation_id": "", "prepares_for": None, "access": None}
    return {"at": at, "target": what, **base, **more}


def reserved(
    start: int, end: int, what: dict[str, Any] | None, fallback: dict[str, Any] | None = None, at: int | None = None
) -> dict[str, Any]:
    """A step in which maya's reservation runs, noor may call as well."""
    access = {
        "reservation_id": "r1",
        "kind": "model" if what else "exclusive",
        "holder_id": "maya",
        "participant_ids": ["noor"],
        "holder_name": "Maya",
        "start": start,
        "end": end,
    }
    why = "reserved" if what else "exclusive"
    return step(start if at is None else at, what, why=why, fallback=fallback, reservation_id="r1", access=access)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        return self.json()["error"]["code"] if self.status >= 400 else None


class Rig:
    """`async with Rig() as rig`. `now` is node time; `entry` makes a channel's entry served by the stub engine."""

    def __init__(self, *, body_limit: int = 64 * 1024 * 1024) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ssgw"))
        self.now = NOW
        self.rows: list[dict[str, Any]] = []
        self.body_limit = body_limit

    async def __aenter__(self) -> Rig:
        loop = asyncio.get_running_loop()
        self.engine = StubEngine(self.folder / "engine.sock")
        await self.engine.start()
        self.gateways = Gateways(self.folder / "state", self.folder / "run", self.rows.extend)
        await self.gateways.start()
        self.gateways.set_keys(self.keys())
        self.gateway = Gateway(loop, body_limit=self.body_limit, access_log=AccessLog(enabled=False))
        self.gateway.clock.now_ms = lambda: self.now  # type: ignore[method-assign]
        self.server = await loop.create_server(self.gateway.connection, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._link = loop.create_task(keep_linked(self.gateway, self.folder / "run" / "agent.sock"))
        await self.until(lambda: self.gateway.keys.known and self.gateways.connected)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._link.cancel()
        await asyncio.gather(self._link, return_exceptions=True)
        self.server.close()
        self.gateway.close()
        await self.engine.stop()
        await self.gateways.close_server()
        shutil.rmtree(self.folder)

    @staticmethod
    def keys(without: str = "") -> dict[str, dict[str, Any]]:
        people = {who: "admin" if who == "root" else "user" for who in WHO.values() if who != without}
        return {
            hashlib.sha256(secret(who).encode()).hexdigest(): {
                "id": f"k-{who}",
                "user_id": who,
                "user_name": who,
                "role": role,
                "expires_at_ms": None,
            }
            for who, role in people.items()
        }

    def entry(self, name: str = "main", serving: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """By default ready; `serving` None: nothing is."""
        shown = None
        if serving is not None:
            shown = {
                **serving,
                "launch_id": "l1",
                "socket": str(self.engine.path),
                "host": "127.0.0.1",
                "port": 0,
                "engine_key": "engine-secret",
                "served_name": serving["model"],
            }
        base = {
            "name": name,
            "open": True,
            "phase": "ready" if serving else "off",
            "serving": shown,
            "loading": None,
            "fallback": False,
            "switching": None,
            "failure": None,
            "blocked": None,
            "steps": [step(NOW - 1000, serving)],
        }
        return {**base, **more}

    async def publish(self, *entries: dict[str, Any]) -> None:
        """Puts entries into the table and waits until the gateway has it."""
        for entry in entries:
            self.gateways.publish(entry["name"], entry)
        await asyncio.sleep(0)
        await self.until(lambda: self.gateway.table.version == self.gateways._version)

    async def serve_default(self) -> None:
        await self.publish(self.entry(serving=target()))

    until = staticmethod(until)

    async def drained(self, channel: str = "main") -> None:
        """Both counts are exactly zero."""
        await self.until(
            lambda: not self.gateway.running.in_flight.get(channel) and not self.gateways.in_flight(channel)
        )

    # clients

    async def call(
        self,
        who: str | None = "tomas",
        model: str | None = "auto",
        path: str = "/v1/chat/completions",
        **more: Any,
    ) -> Answer:
        content = {"messages": [{"role": "user", "content": "hi"}], **more}
        if model is not None:
            content["model"] = model
        return await self.raw(request(path, json.dumps(content).encode(), who))

    async def get(self, path: str, who: str | None = "tomas", headers: str = "") -> Answer:
        return await self.raw(request(path, b"", who, "GET", headers))

    async def raw(self, *pieces: bytes, pause: float = 0.0) -> Answer:
        """Sends the pieces one by one on a connection of their own; one answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                await send(writer, piece)
                if len(pieces) > 1:
                    await asyncio.sleep(pause)
            return await read_answer(reader)
        finally:
            writer.close()

    async def open(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await send(writer, data)
        return reader, writer


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """At once, or byte by byte (of long ones, their first and last thousand) where SLOTSERVE_TEST_SPLIT is set: so a whole
    suite can be run with every request in the smallest pieces."""
    if not os.environ.get("SLOTSERVE_TEST_SPLIT"):
        writer.write(data)
        await writer.drain()
        return
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ends = range(1000) if len(data) <= 2000 else (*range(1000), *range(len(data) - 1000, len(data)))
    at = 0
    for end in (*(e + 1 for e in ends if e < len(data)), len(data)):
        if end > at:
            writer.write(data[at:end])
            at = end
            await writer.drain()
            await asyncio.sleep(0)


def request(path: str, body: bytes = b"", who: str | None = "tomas", method: str = "POST", headers: str = "") -> bytes:
    key = f"Authorization: Bearer {secret(who)}\r\n" if who else ""
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n{key}{headers}{length}\r\n".encode() + body


def chat(stream: bool = False, model: str = "auto", who: str = "tomas", headers: str = "", path: str = "") -> bytes:
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}).encode()
    return request(path or "/v1/chat/completions", body, who, headers=headers)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """One whole answer; IncompleteReadError where it ends too early."""
    async with asyncio.timeout(20):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head[:-4].split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        status = int(line.split(" ")[1])
        if status == 100:
            return await read_answer(reader)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
        return Answer(status, headers, body)


def run(test: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    """Runs a test with a rig on the loop that the gateway runs on."""

    async def main() -> None:
        async with Rig(**settings) as rig:
            await test(rig)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode()


def events_of(body: bytes) -> list[str]:
    text = body.decode()
    assert text.endswith("\n\n"), "the stream ends at an event's end"
    return text[:-2].split("\n\n")


async def rest_of(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """The chunks' data up to the end of the connection, and whether it ended with a last chunk."""
    raw = await asyncio.wait_for(reader.read(), 20)
    data = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        if int(size, 16) == 0:
            assert raw == b"\r\n"
            return data, True
        data, raw = data + raw[: int(size, 16)], raw[int(size, 16) + 2 :]
    return data, False

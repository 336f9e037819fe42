"""Clients that are slow, stop half-way or go: they cost no memory, nobody waits for them, and nothing is left of them."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
import tempfile
from pathlib import Path

import httpx
import pytest

from agent.gateway.connection import HEAD_SECONDS
from tests.bench import proxies
from tests.bench.load import request as bench_request
from tests.fakes.gateway_rig import Rig, chat, read_answer, request, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, StubEngine, complete, token

SLOW, BLOCK = 30, 16_000


@pytest.mark.system
def test_a_client_that_reads_a_kilobyte_a_second_costs_no_memory() -> None:
    written: dict[int, int] = {}

    async def flood(seen: Seen) -> None:
        if b'"stream":true' not in seen.body:
            await complete(seen)
            return
        await seen.send(SSE_HEAD)
        while not seen.gone.is_set():
            await seen.chunk(b"data: " + b"x" * BLOCK + b"\n\n")
            written[id(seen)] = written.get(id(seen), 0) + BLOCK

    async def sip(sock: socket.socket, times: int) -> int:
        loop, read = asyncio.get_running_loop(), 0
        for _ in range(times):
            read += len(await loop.sock_recv(sock, 1000))
            await asyncio.sleep(1.0)
        return read

    async def test(folder: Path) -> None:
        loop = asyncio.get_running_loop()
        engine = StubEngine(folder / "engine.sock")
        engine.behaviour = flood
        await engine.start()
        context = proxies.gateway(folder, engine.path)
        proxy = await asyncio.to_thread(context.__enter__)
        try:
            before = proxy.resident_mb()
            clients = []
            for _ in range(SLOW):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                client.setblocking(False)
                await loop.sock_connect(client, ("127.0.0.1", proxy.port))
                await loop.sock_sendall(client, bench_request(True))
                clients.append(client)
            sips = asyncio.gather(*(sip(client, 4) for client in clients))
            at_first: dict[int, int] = {}
            while len(at_first) < SLOW or at_first != written:  # until the kernel's buffers are full
                at_first = dict(written)
                await asyncio.sleep(0.5)
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(bench_request(False))
            assert (await asyncio.wait_for(read_answer(reader), 20)).status == 200, "others are served meanwhile"
            writer.close()
            assert min(await sips) >= 3000, "what they read comes"
            assert proxy.resident_mb() - before < 15, "30 streams of as much as the engine can say"
            for number, size in written.items():
                assert size - at_first[number] < 200_000, "the engine is held back"
                assert size < 6_000_000, "what the kernel's buffers take"
            for client in clients:
                client.close()
            for seen in (s for s in engine.seen if id(s) in written):
                await asyncio.wait_for(seen.gone.wait(), 20)
            async with httpx.AsyncClient() as http:
                metrics = (await http.get(f"http://127.0.0.1:{proxy.port}/metrics")).text
            assert 'slotserve_gateway_in_flight{channel="main"} 0' in metrics
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)
            await engine.stop()

    folder = Path(tempfile.mkdtemp(prefix="ssslow"))
    try:
        asyncio.run(test(folder))
    finally:
        shutil.rmtree(folder)


def test_slow_heads_keep_nobody_waiting_and_are_given_up_on() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        slow = [await rig.open(chat()[: 20 + number % 100]) for number in range(300)]
        await rig.until(lambda: len(rig.gateway.connections) == 300)
        assert (await rig.call()).status == 200, "others are served meanwhile"
        for number, (_, writer) in enumerate(slow):
            writer.write(chat()[20 + number % 100 :][:1])  # dripping on does not help
        await asyncio.sleep(0.05)
        for connection in tuple(rig.gateway.connections):
            connection.check_idle(rig.gateway.loop.time() + HEAD_SECONDS + 1)
        for reader, writer in slow:
            answer = await read_answer(reader)
            assert (answer.status, answer.code) == (408, "request_timeout")
            writer.close()
        await rig.until(lambda: not rig.gateway.connections)
        assert not rig.gateway.running.in_flight.get("main")

    run(test)


def test_heads_beyond_the_limit_are_not_gathered() -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.open(b"GET / HTTP/1.1\r\nHost: g\r\n")
        line = b"X-%d: " + b"a" * 1000 + b"\r\n"
        for number in range(200):
            writer.write(line % number)
            await asyncio.sleep(0)
        assert (await read_answer(reader)).status == 431
        await rig.until(lambda: all(c._head_size < 200_000 for c in rig.gateway.connections))
        writer.close()

    run(test)


def test_nothing_is_left_whenever_a_client_goes() -> None:
    """In the head, in a short body, in a long one, in chunks, before the answer, in it, behind it, in a WebSocket."""
    dice = random.Random(11)
    long_body = b'{"model": "auto", "input": "' + b"x" * 600_000 + b'"}'
    offer = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    pieces = [long_body[i : i + 50_000] for i in range(0, len(long_body), 50_000)]
    chunked = request("/v1/embeddings", headers="Transfer-Encoding: chunked\r\n") + b"".join(
        b"%x\r\n%b\r\n" % (len(p), p) for p in pieces
    )
    kinds = [
        chat(True),
        chat(),
        request("/v1/embeddings", long_body),
        chunked + b"0\r\n\r\n",
        request("/v1/realtime?model=auto", b"", "tomas", "GET", offer),
        chat(True, model="nonsense"),
        chat(True, who="eve"),
    ]

    async def moody(seen: Seen) -> None:
        mood = dice.random()
        if mood < 0.1:
            seen.writer.transport.abort()
            return
        if seen.line.startswith("GET "):
            await seen.send(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x02hi"
            )
        elif mood < 0.3:
            await complete(seen)
            return
        else:
            await seen.send(SSE_HEAD)
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(dice.random() * 0.01)
            if not seen.line.startswith("GET "):
                await seen.chunk(token())
        if mood < 0.6 and not seen.line.startswith("GET "):
            await seen.send(b"0\r\n\r\n")

    async def one(rig: Rig) -> None:
        data = dice.choice(kinds)
        how = dice.random()
        if how < 0.4:
            data = data[: dice.randrange(len(data))]
        reader, writer = await rig.open(data)
        await asyncio.sleep(dice.random() * 0.05)
        if how < 0.7:
            writer.transport.abort()
        else:
            await asyncio.wait_for(reader.read(2000), 20)
            writer.close()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = moody
        for turn in range(8):
            calls = asyncio.gather(*(one(rig) for _ in range(40)), return_exceptions=True)
            await asyncio.sleep(0.03)
            if turn % 4 == 1:
                rig.gateways.cut("main", 3)
            await calls
        await rig.drained()
        await rig.until(lambda: not rig.gateway.connections, 10)
        assert rig.gateway.running.none()
        await rig.until(lambda: len(rig.gateway.usage) == 0)
        assert len({row["id"] for row in rig.rows}) == len(rig.rows) > 60
        assert json.dumps(rig.gateway.running.in_flight) == '{"main": 0}'

    run(test)

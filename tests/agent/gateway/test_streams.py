"""Streams and their ends: passed as they come, cut at an event's end, ended with whoever goes away."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes.gateway_rig import NOW, Rig, chat, head_of, read_answer, request, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, complete, silent, stream_for_ever, token

CORS = b"Access-Control-Allow-Origin: \r\naccess-control-allow-credentials: true\r\n"  # as llama-server sends it


def test_a_stream_passes_as_it_came() -> None:
    async def three(seen: Seen) -> None:
        await seen.send(
            SSE_HEAD.replace(
                b"\r\n\r\n", b"\r\nKeep-Alive: timeout=5\r\nX-SlotServe-Model: forged\r\n" + CORS + b"\r\n"
            )
        )
        for word in ("a", "b", "ü"):
            await seen.chunk(token(word))
        await seen.send(b"0\r\n\r\n")

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = three
        answer = await rig.raw(chat(True))
        assert answer.body == token("a") + token("b") + token("ü")
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-slotserve-model"] == "default-model"
        for name in ("keep-alive", "server", *(x.partition(":")[0].lower() for x in CORS.decode().splitlines())):
            assert name not in answer.headers, "what the engine says of itself is not the gateway's word"
        await rig.drained()

    run(test)


def test_what_goes_upstream() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        extra = (
            "Accept-Encoding: gzip\r\nCookie: a=b\r\nX-Odd: kept\r\nConnection: x-hop\r\nX-Hop: no\r\n"
            "TE: trailers\r\nx-api-key: sk-ss-tomas\r\nX-Stainless-Lang: python\r\n"
        )
        assert (await rig.raw(chat(headers=extra))).status == 200
        seen = rig.engine.seen[0]
        assert seen.headers["authorization"] == "Bearer engine-secret"
        assert seen.headers["x-odd"] == "kept"
        assert "sk-ss" not in "".join(seen.raw_headers)
        for name in ("accept-encoding", "cookie", "x-hop", "te", "x-api-key", "x-stainless-lang"):
            assert name not in seen.headers
        assert seen.headers["connection"] == "close"

    run(test)


@pytest.mark.parametrize("phase", ["queued", "before first byte", "mid-stream"])
@pytest.mark.parametrize("how", ["close", "abort"])
def test_client_gone(phase: str, how: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        if phase == "queued":  # the engine's socket does not take the connection yet
            await rig.engine.stop()
            import socket

            door = socket.socket(socket.AF_UNIX)
            door.bind(str(rig.engine.path))
            door.listen(8)
            _, writer = await rig.open(chat(True))
            await rig.until(lambda: rig.gateway.running.in_flight.get("main"))
            writer.close() if how == "close" else writer.transport.abort()
            await rig.drained()
            door.close()
            return
        rig.engine.behaviour = silent if phase == "before first byte" else stream_for_ever
        reader, writer = await rig.open(chat(True))
        seen = await rig.engine.next()
        if phase == "mid-stream":
            await head_of(reader)
        assert rig.gateway.running.in_flight["main"] == 1
        writer.close() if how == "close" else writer.transport.abort()
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()
        await rig.until(lambda: rig.rows)
        assert rig.rows[0]["outcome"] == "client_gone"

    run(test)


def test_http_1_0_client_gets_no_chunks() -> None:
    async def two(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(token("a"))
        await seen.chunk(token("b"))
        await seen.send(b"0\r\n\r\n")

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = two
        answer = await rig.raw(chat(True).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert answer.body == token("a") + token("b")
        assert answer.headers["connection"] == "close"

    run(test)


def test_answer_that_ends_with_the_connection() -> None:
    async def old(seen: Seen) -> None:
        await seen.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
        await seen.send(b" there")

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = old
        answer = await rig.raw(chat())
        assert answer.body == b"hello there"
        assert answer.headers["transfer-encoding"] == "chunked"

    run(test)


def test_slow_reader_costs_no_memory() -> None:
    async def flood(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for _ in range(4000):  # 64 MB
            await seen.chunk(b"data: " + b"x" * 16_000 + b"\n\n")

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = flood
        _, writer = await rig.open(chat(True))
        writer.transport.pause_reading()
        seen = await rig.engine.next()
        await rig.until(lambda: seen.writer.transport.get_write_buffer_size() > 0)  # the engine is held back
        (connection,) = rig.gateway.connections
        assert connection.transport.get_write_buffer_size() < 1_000_000
        writer.transport.abort()
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()

    run(test)


def test_slow_engine_holds_a_big_upload_back() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        release = asyncio.Event()
        original = rig.engine._read

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
            await release.wait()
            return await original(reader, writer)

        rig.engine._read = late  # type: ignore[method-assign]
        size = 48 * 1024 * 1024
        body = b'{"model": "auto", "input": "' + b"x" * size + b'"}'
        head = request("/v1/embeddings", headers=f"Content-Length: {len(body)}\r\n")
        reader, writer = await rig.open(head)
        writer.write(body)
        await asyncio.sleep(0.5)
        assert writer.transport.get_write_buffer_size() > size // 2, "the client is held back"
        release.set()
        assert (await read_answer(reader)).status == 200
        assert len(rig.engine.seen[0].json()["input"]) == size
        assert rig.engine.seen[0].json()["model"] == "default-model"
        writer.close()

    run(test)


def test_many_requests_on_one_connection_and_pipelining_is_refused_cleanly() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(b"")
        for _ in range(3):
            writer.write(chat())
            assert (await read_answer(reader)).status == 200
        writer.write(chat() + chat())
        answer = await read_answer(reader)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await reader.read() == b""
        assert len(rig.engine.seen) == 4
        writer.close()
        reader, writer = await rig.open(request("/healthz", method="GET") * 2)
        assert [(await read_answer(reader)).status for _ in range(2)] == [200, 200]
        writer.close()

    run(test)


def test_usage_is_kept_until_it_is_taken() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = complete
        await rig.call("maya")
        await rig.until(lambda: rig.rows)
        (row,) = rig.rows
        assert (row["user_id"], row["key_id"], row["channel"], row["model"]) == (
            "maya",
            "k-maya",
            "main",
            "default-model",
        )
        assert (row["status"], row["outcome"]) == (200, "ok")
        assert row["bytes_in"] > 50
        assert row["bytes_out"] > 50
        assert abs(row["at_ms"] - NOW) < 5000
        await rig.until(lambda: len(rig.gateway.usage) == 0)

    run(test)


def test_a_burst_beyond_the_engines_queue_is_served_all_the_same() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.engine.stop()
        await rig.engine.start(backlog=1)
        answers = await asyncio.gather(*(rig.call() for _ in range(100)))
        assert {a.status for a in answers} == {200}
        await rig.drained()

    run(test)


def test_in_flight_is_exactly_zero_after_any_mix_of_aborts() -> None:
    dice = random.Random(3)

    async def moody(seen: Seen) -> None:
        mood = dice.random()
        if mood < 0.2:
            return
        if mood < 0.4:
            await complete(seen)
            return
        await seen.send(SSE_HEAD)
        for _ in range(dice.randrange(20)):
            await seen.chunk(token())
            await asyncio.sleep(dice.random() * 0.003)
        if mood < 0.8:
            await seen.send(b"0\r\n\r\n")

    async def one(rig: Rig) -> None:
        reader, writer = await rig.open(chat(True))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.04)
            writer.transport.abort()
            return
        await asyncio.wait_for(reader.read(2000), 20)
        writer.close()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = moody
        for turn in range(12):
            calls = asyncio.gather(*(one(rig) for _ in range(40)), return_exceptions=True)
            await asyncio.sleep(0.02)
            if turn % 4 == 1:
                rig.gateways.cut("main", 3)
            if turn % 4 == 3:
                rig.gateways.set_keys(rig.keys(without="tomas"))
                await asyncio.sleep(0.02)
                rig.gateways.set_keys(rig.keys())
            await calls
        await rig.drained()
        await rig.until(lambda: not rig.gateway.connections)
        await rig.until(lambda: len(rig.gateway.usage) == 0)
        assert len({row["id"] for row in rig.rows}) == len(rig.rows) > 200

    run(test)


@pytest.mark.parametrize("when", ["before the first byte", "in the middle", "in the middle, and it is cut"])
def test_an_engine_that_an_abort_harms_is_let_finish(when: str) -> None:
    """By setting: what a client has broken off goes on, unheard and counted, and can still be cut."""

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.gateway.absorbs = True
        go_on = asyncio.Event()

        async def behaviour(seen: Seen) -> None:
            if when == "before the first byte":
                await go_on.wait()
            await seen.send(SSE_HEAD)
            await seen.chunk(token("a"))
            await go_on.wait()
            for _ in range(50):
                await seen.chunk(token("b"))
            await seen.send(b"0\r\n\r\n")

        rig.engine.behaviour = behaviour
        reader, writer = await rig.open(chat(True))
        seen = await rig.engine.next()
        if when != "before the first byte":
            await reader.readuntil(b"\n\n")
        writer.transport.abort()
        await rig.until(lambda: not rig.gateway.connections)
        assert rig.gateway.running.in_flight["main"] == 1
        assert not seen.gone.is_set()
        if when.endswith("cut"):
            rig.gateways.cut("main", 5)
            await asyncio.wait_for(seen.gone.wait(), 20)
        go_on.set()
        await rig.drained()
        await rig.until(lambda: rig.rows)
        (row,) = rig.rows
        assert row["outcome"] == ("cut" if when.endswith("cut") else "client_gone")
        if not when.endswith("cut"):
            assert row["bytes_out"] > 50 * len(token("b")), "the engine has come to its end"
        assert rig.gateway.empty

    run(test)

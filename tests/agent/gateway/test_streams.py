"""Streams and their ends: passed as they come, cut at an event's end, ended with whoever goes away."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import pytest

from tests.fakes.gateway_rig import NOW, Rig, chat, read_answer, request, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, complete, silent, stream_for_ever, token

CORS = b"Access-Control-Allow-Origin: \r\naccess-control-allow-credentials: true\r\n"  # as llama-server sends it


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


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_cut_in_mid_stream_tells_it_at_an_events_end(path: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = stream_for_ever
        reader, writer = await rig.open(chat(True, path=path))
        await head_of(reader)
        seen = await rig.engine.next()
        assert await rig.gateways.close("main") == 1
        assert (await rig.call()).code == "model_switching"
        rig.gateways.cut("main", 12)
        await rig.gateways.wait_drained("main")
        data, clean = await rest_of(reader)
        *_, last = events_of(data)
        if path == "/v1/messages":
            assert last.startswith("event: error\ndata: ")
            last = last.removeprefix("event: error\n")
            assert json.loads(last.removeprefix("data: "))["type"] == "error"
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "model_switching"
        assert clean
        await asyncio.wait_for(seen.gone.wait(), 20)
        writer.close()
        await rig.drained()

    run(test)


def test_cut_waits_for_the_end_of_the_event_that_is_under_way() -> None:
    halves = token("whole")
    go = asyncio.Event

    async def test(rig: Rig) -> None:
        proceed = go()

        async def in_halves(seen: Seen) -> None:
            await seen.send(SSE_HEAD)
            await seen.chunk(halves[:20])
            await proceed.wait()
            await seen.chunk(halves[20:])
            await seen.chunk(token("never"))
            await seen.gone.wait()

        await rig.serve_default()
        rig.engine.behaviour = in_halves
        reader, writer = await rig.open(chat(True))
        await head_of(reader)
        (exchange,) = rig.gateway.running._on["main"]
        await rig.until(lambda: exchange.bytes_out >= 20)
        rig.gateways.cut("main", 3)
        await rig.until(lambda: exchange.cut_by is not None)
        proceed.set()
        data, clean = await rest_of(reader)
        whole, last = events_of(data)
        assert whole + "\n\n" == halves.decode()
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "model_switching"
        assert clean
        writer.close()
        await rig.drained()

    run(test)


def test_cut_of_an_event_that_never_ends_is_no_clean_end() -> None:
    async def stuck(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(token()[:9])
        await seen.gone.wait()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = stuck
        reader, writer = await rig.open(chat(True))
        await head_of(reader)
        rig.gateways.cut("main", 3)
        assert await rest_of(reader) == (token()[:9], False)
        writer.close()
        await rig.drained()

    run(test)


def test_cut_before_an_answer_is_a_503() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = silent
        reader, writer = await rig.open(chat(True))
        seen = await rig.engine.next()
        await rig.gateways.close("main")
        rig.gateways.cut("main", 12)
        answer = await read_answer(reader)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "model_switching", "12")
        await asyncio.wait_for(seen.gone.wait(), 20)
        writer.close()
        await rig.drained()

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


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_engine_gone_in_mid_answer_is_no_clean_end(framing: str) -> None:
    async def dies(seen: Seen) -> None:
        if framing == "chunked":
            await seen.send(SSE_HEAD)
            await seen.chunk(token())
        else:
            await seen.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 100)
        await asyncio.sleep(0.05)

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = dies
        with pytest.raises(asyncio.IncompleteReadError):
            await rig.raw(chat(True))
        await rig.drained()
        await rig.until(lambda: rig.rows)
        assert rig.rows[0]["outcome"] == "engine_gone"

    run(test)


def test_engine_gone_in_mid_answer_for_an_http_1_0_client() -> None:
    async def dies(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(token())
        await asyncio.sleep(0.05)

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = dies
        reader, writer = await rig.open(chat(True).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await rig.drained()

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


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"],
)
def test_engine_that_answers_nothing_usable(said: bytes) -> None:
    async def closes(seen: Seen) -> None:
        await seen.send(said)

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = closes
        answer = await rig.raw(chat())
        assert (answer.status, answer.code) == (502, "model_failed")
        await rig.drained()

    run(test)


def test_engine_that_refuses_the_connection() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.engine.stop()
        answer = await rig.call()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "model_failed", "5")
        await rig.drained()

    run(test)


def _revoke(rig: Rig) -> None:
    rig.gateways.set_keys(rig.keys(without="tomas"))


def _expire(rig: Rig) -> None:
    rig.now = NOW + 10_000


@pytest.mark.parametrize("how", [_revoke, _expire])
@pytest.mark.parametrize("answered", [True, False])
def test_key_that_ends_while_a_request_runs(how: Callable[[Rig], None], answered: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        keys = rig.keys()
        for row in keys.values():
            row["expires_at_ms"] = NOW + 10_000 if row["user_id"] == "tomas" else None
        rig.gateways.set_keys(keys)
        await rig.until(lambda: any(k.expires_at for k in rig.gateway.keys._by_hash.values()))
        rig.engine.behaviour = stream_for_ever if answered else silent
        reader, writer = await rig.open(chat(True))
        other_reader, other_writer = await rig.open(chat(True, who="maya"))
        await rig.engine.next(2)
        if answered:
            await head_of(reader)
            await head_of(other_reader)
        how(rig)
        async with asyncio.timeout(20):
            if answered:
                data, _ = await rest_of(reader)
                error = json.loads(events_of(data)[-1].removeprefix("data: "))["error"]
            else:
                answer = await read_answer(reader)
                assert answer.status == 401
                error = answer.json()["error"]
        assert error["code"] == "invalid_api_key"
        assert rig.gateway.running.in_flight["main"] == 1, "the other one goes on"
        writer.close()
        other_writer.close()
        await rig.drained()

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


@pytest.mark.parametrize("answered", [False, True])
def test_an_engine_that_says_nothing_for_too_long_is_given_up(answered: bool) -> None:
    async def one_token(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(token())
        await seen.gone.wait()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.gateway.idle_seconds = 0.05
        rig.engine.behaviour = one_token if answered else silent
        reader, writer = await rig.open(chat(True))
        seen = await rig.engine.next()
        head = await head_of(reader) if answered else ""
        (exchange,) = rig.gateway.running._on["main"]
        await rig.until(lambda: not answered or exchange.bytes_out)
        exchange.check_engine(rig.gateway.loop.time())
        assert not exchange.done, "the first look only begins the wait"
        exchange.check_engine(rig.gateway.loop.time() + 1)
        if answered:
            assert " 200 " in head
            body, clean = await rest_of(reader)
            assert clean
            assert json.loads(events_of(body)[-1][len("data: ") :])["error"]["code"] == "engine_timeout"
        else:
            answer = await read_answer(reader)
            assert (answer.status, answer.code) == (504, "engine_timeout")
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()
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

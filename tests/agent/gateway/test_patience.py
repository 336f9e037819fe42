"""How long a client is waited for, and that one who waits for us is not hurried."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.gateway.access_log import AccessLog
from agent.gateway.client_line import UNREAD_SECONDS
from agent.gateway.connection import HEAD_SECONDS, IDLE_SECONDS
from agent.gateway.exchange import BODY_RATE, BODY_SECONDS, REFUSED_SECONDS
from tests.fakes.gateway_rig import Rig, chat, read_answer, request, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, silent


def after(rig: Rig, seconds: float) -> None:
    """The sweep as it would be so much later."""
    for connection in tuple(rig.gateway.connections):
        connection.check_idle(rig.gateway.loop.time() + seconds)


async def arrived(rig: Rig, size: int = 1) -> None:
    """So much of the head, or of a body."""

    def come() -> bool:
        return any((c.exchange.bytes_in if c.exchange else c._head_size) >= size for c in rig.gateway.connections)

    await rig.until(come)


async def stuck(rig: Rig) -> None:
    """Until the client's buffers are full and stay so."""
    (connection,) = rig.gateway.connections
    waiting = -1
    while not connection.paused or waiting != (waiting := connection.transport.get_write_buffer_size()):
        await asyncio.sleep(0.2)


def test_head_that_comes_too_slowly() -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.open(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n")
        await arrived(rig)
        (connection,) = rig.gateway.connections
        size = connection._head_size
        after(rig, HEAD_SECONDS - 1)
        writer.write(b"X-A: b\r\n")  # dripping on does not help
        await arrived(rig, size + 8)
        after(rig, HEAD_SECONDS + 0.1)
        answer = await read_answer(reader)
        assert (answer.status, answer.code) == (408, "request_timeout")
        writer.close()

    run(test)


def test_body_that_stops_coming() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(chat()[:-5])
        await arrived(rig)
        after(rig, BODY_SECONDS - 1)
        assert not next(iter(rig.gateway.connections)).deaf
        after(rig, BODY_SECONDS + 1)
        assert (await read_answer(reader)).status == 408
        writer.close()
        await rig.drained()

    run(test)


def test_body_that_only_drips() -> None:
    """A byte now and then does not hold the connection, nor the engine's; a slow body that comes on does."""

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for size, ends in ((1, True), (BODY_RATE * 60, False)):
            reader, writer = await rig.open(request("/v1/embeddings", headers="Content-Length: 1000000\r\n"))
            sent = 0
            for look in range(1, 4):
                piece = b'{"a": "' if look == 1 else b"x" * size
                writer.write(piece)
                sent += len(piece)
                await arrived(rig, sent)
                after(rig, 25 * look)  # past the minute at the third
            if ends:
                assert (await read_answer(reader)).status == 408
            else:
                assert not next(iter(rig.gateway.connections)).deaf
            writer.close()
            await rig.until(lambda: not rig.gateway.connections)

    run(test)


def test_body_that_is_refused_already_is_not_waited_for_long() -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.open(request("/v1/embeddings", b"{}", who="eve")[:-1])
        await arrived(rig)
        after(rig, REFUSED_SECONDS - 1)
        assert not next(iter(rig.gateway.connections)).deaf
        after(rig, REFUSED_SECONDS + 1)
        answer = await read_answer(reader)
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        writer.close()

    run(test)


def test_client_that_takes_nothing_of_its_answer() -> None:
    """Slowly is fine, however slowly; not at all for ten minutes is gone, and frees the engine."""

    async def test(rig: Rig) -> None:
        await rig.serve_default()

        async def flood(seen: Seen) -> None:
            await seen.send(SSE_HEAD)
            while True:
                await seen.chunk(b"data: " + b"x" * 16_000 + b"\n\n")

        rig.engine.behaviour = flood
        reader, writer = await rig.open(chat(True))
        writer.transport.pause_reading()
        seen = await rig.engine.next()
        await stuck(rig)
        after(rig, 0)
        after(rig, UNREAD_SECONDS - 1)
        assert rig.gateway.running.in_flight["main"] == 1
        writer.transport.resume_reading()
        await reader.readexactly(2_000_000)
        writer.transport.pause_reading()
        await stuck(rig)
        after(rig, UNREAD_SECONDS + 1)
        assert rig.gateway.running.in_flight["main"] == 1, "it has read since"
        after(rig, 2 * UNREAD_SECONDS + 2)
        await asyncio.wait_for(seen.gone.wait(), 20)
        writer.transport.abort()
        await rig.drained()

    run(test)


def test_connection_without_requests_is_closed() -> None:
    async def test(rig: Rig) -> None:
        reader, writer = await rig.open(b"")
        await rig.until(lambda: rig.gateway.connections)
        after(rig, IDLE_SECONDS - 1)
        assert rig.gateway.connections
        after(rig, IDLE_SECONDS + 1)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()

    run(test)


def test_client_that_waits_for_an_answer_has_no_limit() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = silent
        _, writer = await rig.open(chat())
        await rig.engine.next()
        after(rig, 100_000)
        assert rig.gateway.running.in_flight["main"] == 1
        assert not next(iter(rig.gateway.connections)).deaf
        writer.close()
        await rig.drained()

    run(test)


def test_access_log_has_no_prompt_and_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for as_json in (False, True):
            rig.gateway._access_log = AccessLog(as_json)
            await rig.raw(chat())
            await rig.drained()
            rig.gateway._access_log.flush()

    run(test)
    text, line = (x for x in capsys.readouterr().err.splitlines() if "request" in x)
    for said in (text, line):
        assert "sk-ss" not in said
        assert '"hi"' not in said
    assert " INFO agent.gateway.access request id=req_" in text
    assert "status=200 outcome=ok channel=main model='default-model' key=k-tomas" in text
    fields = json.loads(line)
    assert fields["message"] == "request"
    assert (fields["path"], fields["status"], fields["key"]) == ("/v1/chat/completions", 200, "k-tomas")

"""Engines that end in mid-answer, answer nothing usable, refuse the connection, or fall silent."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.fakes.gateway_rig import Rig, chat, events_of, head_of, read_answer, rest_of, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, silent, token


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

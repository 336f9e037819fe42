"""Heads that come again and again on a connection: known by sight, and nothing else is taken for one."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tests.fakes.gateway_rig import Rig, chat, read_answer, request, run, send


def test_a_head_that_is_known_goes_the_short_way() -> None:
    """The same answers, rows and refusals as by the long way, whatever the length and however it is split."""

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(b"")
        await rig.until(lambda: rig.gateway.connections)
        (connection,) = rig.gateway.connections
        sizes = [1, 90, 3000, 70_000, 9, 10, 200_000]
        for number, size in enumerate(sizes):
            data = request("/v1/chat/completions", json.dumps({"model": "auto", "x": "y" * size}).encode())
            head, _, body = data.partition(b"\r\n\r\n")
            pieces = [data] if number % 2 else [head + b"\r\n\r\n", body[:1], body[1:]]
            for piece in pieces:
                await send(writer, piece)
                await asyncio.sleep(0.01)
            assert (await read_answer(reader)).status == 200
            assert rig.engine.seen[-1].body == body.replace(b"auto", b"default-model")
            assert rig.engine.seen[-1].headers["content-length"] == str(len(rig.engine.seen[-1].body))
        if not os.environ.get("SLOTSERVE_TEST_SPLIT"):
            assert connection._known is not None
        await rig.until(lambda: len(rig.rows) == len(sizes))
        writer.write(chat(model="nonsense"))
        assert (await read_answer(reader)).code == "model_not_found"
        writer.write(request("/v1/chat/completions", b"{"))
        assert (await read_answer(reader)).code == "invalid_request"
        rig.gateways.set_keys(rig.keys(without="tomas"))
        await rig.until(lambda: len(rig.gateway.keys) == len(rig.keys()) - 1)
        writer.write(chat())
        assert (await read_answer(reader)).status == 401, "the key is looked up each time"
        writer.close()
        await rig.drained()

    run(test)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"Content-Length: ", b"Content-Length: +", 400),
        (b"Content-Length: ", b"Content-Length: 0", 200),
        (b"Content-Length: ", b"Content-Length: 5\r\nContent-Length: ", 400),
        (b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"Host: gateway", b"Host: gateway\r\nHost: other", 400),
        (b"\r\n\r\n", b"\r\n folded\r\n\r\n", 400),
        (b"Bearer ", b"Bearer x", 401),
        (b"POST /v1/chat/completions", b"POST /slots", 404),
    ],
)
def test_what_is_nearly_a_known_head_goes_the_long_way(old: bytes, new: bytes, status: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(chat())
        for _ in range(3):
            assert (await read_answer(reader)).status == 200
            writer.write(chat())
        assert (await read_answer(reader)).status == 200
        writer.write(chat().replace(old, new, 1))
        assert (await read_answer(reader)).status == status
        writer.close()
        await rig.drained()

    run(test)


def test_requests_behind_a_known_one_are_not_answered() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(chat())
        for data in (chat(), chat() + chat() + b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"):
            assert (await read_answer(reader)).status == 200
            writer.write(data)
        answer = await read_answer(reader)
        assert (answer.status, answer.headers.get("connection")) == (200, "close")
        assert await reader.read() == b""
        assert len(rig.engine.seen) == 3
        writer.close()

    run(test)

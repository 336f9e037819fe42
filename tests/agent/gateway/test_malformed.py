"""What is refused at the door, and that no way of splitting a request changes its answer."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.agent.gateway.corpus import BODY_READ, ODD
from tests.fakes.gateway_rig import Rig, chat, read_answer, request, run

# of the corpus what is refused before anything of a body counts
HEADS = {o.name: o.data for o in ODD if o.ours in ("400", "417", "431", "505") and o.why != BODY_READ}
BODIES = {
    "not JSON": (b"hello", "not JSON"),
    "cut short": (b'{"model": "auto"', "not JSON"),
    "a list": (b'["model"]', "object"),
    "a string": (b'"model"', "object"),
    "model is a number": (b'{"model": 7}', "'model'"),
    "model is an object": (b'{"model": {"a": 1}}', "'model'"),
    "two models": (b'{"model": "auto", "model": "default-model"}', "more than once"),
    "two models, one escaped": (b'{"model": "auto", "mod\\u0065l": "default-model"}', "more than once"),
    "deep": (b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "not JSON"),
    "UTF-16": ('{"model": "auto"}'.encode("utf-16"), "JSON"),
    "bad UTF-8": (b'{"model": "\xff"}', "not JSON"),
    "lone surrogate": (b'{"model": "\\ud800"}', "JSON"),
    "long, not JSON": (b"x" * 300_000, "object"),
    "long, cut short": (b'{"messages": "' + b"x" * 300_000, "too early"),
    "long, model is a number": (b'{"a": "' + b"x" * 300_000 + b'", "model": 7}', "'model'"),
    "long, no colon": (b'{"a" "' + b"x" * 300_000 + b'"}', "not JSON"),
    "empty": (b"", "empty"),
    "blank": (b" \r\n", "empty"),
}


@pytest.mark.parametrize("name", HEADS)
def test_malformed_heads_are_refused_and_the_connection_closed(name: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(HEADS[name])
        answer = await read_answer(reader)
        assert 400 <= answer.status < 500 or answer.status == 505
        assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}
        assert answer.headers["connection"] == "close"
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert rig.engine.seen == []
        await rig.drained()
        assert (await rig.call()).status == 200, "the gateway goes on"

    run(test)


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_refused(name: str) -> None:
    body, word = BODIES[name]

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        answer = await rig.raw(request("/v1/chat/completions", headers=f"Content-Length: {len(body)}\r\n") + body)
        assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert word in answer.json()["error"]["message"]
        assert rig.engine.seen == []
        chunked = request("/v1/chat/completions", headers="Transfer-Encoding: chunked\r\n")
        pieces = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        assert (await rig.raw(chunked + pieces + b"0\r\n\r\n")).status == 400
        await rig.drained()

    run(test)


def test_a_body_without_a_model_is_auto() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for body in (b"{}", b'{"messages": []}', b'{"model": null}', b'{"model": ""}', b' {"a": {"model": "x"}}'):
            answer = await rig.raw(request("/v1/chat/completions", body))
            assert (answer.status, answer.json()["model"]) == (200, "default-model"), body

    run(test)


def test_body_beyond_the_limit_without_a_model() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        body = b'{"messages": "' + b"x" * 3_000_000 + b'", "model": "auto"}'
        answer = await rig.raw(request("/v1/chat/completions", body))
        assert (answer.status, answer.code) == (413, "body_too_large")
        first = b'{"model": "auto", "messages": "' + b"x" * 3_000_000 + b'"}'
        assert (await rig.raw(request("/v1/chat/completions", first))).status == 200
        assert len(rig.engine.seen[0].body) == len(first) + len("default-model") - len("auto")

    run(test, body_limit=1_000_000)


def test_every_request_split_at_every_byte() -> None:
    plain = chat(headers="X-Odd: a\r\n")
    body = b'{"messages": [], "model": "default-model"}'
    chunked = request("/v1/chat/completions", headers="Transfer-Encoding: chunked\r\n") + b"".join(
        b"%x\r\n%b\r\n" % (len(x), x) for x in (body[:7], body[7:30], body[30:])
    )
    chunked += b"0\r\nX-Trailer: a\r\n\r\n"

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for data in (plain, chunked):
            sides = asyncio.Semaphore(32)

            async def at(place: int, data: bytes = data, sides: asyncio.Semaphore = sides) -> None:
                async with sides:
                    answer = await rig.raw(data[:place], data[place:])
                    assert (answer.status, answer.json()["model"]) == (200, "default-model"), place

            await asyncio.gather(*(at(place) for place in range(1, len(data))))
            answer = await rig.raw(*(data[i : i + 1] for i in range(len(data))))
            assert answer.status == 200
        bodies = {seen.body for seen in rig.engine.seen}
        assert bodies == {body, chat().partition(b"\r\n\r\n")[2].replace(b'"auto"', b'"default-model"')}
        await rig.drained()

    run(test)


def test_random_bytes_never_harm() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        dice = random.Random(7)
        good = chat()
        for _ in range(300):
            data = bytearray(good)
            for _ in range(dice.randrange(1, 6)):
                place = dice.randrange(len(data))
                data[place : place + dice.randrange(3)] = bytes(dice.randrange(256) for _ in range(dice.randrange(3)))
            reader, writer = await rig.open(bytes(data))
            if writer.can_write_eof():
                writer.write_eof()
            await asyncio.wait_for(reader.read(), 20)
            writer.close()
        await rig.drained()
        assert (await rig.call()).status == 200

    run(test)


def test_upgrade_offers_are_answered_in_http_1() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        data = chat(headers=offer)
        assert (await rig.raw(data)).status == 200
        assert (await rig.raw(*(data[i : i + 1] for i in range(len(data))))).status == 200
        assert "upgrade" not in rig.engine.seen[0].headers
        assert (await rig.get("/v1/models", headers=offer)).status == 200
        web = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
        answer = await rig.get("/v1/realtime", headers=web)
        assert answer.status == 200, "an engine that knows no WebSockets answers as it likes"
        assert "websocket" in rig.engine.seen[-1].headers["upgrade"]
        answer = await rig.get("/v1/realtime")
        assert (answer.status, answer.code) == (400, "invalid_request")

    run(test)


def test_expect_100_continue() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        head, _, body = chat(headers="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        reader, writer = await rig.open(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_answer(reader)).status == 200
        writer.close()
        refused = await rig.raw(head.replace(b"sk-ss-tomas", b"sk-ss-wrong") + b"\r\n\r\n")
        assert (refused.status, refused.headers["connection"]) == (401, "close")

    run(test)


def test_a_refused_request_leaves_the_connection_usable() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(b"")
        for data, status in ((chat(model="nonsense"), 404), (chat(who="eve"), 401), (chat(), 200)):
            head, _, body = data.partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            await asyncio.sleep(0.01)
            writer.write(body)
            assert (await read_answer(reader)).status == status
        writer.close()

    run(test)

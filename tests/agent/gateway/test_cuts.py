"""Requests that are cut: at the end of an event, before an answer, and when their key ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.fakes.gateway_rig import NOW, Rig, chat, events_of, head_of, read_answer, rest_of, run
from tests.fakes.stub_engine import SSE_HEAD, Seen, silent, stream_for_ever, token


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

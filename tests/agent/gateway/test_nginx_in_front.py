"""nginx in front of the gateway, with the configuration that is documented: nothing of what the gateway promises is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import uvloop

from tests.agent.gateway.corpus import ODD
from tests.agent.gateway.odd_requests import Lane
from tests.fakes.gateway_rig import NOW, Rig, chat, read_answer, request, reserved, run, target
from tests.fakes.stub_engine import SSE_HEAD, Seen, silent, stream_for_ever, token
from tests.nginx import running_nginx
from tests.parts import free_port

CONFIGURATION = Path(__file__).with_name("nginx_in_front.conf")
LANES = 12


def configuration(gateway_port: int, port: int) -> str:
    """The documented one, with this test's ports and names."""
    text = CONFIGURATION.read_text()
    for documented, here in (
        ("server 127.0.0.1:8710;", f"server 127.0.0.1:{gateway_port};"),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
    ):
        assert text.count(documented) == 1
        text = text.replace(documented, here)
    return (
        text.replace("slotserve_connection", f"c{port}")
        .replace("slotserve {", f"u{port} {{")
        .replace("http://slotserve;", f"http://u{port};")
    )


@asynccontextmanager
async def in_front(nginx: str, *rigs: Rig) -> AsyncIterator[None]:
    """From here on the rigs' clients go through nginx."""
    folder = Path(tempfile.mkdtemp(prefix="ssng"))
    ports = [free_port() for _ in rigs]
    servers = "".join(configuration(rig.port, port) for rig, port in zip(rigs, ports, strict=True))
    context = running_nginx(nginx, folder, servers, ports)
    await asyncio.to_thread(context.__enter__)
    try:
        for rig, port in zip(rigs, ports, strict=True):
            rig.port, rig.url = port, f"http://127.0.0.1:{port}"
        yield
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
        shutil.rmtree(folder)


def through(nginx: str, test: Callable[[Rig], Awaitable[None]]) -> None:
    async def inner(rig: Rig) -> None:
        await rig.serve_default()
        async with in_front(nginx, rig):
            await test(rig)
            await rig.drained()

    run(inner)


def test_tokens_come_one_by_one(nginx: str) -> None:
    async def test(rig: Rig) -> None:
        go_on = asyncio.Event()

        async def one_by_one(seen: Seen) -> None:
            await seen.send(SSE_HEAD)
            for word in ("a", "b", "c"):
                await seen.chunk(token(word))
                await go_on.wait()
                go_on.clear()
            await seen.send(b"0\r\n\r\n")

        rig.engine.behaviour = one_by_one
        reader, writer = await rig.open(chat(True))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert b"X-SlotServe-Channel: main" in head
        for word in ("a", "b", "c"):
            assert token(word).strip() in await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
            go_on.set()  # the engine waits until the client has this one
        await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20)
        writer.close()

    through(nginx, test)


@pytest.mark.parametrize("behaviour", [silent, stream_for_ever])
def test_client_gone_ends_the_engines_work(nginx: str, behaviour: Any) -> None:
    async def test(rig: Rig) -> None:
        rig.engine.behaviour = behaviour
        _, writer = await rig.open(chat(True))
        seen = await rig.engine.next()
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.wait_for(seen.gone.wait(), 20)

    through(nginx, test)


def test_engine_gone_is_no_clean_end(nginx: str) -> None:
    async def dies(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(token())
        await asyncio.sleep(0.05)

    async def test(rig: Rig) -> None:
        rig.engine.behaviour = dies
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await rig.raw(chat(True))

    through(nginx, test)


def test_a_cut_is_told_and_refusals_pass_whole(nginx: str) -> None:
    async def test(rig: Rig) -> None:
        rig.engine.behaviour = stream_for_ever
        reader, writer = await rig.open(chat(True))
        await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
        rig.gateways.cut("main", 12)
        rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20)
        assert b'"code":"model_switching"' in rest
        writer.close()
        loading = {**target("booked"), "ready_at_ms": NOW + 8_000}
        steps = [reserved(NOW - 1000, NOW + 60_000, target("booked"))]
        await rig.publish(rig.entry(steps=steps, phase="loading", loading=loading))
        answer = await rig.call("maya")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "model_loading", "8")
        assert answer.headers["x-request-id"] == answer.json()["error"]["request_id"]
        assert (await rig.call("tomas")).code == "gpu_reserved"
        assert (await rig.call("eve")).status == 401

    through(nginx, test)


def test_uploads_go_through_as_they_come(nginx: str) -> None:
    async def test(rig: Rig) -> None:
        body = b'{"model": "auto", "input": "' + b"x" * 8_000_000 + b'"}'
        head = request("/v1/embeddings", headers=f"Content-Length: {len(body)}\r\n")
        reader, writer = await rig.open(head + body[:1_000_000])
        await rig.until(lambda: rig.gateway.running.in_flight.get("main"))  # admitted long before its end
        writer.write(body[1_000_000:])
        answer = await read_answer(reader)
        assert answer.status == 200
        assert rig.engine.seen[0].body == body.replace(b'"auto"', b'"default-model"')
        writer.close()

    through(nginx, test)


def test_metrics_stay_the_nodes_own(nginx: str) -> None:
    async def test(rig: Rig) -> None:
        assert (await rig.get("/metrics", "tomas")).status == 403, "nginx is on the node, its clients are not"
        assert (await rig.get("/metrics", None)).status == 401
        assert (await rig.get("/metrics", "root")).status == 200
        assert (await rig.get("/healthz", None)).json()["status"] == "ok"

    through(nginx, test)


def test_a_websocket_passes(nginx: str) -> None:
    async def talks(seen: Seen) -> None:
        await seen.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x02hi"
        )
        await seen.gone.wait()

    async def test(rig: Rig) -> None:
        rig.engine.behaviour = talks
        offer = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        reader, writer = await rig.open(request("/v1/realtime?model=auto", b"", "tomas", "GET", offer))
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).startswith(b"HTTP/1.1 101 ")
        assert await asyncio.wait_for(reader.readexactly(4), 20) == b"\x81\x02hi"
        writer.close()

    through(nginx, test)


def test_the_official_client(nginx: str) -> None:
    async def test(rig: Rig) -> None:
        def use() -> list[str]:
            client = openai.OpenAI(base_url=f"{rig.url}/v1", api_key="sk-ss-tomas", max_retries=0, timeout=20)
            said = []
            for _ in range(20):  # one kept connection
                answer = client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "x"}])
                said.append(answer.choices[0].message.content or "")
            return said

        assert await asyncio.to_thread(use) == ["hello"] * 20
        assert len(rig.gateway.connections) <= 2, "nginx keeps its connections to the gateway"

    through(nginx, test)


def test_odd_requests_through_nginx_never_become_more(nginx: str) -> None:
    """What nginx reads as one request the gateway never reads as two; what either refuses stays refused."""
    passed = {odd.name: odd for odd in ODD if ">" in odd.nginx}
    got: dict[str, tuple[str, list[str]]] = {}

    async def test() -> None:
        async with AsyncExitStack() as stack:
            rigs = [await stack.enter_async_context(Rig()) for _ in range(LANES)]
            for rig in rigs:
                await rig.serve_default()
            await stack.enter_async_context(in_front(nginx, *rigs))
            left = list(passed.values())

            async def work(rig: Rig) -> None:
                lane = Lane(rig.port, rig.engine)
                while left:
                    odd = left.pop(0)
                    said = await lane.outcome(odd.data, None)
                    bodies = [json.dumps(seen.json()) for seen in rig.engine.seen]
                    got[odd.name] = said, bodies

            await asyncio.gather(*(work(rig) for rig in rigs))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
    assert got.keys() == passed.keys()
    assert sum(len(bodies) for _, bodies in got.values()) > 30
    for name, (said, bodies) in got.items():
        alone = int(passed[name].nginx.partition(">")[2])
        assert len(bodies) <= alone, f"{name}: {said}"
        assert set(bodies) <= {'{"model": "default-model"}'}, name

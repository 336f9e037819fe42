"""The corpus of odd requests: to the gateway, and to nginx in front of the same engine, in one run; and however they are
split."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from agent.gateway import routes
from tests.agent.gateway.corpus import INNER, ODD, Odd
from tests.agent.gateway.odd_requests import Lane
from tests.agent.gateway.test_tls import TlsRig, trust
from tests.fakes.gateway_rig import Rig, read_answer
from tests.fakes.stub_engine import StubEngine
from tests.fuzz.cases import Case
from tests.fuzz.run import Runner
from tests.nginx import PLAIN_PROXY, running_nginx
from tests.parts import free_port

LANES = 6
ENGINE_SAYS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: a\n\r\n1\r\n\n\r\n0\r\n\r\n"
OWN_ID = re.compile(rb"req_[0-9a-f]+")
DATE = re.compile(rb"Date: [^\r]*\r\n")


def test_the_table_explains_every_difference() -> None:
    assert len({odd.name for odd in ODD}) == len(ODD) > 150
    for odd in ODD:
        assert bool(odd.why) == (odd.ours != odd.nginx), odd.name


def test_what_the_gateway_does_with_each() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            rigs = [await stack.enter_async_context(Rig()) for _ in range(LANES)]
            for rig in rigs:
                await rig.serve_default()
            got = await _all([Lane(rig.port, rig.engine) for rig in rigs], {o.name: (o.data, o.ours) for o in ODD})
            for rig in rigs:
                await rig.drained()
        assert got == {odd.name: odd.ours for odd in ODD}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_what_the_gateway_does_with_each_over_tls() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            rigs = [await stack.enter_async_context(TlsRig()) for _ in range(LANES)]
            for rig in rigs:
                await rig.serve_default()
            lanes = [Lane(rig.tls_port, rig.engine, trust(rig.folder)) for rig in rigs]
            got = await _all(lanes, {o.name: (o.data, o.ours) for o in ODD})
            for rig in rigs:
                await rig.drained()
        assert got == {odd.name: odd.ours for odd in ODD}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_split_at_every_byte_over_tls() -> None:
    """Each piece is a record of its own. In two at each place, and byte by byte; a good request and a smuggling one."""
    smuggling = INNER.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n", 1)

    async def test() -> None:
        async with TlsRig() as rig:
            await rig.serve_default()
            context = trust(rig.folder)
            sides = asyncio.Semaphore(16)

            async def status(data: bytes, cuts: Sequence[int]) -> int:
                async with sides:
                    reader, writer = await asyncio.open_connection("127.0.0.1", rig.tls_port, ssl=context)
                    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
                        writer.write(data[begin:end])
                        await asyncio.sleep(0)
                    answer = await read_answer(reader)
                    writer.close()
                    return answer.status

            for data, wanted in ((INNER, 200), (smuggling, 400)):
                cuts = [(place,) for place in range(1, len(data))] + [tuple(range(1, len(data)))]
                assert await asyncio.gather(*(status(data, c) for c in cuts)) == [wanted] * len(cuts)
            assert len({seen.body for seen in rig.engine.seen}) == 1
            await rig.drained()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_what_nginx_does_with_each(nginx: str, short_dir: Path) -> None:
    async def test() -> None:
        engines = [StubEngine(short_dir / f"e{n}.sock") for n in range(LANES)]
        for engine in engines:
            await engine.start()
        ports = [free_port() for _ in range(LANES)]
        servers = "".join(PLAIN_PROXY.format(port=p, engine=e.path) for p, e in zip(ports, engines, strict=True))
        with running_nginx(nginx, short_dir, servers, ports):
            lanes = [Lane(port, engine) for port, engine in zip(ports, engines, strict=True)]
            got = await _all(lanes, {o.name: (o.data, o.nginx) for o in ODD})
        for engine in engines:
            await engine.stop()
        assert got == {odd.name: odd.nginx for odd in ODD}

    asyncio.run(test())


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_split_at_every_byte_the_outcome_is_the_same(runner: Runner, odd: Odd) -> None:
    """In two pieces at each place (of long ones, at the ends and here and there), and byte by byte."""
    whole = _seen(runner, odd.data, ())
    size = len(odd.data)
    places = (
        range(1, size)
        if size < 2000
        else sorted({*range(150, 200), *range(200, size, size // 30), size - 17, size - 1})
    )
    for place in places:
        assert _seen(runner, odd.data, (place,)) == whole, place
    if size < 30_000:
        assert _seen(runner, odd.data, tuple(range(1, size))) == whole, "byte by byte"


@pytest.mark.parametrize("path", sorted(p for p in routes._ENGINE if p != "/v1/messages/count_tokens"))
def test_every_route_split_at_every_byte(runner: Runner, path: str) -> None:
    data = INNER.replace(b"/v1/embeddings", path.encode())
    whole = _seen(runner, data, ())
    assert whole[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert len(whole[1]) == 1
    for place in range(1, len(data)):
        assert _seen(runner, data, (place,)) == whole, place


def _seen(runner: Runner, data: bytes, cuts: Sequence[int]) -> tuple[bytes, list[bytes]]:
    """What the client and the engine got, but for the requests' ids and the time; the fuzzer's rules hold as well."""
    line, engine = runner.check(Case(data, tuple(cuts), ((ENGINE_SAYS,),)))
    return DATE.sub(b"", OWN_ID.sub(b"", line.written)), [OWN_ID.sub(b"", up.written) for up in engine]


async def _all(lanes: list[Lane], wanted: dict[str, tuple[bytes, str]]) -> dict[str, str]:
    """The outcome of each by its name, several at a time."""
    left, got = list(wanted.items()), {}

    async def work(lane: Lane) -> None:
        while left:
            name, (data, expected) = left.pop(0)
            got[name] = await lane.outcome(data, expected)

    await asyncio.gather(*(work(lane) for lane in lanes))
    return {name: got[name] for name in wanted}

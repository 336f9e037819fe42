"""Big bodies: through as they come once their model is known, JSON and forms; held back up to a limit where it comes last."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest

from tests.fakes.gateway_rig import NOW, Rig, read_answer, request, reserved, run, target
from tests.fakes.stub_engine import Seen, complete

LIMIT = 1024 * 1024
BIG = 6 * LIMIT
FORM = "Content-Type: multipart/form-data; boundary=xx\r\n"


def form(*parts: tuple[str, bytes]) -> bytes:
    return (
        b"".join(
            b'--xx\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value)
            for name, value in parts
        )
        + b"--xx--\r\n"
    )


def document(*items: tuple[str, Any]) -> bytes:
    return b"{" + b", ".join(json.dumps(k).encode() + b": " + json.dumps(v).encode() for k, v in items) + b"}"


AUDIO = ("file", bytes(range(256)) * (BIG // 256))
IMAGE = ("image", "A" * BIG)
MODEL_FIRST = {
    "JSON": ("/v1/chat/completions", "", document(("model", "auto"), IMAGE)),
    "form": ("/v1/audio/transcriptions", FORM, form(("model", b"auto"), AUDIO)),
}
MODEL_LAST = {
    "JSON": ("/v1/chat/completions", "", document(IMAGE, ("model", "auto"))),
    "form": ("/v1/audio/transcriptions", FORM, form(AUDIO, ("model", b"auto"))),
}


def wire(path: str, kind: str, body: bytes, chunked: bool) -> bytes:
    if not chunked:
        return request(path, headers=f"{kind}Content-Length: {len(body)}\r\n") + body
    head = request(path, headers=f"{kind}Transfer-Encoding: chunked\r\n")
    pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("chunked", [False, True], ids=["counted", "chunked"])
@pytest.mark.parametrize("name", MODEL_FIRST)
def test_a_body_beyond_the_limit_whose_model_comes_first(name: str, chunked: bool) -> None:
    path, kind, body = MODEL_FIRST[name]

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        answer = await rig.raw(wire(path, kind, body, chunked))
        assert answer.status == 200
        seen = rig.engine.seen[0]
        assert seen.body == body.replace(b"auto", b"default-model", 1)
        assert ("content-length" in seen.headers) != chunked
        await rig.drained()

    run(test, body_limit=LIMIT)


@pytest.mark.parametrize("name", MODEL_LAST)
def test_a_body_whose_model_comes_last_works_up_to_the_limit(name: str) -> None:
    path, kind, body = MODEL_LAST[name]

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        assert (await rig.raw(wire(path, kind, body, False))).status == 200
        assert rig.engine.seen[0].body == body.replace(b"auto", b"default-model")
        rig.gateway.body_limit = LIMIT
        answer = await rig.raw(wire(path, kind, body, False))
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert "put 'model' first" in answer.json()["error"]["message"]
        assert len(rig.engine.seen) == 1
        await rig.drained()

    run(test, body_limit=2 * BIG)


@pytest.mark.parametrize("name", MODEL_FIRST)
def test_a_second_model_far_behind_never_reaches_the_engine_whole(name: str) -> None:
    path, kind, body = MODEL_FIRST[name]
    second = form(("model", b"other")) if kind else b', "model": "other"}'
    body = body.removesuffix(b"--xx--\r\n" if kind else b"}") + second

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        answer = await rig.raw(wire(path, kind, body, False))
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert "more than once" in answer.json()["error"]["message"]
        await rig.drained()
        assert not rig.engine.seen

    run(test, body_limit=LIMIT)


@pytest.mark.parametrize("name", MODEL_FIRST)
def test_refused_as_soon_as_the_model_is_known(name: str) -> None:
    path, kind, body = MODEL_FIRST[name]

    async def test(rig: Rig) -> None:
        booked = target("booked")
        await rig.publish(rig.entry(serving=booked, steps=[reserved(NOW - 1000, NOW + 60_000, booked)]))
        reader, writer = await rig.open(wire(path, kind, body, False)[: 4 * 64 * 1024])
        answer = await read_answer(reader)
        assert (answer.status, answer.code) == (403, "gpu_reserved")
        assert answer.headers["connection"] == "close"
        writer.close()

    run(test, body_limit=LIMIT)


@pytest.mark.parametrize("name", MODEL_FIRST)
def test_an_engine_that_answers_before_the_end(name: str) -> None:
    """Its answer comes through whole, and the connection ends behind it."""
    path, kind, body = MODEL_FIRST[name]

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await complete(Seen("", {}, [], b"{}", reader, writer))
        await reader.read()
        writer.close()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.engine.stop()
        server = await asyncio.start_unix_server(early, str(rig.engine.path))
        answer = await rig.raw(wire(path, kind, body, False))
        assert answer.status == 200
        assert answer.json()["object"] == "chat.completion"
        assert answer.headers["connection"] == "close"
        await rig.drained()
        server.close()
        await rig.engine.start()

    run(test, body_limit=LIMIT)


def test_tiny_chunks_while_the_engine_is_dialled() -> None:
    """A byte each, before the engine takes the connection: held back beyond a limit, and gone over once."""

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.engine.stop()
        with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
            full.bind(str(rig.engine.path))
            full.listen(0)
            first.connect(str(rig.engine.path))
            begun, tiny = b'{"model": "auto", "x": "' + b"y" * 70_000, 80_000
            head = request("/v1/chat/completions", headers="Transfer-Encoding: chunked\r\n")
            chunks = b"%x\r\n%b\r\n" % (len(begun), begun) + b"1\r\nz\r\n" * tiny + b'2\r\n"}\r\n0\r\n\r\n'
            reader, writer = await rig.open(head + chunks)
            await rig.until(lambda: not next(iter(rig.gateway.connections)).transport.is_reading())
            rig.engine.path.unlink()
        await rig.engine.start()
        assert (await read_answer(reader)).status == 200
        assert len(rig.engine.seen[0].json()["x"]) == 70_000 + tiny
        writer.close()

    run(test)


@pytest.mark.parametrize("how", ["reset", "closed"])
def test_a_client_that_goes_while_the_engine_takes_no_more(how: str) -> None:
    """Nothing is read from it then, so its end is looked for."""
    path, kind, body = MODEL_FIRST["JSON"]
    over = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()
        writer.close()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.engine.stop()
        server = await asyncio.start_unix_server(deaf, str(rig.engine.path))
        client = socket.socket()
        client.setblocking(False)
        await rig.gateway.loop.sock_connect(client, ("127.0.0.1", rig.port))
        data, sent = wire(path, kind, body * 4, False), 0
        await rig.until(lambda: rig.gateway.connections)
        (connection,) = rig.gateway.connections
        while connection.transport.is_reading():
            sent += client.send(data[sent : sent + 16_384])
            await asyncio.sleep(0.001)
        assert sent < len(data)
        connection.check_idle(rig.gateway.loop.time())
        assert rig.gateway.running.in_flight["main"] == 1
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

        def gone() -> bool:
            for each in tuple(rig.gateway.connections):
                each.check_idle(rig.gateway.loop.time())
            return not rig.gateway.connections

        await rig.until(gone)
        await rig.drained()
        over.set()
        server.close()
        await rig.engine.start()

    run(test)

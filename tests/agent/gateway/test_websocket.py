"""WebSockets: the opening is admitted like any request, frames pass both ways, and the gateway has the last word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gateway.websocket import READ_BYTES, ClientFrames, Frames, model_of, with_model
from tests.fakes.gateway_rig import NOW, Rig, read_answer, request, reserved, run, target
from tests.fakes.stub_engine import Seen, complete

OFFER = (
    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
)
TAKEN = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """As a server sends it."""
    size = len(payload)
    head = bytes([0x80 | opcode])
    if size < 126:
        return head + bytes([size]) + payload
    if size < 65536:
        return head + b"\x7e" + size.to_bytes(2, "big") + payload
    return head + b"\x7f" + size.to_bytes(8, "big") + payload


def opening(who: str | None = "tomas", path: str = "/v1/realtime?model=auto&x=%C3%BC") -> bytes:
    return request(path, b"", who, "GET", OFFER)


async def talks(seen: Seen) -> None:
    await seen.send(TAKEN + frame(b"hello"))
    await seen.gone.wait()


async def opened(rig: Rig, who: str = "tomas") -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    reader, writer = await rig.open(opening(who))
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
    assert await asyncio.wait_for(reader.readexactly(7), 20) == frame(b"hello")
    return reader, writer, head


async def last_word(reader: asyncio.StreamReader) -> tuple[int, str]:
    rest = await asyncio.wait_for(reader.read(), 20)
    assert rest[0] == 0x88, "a close frame, between two frames"
    assert len(rest) == rest[1] + 2
    return int.from_bytes(rest[2:4], "big"), rest[4:].decode()


def test_frames_pass_both_ways_and_are_counted() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        reader, writer, head = await opened(rig)
        seen = rig.engine.seen[0]
        assert head.startswith("http/1.1 101 ")
        for line in (
            "upgrade: websocket",
            "connection: upgrade",
            "sec-websocket-accept: ",
            "x-slotserve-channel: main",
        ):
            assert line in head
        assert seen.line == "GET /v1/realtime?model=default-model&x=%C3%BC HTTP/1.1"
        assert seen.headers["authorization"] == "Bearer engine-secret"
        assert seen.headers["sec-websocket-key"] == "dGhlIHNhbXBsZSBub25jZQ=="
        assert rig.gateway.running.in_flight["main"] == 1
        writer.write(b"\x81\x82abcdXY")
        await rig.until(lambda: seen.later == b"\x81\x82abcdXY")
        big = frame(b"z" * 300_000, 2)
        await seen.send(big)
        assert await asyncio.wait_for(reader.readexactly(len(big)), 20) == big
        writer.close()
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()
        await rig.until(lambda: rig.rows)
        assert (rig.rows[0]["status"], rig.rows[0]["outcome"]) == (101, "ok")
        assert rig.rows[0]["bytes_out"] == len(big) + 7

    run(test)


def test_what_a_client_sends_at_once_is_not_lost() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        _, writer = await rig.open(opening() + b"\x81\x80abcd")
        seen = await rig.engine.next()
        await rig.until(lambda: seen.later == b"\x81\x80abcd")
        writer.close()

    run(test)


def masked(payload: bytes, opcode: int = 1, fin: int = 0x80) -> bytes:
    """As a client sends it."""
    plain = frame(payload, opcode)
    head = len(plain) - len(payload)
    key = b"\x07\x80\xff\x13"
    veiled = bytes(b ^ key[i % 4] for i, b in enumerate(payload))
    return bytes([fin | opcode, plain[1] | 0x80]) + plain[2:head] + key + veiled


def unmasked(data: bytes) -> list[bytes]:
    """The payloads of a client's frames."""
    found = []
    while data:
        short = data[1] & 0x7F
        at = 2 + {126: 2, 127: 8}.get(short, 0)
        size = int.from_bytes(data[2:at], "big") if short > 125 else short
        key, veiled = data[at : at + 4], data[at + 4 : at + 4 + size]
        found.append(bytes(b ^ key[i % 4] for i, b in enumerate(veiled)))
        data = data[at + 4 + size :]
    return found


UPDATE = b'{"type":"session.update","model":"auto","session":{"model":"default-model:fast","voice":"\xc3\xbc"}}'
ENGINES_OWN = {"type": "session.update", "model": "m-1", "session": {"model": "m-1", "voice": "ü"}}
MESSAGES = [
    (UPDATE, ENGINES_OWN),
    (UPDATE.replace(b"auto", b"somebody-elses"), {**ENGINES_OWN, "model": "somebody-elses"}),
    (b'{"type":"session.update","session":{}}', None),
    (b'{"type":"input_audio_buffer.append","audio":"' + b"A" * 70_000 + b'"}', None),
    (b'{"type":"say","text":"session.update model","model":"auto"}', None),
    (b'{"type":"session.update","model":', None),
    (b'["session.update","model"]', None),
    (b'{"type":"session.update","model":7,"session":[]}', None),
    (b"", None),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=4), st.lists(st.integers(1, 90_000), min_size=1, max_size=8))
def test_a_session_update_says_the_engines_own_name(messages: list[tuple[bytes, object]], sizes: list[int]) -> None:
    """However the frames are split; everything else goes through as it came."""
    data = b"".join(masked(said) for said, _ in messages)
    follower = ClientFrames({"auto", "", "default-model", "default-model:fast"}, "m-1")
    out, at, step = b"", 0, 0
    while at < len(data):
        out += follower.feed(data[at : at + sizes[step % len(sizes)]])
        at, step = at + sizes[step % len(sizes)], step + 1
    for got, (said, wanted) in zip(unmasked(out), messages, strict=True):
        assert (got == said) if wanted is None else (json.loads(got) == wanted)


def test_client_frames_byte_by_byte_and_other_kinds() -> None:
    follower = ClientFrames({"auto"}, "m" * 70_000)
    data = masked(UPDATE)
    out = b"".join(follower.feed(data[i : i + 1]) for i in range(len(data)))
    assert json.loads(unmasked(out)[0])["model"] == "m" * 70_000
    for other in (masked(UPDATE, 2), masked(UPDATE, 1, 0), masked(b"x", 9), frame(UPDATE)):
        assert ClientFrames({"auto"}, "m").feed(other) == other, "binary, in fragments, a ping, not masked"
    long = masked(UPDATE[:-1] + b',"x":"' + b"y" * READ_BYTES + b'"}')
    assert ClientFrames({"auto"}, "m").feed(long) == long


def test_a_session_update_is_routed_as_the_opening_was() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        _, writer, _ = await opened(rig)
        seen = rig.engine.seen[0]
        assert "sec-websocket-extensions" not in seen.headers
        writer.write(
            masked(b'{"type":"session.update","model":"auto"}') + masked(b'{"type":"session.update","model":"x"}')
        )
        await rig.until(lambda: b"".join(unmasked(seen.later)).endswith(b'"x"}'))
        assert [json.loads(m)["model"] for m in unmasked(seen.later)] == ["default-model", "x"]
        writer.close()

    run(test)


def test_refusals_come_before_the_upgrade() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        assert (await rig.raw(opening(None))).code == "invalid_api_key"
        assert (await rig.raw(opening(path="/v1/realtime?model=nonsense"))).code == "model_not_found"
        steps = [reserved(NOW - 1000, NOW + 60_000, target())]
        await rig.publish(rig.entry(serving=target(), steps=steps))
        assert (await rig.raw(opening())).code == "gpu_reserved"
        assert not rig.engine.seen
        reader, writer = await rig.open(opening(None))
        assert (await read_answer(reader)).status == 401
        writer.write(request("/v1/models", b"", "maya", "GET"))
        assert (await read_answer(reader)).status == 200, "the connection goes on in HTTP"
        writer.close()
        rig.engine.behaviour = complete
        assert (await rig.raw(opening("maya"))).status == 200, "an engine that does not upgrade"
        await rig.drained()

    run(test)


def _drain_ends(rig: Rig) -> None:
    rig.gateways.cut("main", 3)


def _revoked(rig: Rig) -> None:
    rig.gateways.set_keys(rig.keys(without="tomas"))


@pytest.mark.parametrize(
    ("how", "code", "word"), [(_drain_ends, 1012, "model_switching"), (_revoked, 1008, "invalid_api_key")]
)
def test_a_cut_is_a_close_frame(how: Callable[[Rig], None], code: int, word: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        reader, writer, _ = await opened(rig)
        how(rig)
        said, reason = await last_word(reader)
        assert said == code
        assert reason.startswith(f"{word}: ")
        await asyncio.wait_for(rig.engine.seen[0].gone.wait(), 20)
        await rig.drained()
        writer.close()

    run(test)


def test_a_cut_waits_for_the_frame_that_is_under_way() -> None:
    half = frame(b"0123456789")

    async def stops(seen: Seen) -> None:
        await seen.send(TAKEN + frame(b"hello") + half[:4])
        while not seen.later:
            await asyncio.sleep(0.002)
        await seen.send(half[4:] + frame(b"too late"))
        await seen.gone.wait()

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = stops
        reader, writer, _ = await opened(rig)
        assert await asyncio.wait_for(reader.readexactly(4), 20) == half[:4]
        rig.gateways.cut("main", 3)
        (exchange,) = rig.gateway.running._on["main"]
        await rig.until(lambda: exchange.cut_by is not None)
        writer.write(b"go on")
        assert await asyncio.wait_for(reader.readexactly(len(half) - 4), 20) == half[4:]
        assert (await last_word(reader))[0] == 1012
        writer.close()

    run(test)


@pytest.mark.parametrize(("who", "ends"), [("tomas", True), ("root", True), ("noor", False), ("maya", False)])
def test_others_websockets_last_into_a_reservation_for_as_long_as_a_drain(who: str, ends: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        reader, writer, _ = await opened(rig, who)
        rig.gateways.set_settings({"drain_seconds": 5.0})
        await rig.publish(rig.entry(serving=target(), steps=[reserved(NOW, NOW + 60_000, target())]))
        rig.now = NOW + 4_999
        rig.gateway.running.cut_websockets(rig.gateway.table, rig.now)
        assert rig.gateway.running.in_flight["main"] == 1
        rig.now = NOW + 5_000
        rig.gateway.running.cut_websockets(rig.gateway.table, rig.now)
        assert rig.gateway.running.in_flight["main"] == (0 if ends else 1)
        if ends:
            assert (await last_word(reader))[0] == 1012
        writer.close()
        await rig.drained()

    run(test)


@given(st.lists(st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536]), max_size=6), st.data())
def test_frames_are_followed_however_they_are_cut_up(sizes: list[int], data: st.DataObject) -> None:
    frames = [frame(b"x" * size) for size in sizes]
    stream = b"".join(frames)
    ends = {sum(map(len, frames[:n])) for n in range(len(frames) + 1)}
    cuts = sorted({0, len(stream), *data.draw(st.lists(st.integers(0, len(stream)), max_size=8))})
    follower = Frames()
    for begin, end in pairwise(cuts):
        assert follower.feed(stream[begin:end]) == end - begin
        assert follower.boundary == (end in ends)
        if end < len(stream) and data.draw(st.booleans()):
            at = Frames()
            at.feed(stream[:end])
            rest = stream[end:]
            assert end + at.feed(rest, cut=True) == min(e for e in ends if e > end)
            break


def test_the_querys_model() -> None:
    assert model_of(b"") is None
    assert model_of(b"?model=a%2Fb&x=1") == "a/b"
    assert with_model(b"?x=1&model=auto&y=", "a b/ü") == b"?x=1&model=a%20b%2F%C3%BC&y="

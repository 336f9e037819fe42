"""Tokens out of engines' answers, as the engines write them, in any pieces; and never out of what a model has said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gateway import tokens
from agent.gateway.tokens import KEPT, LET
from tests.fakes.gateway_rig import Rig, run, secret
from tests.fakes.stub_engine import SSE_HEAD, Seen, token


def read(*pieces: bytes) -> tuple[int | None, int | None]:
    kept: list[bytes] = []
    for piece in pieces:
        tokens.keep(kept, piece)
    assert len(kept) <= LET
    assert all(len(piece) <= 2 * KEPT for piece in kept)
    return tokens.read(kept)


def event(content: dict[str, Any] | str, name: str = "") -> bytes:
    data = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LLAMA_TIMINGS = {
    "cache_n": 3, "prompt_n": 9, "prompt_ms": 12.5, "prompt_per_token_ms": 1.3, "prompt_per_second": 720.1,
    "predicted_n": 17, "predicted_ms": 80.2, "predicted_per_token_ms": 4.7, "predicted_per_second": 211.9,
}  # fmt: skip
USAGE = {"prompt_tokens": 12, "completion_tokens": 17, "total_tokens": 29}
DETAILED = {
    **USAGE, "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 5, "accepted_prediction_tokens": 0},
}  # fmt: skip
DELTA = {"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}}], "usage": None}
LONG = "a model's words " * 1000


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"id": "c", "choices": [{"message": {"content": LONG}}], "usage": USAGE}, (12, 17)),
        ({"usage": DETAILED, "id": "c", "timings": LLAMA_TIMINGS}, (12, 17)),
        ({"content": LONG, "tokens_predicted": 17, "prompt": LONG, "timings": LLAMA_TIMINGS}, (12, 17)),
        ({"model": "e", "object": "list", "usage": {"prompt_tokens": 5, "total_tokens": 5}, "data": [0.1] * 5000}, (5, None)),
        ({"object": "list", "data": [0.1] * 5000, "usage": {"prompt_tokens": 5, "total_tokens": 5}}, (5, None)),
        ({"type": "message", "content": LONG, "usage": {"input_tokens": 4, "output_tokens": 7}}, (4, 7)),
        (
            {"usage": {"cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "input_tokens": 4, "output_tokens": 7}},
            (7, 7),
        ),
        (
            {"output": LONG, "usage": {"input_tokens": 4, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 7}},
            (4, 7),
        ),
        ({"id": "c", "usage": None}, (None, None)),
        ({"id": "c", "usage": {}}, (None, None)),
        ({"choices": [{"message": {"content": '"usage": {"prompt_tokens": 999, "completion_tokens": 999}'}}]}, (None, None)),
        (
            {"choices": [{"message": {"content": '"timings":{"prompt_n":999}'}}], "usage": USAGE, "note": '"usage":{"x":1}'},
            (12, 17),
        ),
        ([1, 2, 3], (None, None)),
    ],
)  # fmt: skip
def test_whole_answers(body: Any, wanted: tuple[int | None, int | None]) -> None:
    for data in (json.dumps(body).encode(), json.dumps(body, indent=2).encode()):
        assert read(data) == wanted
        assert read(*(data[i : i + 700] for i in range(0, len(data), 700))) == wanted
        assert read(*(chunk(data[i : i + 500]) for i in range(0, len(data), 500)), b"0\r\n\r\n") == wanted


ENDS: list[tuple[list[bytes], tuple[int | None, int | None]]] = [
    ([event({"choices": [], "usage": USAGE}), event("[DONE]")], (12, 17)),
    ([event({"choices": [{"finish_reason": "stop", "delta": {}}], "timings": LLAMA_TIMINGS}), event("[DONE]")], (12, 17)),
    ([event({**DELTA, "usage": USAGE}), event(DELTA), event("[DONE]")], (12, 17)),
    ([event("[DONE]")], (None, None)),
    (
        [
            event({"type": "message_delta", "usage": {"output_tokens": 17}}, "message_delta"),
            event({"type": "message_stop"}, "message_stop"),
        ],
        (12, 17),
    ),
    ([event({"type": "response.completed", "response": {"output": [LONG], "usage": {"input_tokens": 12, "output_tokens": 17}}})], (12, 17)),
]  # fmt: skip
BEGIN = event(
    {"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 0}}}, "message_start"
)


@pytest.mark.parametrize("number", range(len(ENDS)))
@pytest.mark.parametrize("framed", [False, True])
def test_streams(number: int, framed: bool) -> None:
    ends, wanted = ENDS[number]
    begin = BEGIN if b"message_delta" in ends[0] else event(DELTA)
    pieces = [begin, *[event(DELTA)] * 50, *ends]
    if framed:
        pieces = [*map(chunk, pieces), b"0\r\n\r\n"]
    assert read(*pieces) == wanted
    assert read(pieces[0], b"".join(pieces[1:-2]), b"".join(pieces[-2:])) == wanted


def test_what_was_said_before_a_stream_was_cut_counts() -> None:
    said = [event({**DELTA, "usage": {"prompt_tokens": 12, "completion_tokens": n}}) for n in range(1, 40)]
    assert read(*said, event(DELTA)[:20]) == (12, 39)


@given(st.lists(st.binary(max_size=3 * KEPT), max_size=12))
def test_any_bytes(pieces: list[bytes]) -> None:
    read(*pieces)


@given(st.text(), st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 400))
def test_whatever_the_model_says_and_however_it_is_cut(said: str, prompt: int, completion: int, size: int) -> None:
    body = {"choices": [{"message": {"content": said + '"usage": {"prompt_tokens": 1'}}]}
    body["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}  # type: ignore[assignment]
    data = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    head, tail = data[: -4 * size], data[-4 * size :]
    pieces = [head, *(tail[i : i + size] for i in range(0, len(tail), size))]
    assert read(*(p for p in pieces if p)) == (prompt, completion)


async def _stream(seen: Seen) -> None:
    await seen.send(SSE_HEAD)
    for _ in range(10):
        await seen.chunk(token())
    await seen.chunk(event({"choices": [], "usage": USAGE}))
    await seen.chunk(event("[DONE]"))
    await seen.send(b"0\r\n\r\n")


async def _whole(seen: Seen) -> None:
    body = json.dumps({"choices": [], "timings": LLAMA_TIMINGS}).encode()
    await seen.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


async def _silent_on_tokens(seen: Seen) -> None:
    await seen.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 8\r\n\r\n\x8b\x03\x80usag\x03")


def test_rows_and_metrics_say_them() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for behaviour in (_stream, _whole, _silent_on_tokens):
            rig.engine.behaviour = behaviour
            await rig.call(stream=behaviour is _stream)
        await rig.until(lambda: len(rig.rows) == 3)
        assert [(r["prompt_tokens"], r["completion_tokens"]) for r in rig.rows] == [(12, 17), (12, 17), (None, None)]
        assert {(r["key_id"], r["user_id"], r["channel"], r["model"]) for r in rig.rows} == {
            ("k-tomas", "tomas", "main", "default-model")
        }
        assert all(r["first_byte_seconds"] > 0 and r["duration_seconds"] >= r["first_byte_seconds"] for r in rig.rows)
        text = (await rig.get("/metrics", "root")).body.decode()
        assert 'slotserve_gateway_tokens_total{channel="main",kind="prompt"} 24' in text
        assert 'slotserve_gateway_tokens_total{channel="main",kind="completion"} 34' in text
        assert 'slotserve_gateway_first_byte_seconds_count{channel="main"} 3' in text
        assert secret("tomas") not in text

    run(test)

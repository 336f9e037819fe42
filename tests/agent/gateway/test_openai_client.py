"""The official Python client through the gateway: against the real llama-server, and every refusal as it understands it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fakes.gateway_rig import NOW, Rig, reserved, run, step, target
from tests.fakes.stub_engine import Seen, stream_for_ever
from tests.parts import SIMULATED, engine_ready, running, unix_client, wait_until

MODEL = "cat/tiny model"
KEY = "key-of-this-start"


def client(rig: Rig, who: str = "tomas", retries: int = 0, path: str = "/v1") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{rig.url}{path}", api_key=f"sk-ss-{who}", max_retries=retries, timeout=30)


def ask(rig: Rig, who: str = "tomas", **more: Any) -> Any:
    messages = [{"role": "user", "content": "hello"}]
    return client(rig, who).chat.completions.create(**{"model": "auto", "messages": messages, "max_tokens": 8, **more})


async def aside(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    return await asyncio.to_thread(call, *args, **more)


@contextmanager
def engine(command: list[str], model: Path, folder: Path, env: dict[str, str]) -> Iterator[Path]:
    path = folder / "real.sock"
    args = ["-m", str(model), "--alias", MODEL, "--host", str(path), "--port", "1", "-c", "512", "-np", "2", "--slots"]
    with running([*command, *args], folder / "engine.log", {**os.environ, **env, "LLAMA_API_KEY": KEY}) as child:
        wait_until(lambda: engine_ready(path) or not child.alive(), 30, "the engine is ready")
        assert child.alive(), child.output()
        yield path


async def serve(rig: Rig, path: Path) -> None:
    served = target(MODEL, "fast")
    entry = rig.entry(serving=served, steps=[step(NOW - 1, served)])
    entry["serving"] |= {"socket": str(path), "engine_key": KEY}
    await rig.publish(entry)


async def use_everything(rig: Rig, path: Path) -> None:
    await serve(rig, path)
    for name in (MODEL, f"{MODEL}:fast", "auto"):
        answer = await aside(ask, rig, model=name)
        assert answer.model == MODEL
        assert answer.usage.completion_tokens > 0

    def stream() -> list[str]:
        chunks = list(ask(rig, stream=True))
        return [c.model for c in chunks]

    models = await aside(stream)
    assert len(models) > 2
    assert set(models) == {MODEL}
    listed = await aside(lambda: [m.id for m in client(rig).models.list()])
    assert listed == [MODEL, f"{MODEL}:fast", "auto"]
    assert (await aside(lambda: client(rig).models.retrieve(MODEL))).id == MODEL
    named = client(rig, path="/channels/main/v1")
    done = await aside(lambda: named.completions.create(model="auto", prompt="once", max_tokens=4))
    assert done.choices[0].finish_reason
    with pytest.raises(openai.BadRequestError):
        await aside(ask, rig, temperature="hot")
    raw = await aside(lambda: client(rig).chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": "x"}], max_tokens=1
    ))  # fmt: skip
    assert raw.headers["x-slotserve-channel"] == "main"
    assert raw.headers["x-slotserve-model"] == MODEL
    assert raw.request_id.startswith("req_")
    helper = await rig.raw(b"POST /tokenize HTTP/1.1\r\nHost: g\r\nx-api-key: sk-ss-tomas\r\nContent-Length: 17\r\n\r\n"
                           b'{"content":"abc"}')  # fmt: skip
    assert helper.json()["tokens"]
    await rig.drained()


async def abort_frees_the_slot(rig: Rig, path: Path) -> None:
    await serve(rig, path)

    def busy() -> bool:
        with unix_client(path, KEY) as direct:
            return any(s["is_processing"] for s in direct.get("/slots").json())

    def begin() -> Any:
        stream = ask(rig, stream=True, max_tokens=100_000, extra_body={"ignore_eos": True})
        next(iter(stream))
        return stream

    stream = await aside(begin)
    assert rig.gateway.running.in_flight["main"] == 1
    await aside(stream.close)
    await rig.drained()
    await aside(wait_until, lambda: not busy(), 5, "the engine has stopped working for it")


def test_real_llama_server(llama_server: Any, small_model: Path) -> None:
    async def test(rig: Rig) -> None:
        with engine([*llama_server.command, "--threads", "1"], small_model, rig.folder, llama_server.env) as path:
            await use_everything(rig, path)
            await abort_frees_the_slot(rig, path)

    run(test)


def test_simulated_engine(tiny_gguf: Path) -> None:
    async def test(rig: Rig) -> None:
        with engine(list(SIMULATED), tiny_gguf, rig.folder, {}) as path:
            await serve(rig, path)
            answer = await aside(ask, rig)
            assert answer.model == MODEL
            assert len(await aside(lambda: list(ask(rig, stream=True)))) > 2
            await rig.drained()

    run(test)


def test_refusals() -> None:
    async def refused(rig: Rig, kind: type[openai.APIStatusError], code: str, who: str = "tomas", **more: Any) -> Any:
        with pytest.raises(kind) as caught:
            await aside(ask, rig, who, **more)
        assert caught.value.code == code
        assert caught.value.request_id
        assert caught.value.request_id.startswith("req_")
        return caught.value

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await refused(rig, openai.AuthenticationError, "invalid_api_key", "eve")
        error = await refused(rig, openai.NotFoundError, "model_not_found", model="nonsense")
        assert error.param == "model"
        assert "default-model" in error.message
        booked = target("booked")
        steps = [reserved(NOW - 1000, NOW + 60_000, booked)]
        await rig.publish(rig.entry(serving=booked, steps=steps))
        error = await refused(rig, openai.PermissionDeniedError, "gpu_reserved")
        assert "until 08:01:00 UTC (in 60 s). Open to all after that." in error.message
        assert error.body["until"] == "2027-01-15T08:01:00Z"
        loading = {**booked, "ready_at_ms": NOW + 8_000}
        await rig.publish(rig.entry(steps=steps, phase="loading", loading=loading))
        error = await refused(rig, openai.InternalServerError, "model_loading", "maya")
        assert error.response.headers["retry-after"] == "8"
        await rig.publish(rig.entry(steps=[reserved(NOW - 1000, NOW + 60_000, None)]))
        await refused(rig, openai.InternalServerError, "gpu_exclusive", "maya")

    run(test)


def test_client_waits_for_retry_after_and_succeeds() -> None:
    async def test(rig: Rig) -> None:
        loading = {**target(), "ready_at_ms": NOW + 900}
        await rig.publish(rig.entry(phase="loading", loading=loading, steps=[step(NOW - 1, target())]))
        messages = [{"role": "user", "content": "hello"}]
        waiting = asyncio.create_task(
            aside(client(rig, retries=2).chat.completions.create, model="auto", messages=messages)
        )
        await rig.until(lambda: 'outcome="model_loading"' in rig.gateway.metrics_text())
        await rig.serve_default()
        assert (await waiting).choices[0].message.content == "hello"

    run(test)


@pytest.mark.parametrize("megabytes", [0.01, 6])
def test_audio_as_the_client_sends_it(megabytes: float) -> None:
    """A form, its model found and rewritten; a long one goes through as it comes, beyond what is held back."""
    sound = bytes(range(256)) * int(megabytes * 4096)

    async def heard(seen: Seen) -> None:
        body = b'{"text": "hello"}'
        await seen.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = heard
        create = client(rig).audio.transcriptions.create
        answer = await aside(create, model="auto", file=("a.wav", sound), language="en")
        assert answer.text == "hello"
        seen = rig.engine.seen[0]
        assert seen.path == "/v1/audio/transcriptions"
        assert sound in seen.body
        assert b'name="model"\r\n\r\ndefault-model\r\n' in seen.body
        assert b'name="language"\r\n\r\nen\r\n' in seen.body
        assert rig.gateway.body_limit < len(seen.body) or megabytes < 1
        await rig.drained()

    run(test, body_limit=1_000_000)


@pytest.mark.parametrize("why", ["drain's end", "key revoked"])
def test_client_is_told_when_its_stream_is_cut(why: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = stream_for_ever

        def read() -> int:
            return sum(1 for _ in ask(rig, stream=True))

        reading = asyncio.create_task(aside(read))
        await rig.engine.next()
        await asyncio.sleep(0.05)
        if why == "key revoked":
            rig.gateways.set_keys(rig.keys(without="tomas"))
        else:
            rig.gateways.cut("main", 9)
        with pytest.raises(openai.APIError) as caught:
            await reading
        assert caught.value.code == ("invalid_api_key" if why == "key revoked" else "model_switching")
        await rig.drained()

    run(test)


def test_client_can_tell_that_the_engine_died() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = stream_for_ever
        reading = asyncio.create_task(aside(lambda: list(ask(rig, stream=True))))
        seen = await rig.engine.next()
        await asyncio.sleep(0.05)
        seen.writer.transport.abort()
        with pytest.raises((openai.APIConnectionError, openai.APIError)) as caught:
            await reading
        assert "incomplete" in f"{caught.value} {caught.value.__cause__}"

    run(test)

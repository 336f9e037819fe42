"""The simulated engine: a real process with llama-server's command line, API and bad habits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

from tests.parts import SIMULATED, Child, engine_ready, pid_alive, running, start, unix_client, wait_until

pytestmark = pytest.mark.slow  # real processes

ENV = {"PATH": os.environ["PATH"], "LLAMA_API_KEY": "key-1"}


@pytest.fixture
def model(short_dir: Path) -> Path:
    path = short_dir / "m.gguf"
    path.write_bytes(b"GGUF and nothing else")
    return path


@contextmanager
def engine(folder: Path, model: Path, *more: str, ready: bool = True) -> Iterator[tuple[Child, httpx.Client]]:
    door = folder / "e.sock"
    command = [*SIMULATED, "-m", str(model), "--alias", "m,m~1", "--host", str(door), *more]
    with running(command, folder / "log", ENV) as child, unix_client(door, "key-1") as client:
        if ready:
            wait_until(lambda: engine_ready(door), 10, "engine ready")
        yield child, client


def chat(client: httpx.Client, **more: object) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello there"}], **more}
    return client.post("/v1/chat/completions", json=body)


def test_it_answers_as_llama_server_does(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model) as (child, client):
        listed = client.get("/v1/models").json()["data"]
        assert [(m["id"], m["aliases"]) for m in listed] == [("m", ["m", "m~1"])]
        assert client.get("/props").json()["model_path"] == str(model)
        assert client.get("/metrics").status_code == 501
        assert client.get("/nope").status_code == 404
        answer = chat(client, max_tokens=3).json()
        assert answer["model"] == "m"
        assert answer["choices"][0] == {
            "index": 0,
            "message": {"role": "assistant", "content": "m: the channel"},
            "finish_reason": "length",
        }
        assert answer["usage"]["completion_tokens"] == 3
        assert chat(client).json()["choices"][0]["finish_reason"] == "stop"
        assert client.post("/tokenize", json={"content": "a b c"}).json()["tokens"].__len__() == 3
        assert len(client.post("/v1/embeddings", json={"input": ["a", "b"]}).json()["data"]) == 2
        assert client.post("/v1/chat/completions", content=b"{bad").status_code == 500
        child.signal(signal.SIGTERM)
        assert child.wait() == 0
        assert "listening on unix://" in child.output()


def test_its_key_is_needed_but_for_health_and_models(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model), unix_client(short_dir / "e.sock", "wrong") as stranger:
        assert stranger.get("/health").json() == {"status": "ok"}
        assert stranger.get("/v1/models").status_code == 200
        assert chat(stranger).status_code == 401
        assert stranger.get("/slots").status_code == 401
        assert (
            stranger.post("/tokenize", json={}, headers={"Authorization": "", "x-api-key": "key-1"}).status_code == 200
        )


def test_the_openai_client_streams_from_it(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model, "--sim-tokens", "5", "--sim-token-ms", "1"):
        transport = httpx.HTTPTransport(uds=str(short_dir / "e.sock"))
        with openai.OpenAI(
            api_key="key-1", base_url="http://e/v1", http_client=httpx.Client(transport=transport)
        ) as client:
            stream = client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "x"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = list(stream)
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "m: the channel answers in"
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens == 5
            pieces = [
                c.choices[0].text for c in client.completions.create(model="m", prompt="x", stream=True, max_tokens=2)
            ]
            assert "".join(pieces) == "m: the"


def test_messages_stream_with_named_events(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model) as (_, client):
        body = {"model": "m", "max_tokens": 2, "messages": [], "stream": True}
        text = client.post("/v1/messages", json=body).text
        names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
        assert names == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot_at_once(short_dir: Path, model: Path, stream: bool) -> None:
    with engine(short_dir, model, "--sim-token-ms", "20000", "-np", "1") as (child, client):
        busy = lambda: [slot["is_processing"] for slot in client.get("/slots").json()]  # noqa: E731
        with unix_client(short_dir / "e.sock", "key-1", timeout=0.3) as hasty, pytest.raises(httpx.ReadTimeout):
            chat(hasty, stream=stream)
        wait_until(lambda: busy() == [False], 1, "the slot is free")
        assert "request cancelled after 1 tokens" in child.output()


def test_a_client_that_leaves_the_queue_is_forgotten(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model, "--sim-hang", "-np", "1", "--metrics") as (child, client):
        for _ in range(2):
            with unix_client(short_dir / "e.sock", "key-1", timeout=0.2) as hasty, pytest.raises(httpx.ReadTimeout):
                chat(hasty)
        wait_until(lambda: child.output().count("request cancelled") == 2, 2)
        assert "requests_processing 0\nllamacpp:requests_deferred 0" in client.get("/metrics").text


def test_loading_is_503_for_every_path_and_a_signal_then_simply_ends_it(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model, "--sim-load-seconds", "60", ready=False) as (child, client):
        wait_until((short_dir / "e.sock").exists)
        wait_until(lambda: _status(client, "/health") == 503)
        for path in ("/health", "/v1/models", "/nope"):
            assert client.get(path).json()["error"]["message"] == "Loading model"
        child.signal(signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM


def _status(client: httpx.Client, path: str) -> int:
    try:
        return client.get(path).status_code
    except httpx.HTTPError:
        return 0


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--sim-oom",), 1, "cudaMalloc failed: out of memory"),
        (("--sim-crash-at-load",), 1, "error loading model: simulated failure"),
        (("--sim-crash-at-load", "--sim-exit-code", "-9"), -9, "simulated failure"),
        (("--sim-crash-after", "0.05", "--sim-exit-code", "7"), 7, "listening on"),
        (("--frob",), 1, "error: invalid argument: --frob"),
        (("--ctx-size=5",), 1, "error: invalid argument: --ctx-size=5"),
        (("-c",), 1, 'error while handling argument "-c": expected value for argument'),
        (("-c", "x"), 1, 'error while handling argument "-c": stoi'),
        (("--version",), 0, "version"),
        (
            ("--host", "/nonexistent/x.sock"),
            1,
            "couldn't bind HTTP server socket, hostname: /nonexistent/x.sock, port: 8080",
        ),
        (
            ("-m", "/nonexistent/m.gguf"),
            1,
            "failed to open GGUF file '/nonexistent/m.gguf' (No such file or directory)",
        ),
    ],
)
def test_how_it_ends(short_dir: Path, model: Path, more: tuple[str, ...], code: int, words: str) -> None:
    with engine(short_dir, model, *more, ready=False) as (child, _):
        assert child.wait() == code
        assert words in child.output()


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "failed to read magic"), (b"hello", "invalid magic characters: 'hell'")]
)
def test_a_file_that_is_no_model(short_dir: Path, content: bytes, words: str) -> None:
    path = short_dir / "bad.gguf"
    path.write_bytes(content)
    with engine(short_dir, path, ready=False) as (child, _):
        assert child.wait() == 1
        assert words in child.output()


ODD = b"simulated\ntokens = 2\nwrong-name = other\n"


@pytest.mark.parametrize("content", [ODD, b"GGUF...\n" + ODD])
def test_a_model_file_can_misbehave_and_arguments_win(short_dir: Path, content: bytes) -> None:
    path = short_dir / "odd.gguf"
    path.write_bytes(content)
    with engine(short_dir, path, "--sim-wrong-name", "third") as (_, client):
        assert client.get("/v1/models").json()["data"][0]["id"] == "third"
        assert chat(client).json()["usage"]["completion_tokens"] == 2


def test_errors_at_a_rate_are_the_same_ones_every_time(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model, "--sim-error-rate", "0.25", "--sim-status", "502") as (_, client):
        assert [chat(client, max_tokens=1).status_code for _ in range(8)] == [200, 200, 200, 502] * 2


def test_it_can_refuse_to_stop_and_leave_a_worker_behind(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model, "--sim-ignore-sigterm", "--sim-leave-worker", "--sim-memory-mb", "30") as (
        child,
        client,
    ):
        resident = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident > 30 << 20
        workers = [int(p) for p in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
        assert len(workers) == 1
        try:
            assert os.getsid(workers[0]) == workers[0]
            child.signal(signal.SIGTERM)
            os.kill(workers[0], signal.SIGTERM)
            time.sleep(0.1)
            assert client.get("/health").status_code == 200
            child.signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
            assert pid_alive(workers[0])
        finally:
            os.kill(workers[0], signal.SIGKILL)


def test_a_tcp_port_of_the_systems_choice_is_told(tmp_path: Path, model: Path) -> None:
    child = start([*SIMULATED, "-m", str(model), "--port", "0"], tmp_path / "log", ENV)
    try:
        wait_until(lambda: "listening on http://127.0.0.1:" in child.output())
        address = child.output().rpartition("listening on ")[2].strip()
        with httpx.Client(headers={"Authorization": "Bearer key-1"}) as client:
            body = b'5\r\n{"con\r\n8\r\ntent":"a\r\n4\r\n b"}\r\n0\r\n\r\n'
            answer = client.post(
                f"{address}/tokenize", content=iter([body]), headers={"content-type": "application/json"}
            )
            assert answer.status_code in (200, 500)
            parts = iter([b'{"content":', b' "a b"}'])
            assert len(client.post(f"{address}/tokenize", content=parts).json()["tokens"]) == 2
    finally:
        child.stop()


def test_a_socket_that_is_there_already_is_taken(short_dir: Path, model: Path) -> None:
    with engine(short_dir, model) as _:
        again = start([*SIMULATED, "-m", str(model), "--host", str(short_dir / "e.sock")], short_dir / "log2", ENV)
        assert again.wait() == 1
        assert "couldn't bind HTTP server socket" in again.output()

"""Is it ready, and is it ours: whatever a server on the engine's address may answer."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.interfaces import Process
from agent.runtime import probe
from agent.runtime.probe import Prober, served_names

Answer = tuple[int, Any]


@pytest.fixture
def served() -> Iterator[Callable[..., int]]:
    """Starts an HTTP server on loopback with these answers by (path, key); its port."""
    servers = []

    def serve(answers: Callable[[str, str], Answer]) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answers(self.path, self.headers.get("Authorization", "").removeprefix("Bearer "))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server.server_address[1]

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def process(port: int, unique: str = "m~1") -> Process:
    return Process("1", "id", "m", None, "sglang", 0, 0, 0, None, "127.0.0.1", port, "right", "m", unique)


def look(p: Process) -> bool:
    async def once() -> bool:
        prober = Prober(p)
        try:
            return await prober.look()
        finally:
            await prober.close()

    return asyncio.run(once())


def models(*names: str) -> dict[str, Any]:
    return {"data": [{"id": n} for n in names]}


@pytest.mark.parametrize(
    ("health", "listed", "ready"),
    [
        ((200, {}), (200, models("m", "m~1")), True),
        ((200, {}), (200, {"data": [{"id": "m", "aliases": ["x", "m~1"]}]}), True),
        ((503, {}), (200, models("m~1")), False),
        ((401, {}), (200, models("m~1")), False),
        ((200, {}), (200, models("m")), False),
        ((200, {}), (401, models("m~1")), False),
        ((200, {}), (200, b"<html>"), False),
        ((200, {}), (200, [1, None]), False),
        ((200, {}), (200, {"data": [None, {"id": None}, {"aliases": 3}]}), False),
        ((200, {}), (200, b"\xff"), False),
    ],
)
def test_health_and_name(served: Callable[..., int], health: Answer, listed: Answer, ready: bool) -> None:
    port = served(lambda path, _: health if path == "/health" else listed)
    assert look(process(port)) is ready


@pytest.mark.parametrize(
    ("accepted", "names", "ready"), [("right", "m", True), ("other", "m", False), ("right", "x", False)]
)
def test_an_engine_with_one_name_is_known_by_its_key(
    served: Callable[..., int], accepted: str, names: str, ready: bool
) -> None:
    port = served(lambda path, key: (200, models(names)) if path == "/health" or key == accepted else (401, {}))
    assert look(process(port, unique="")) is ready


def test_an_engine_that_takes_any_key_is_not_known_to_be_ours(served: Callable[..., int]) -> None:
    port = served(lambda path, key: (200, models("m")))
    assert look(process(port, unique="")) is False


def test_nobody_there_and_nobody_answering(served: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT", 0.2)
    assert look(process(1)) is False
    answers = threading.Event()
    port = served(lambda *_: (200, {"late": not answers.wait(60)}))
    assert look(process(port)) is False, "before it has answered"
    answers.set()


def test_names_of_anything() -> None:
    assert served_names({"data": "x"}) == set()
    assert served_names(None) == set()
    assert served_names({"data": [{"id": "a", "aliases": ["b", ""]}]}) == {"a", "b"}

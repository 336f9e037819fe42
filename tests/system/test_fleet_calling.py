"""A model that another node serves: said in words by every gateway, relayed by those that are to. Two real nodes."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.state import State
from tests.system.conftest import sim_model
from tests.system.two_nodes import TwoNodes

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """n1 has `base`, n2 `far` (default) and `farther`."""
    folders = (tmp_path_factory.mktemp("n1"), tmp_path_factory.mktemp("n2"))
    sim_model(folders[0], "base", load_seconds=0.2, token_ms=10)
    for name in ("far", "farther"):
        sim_model(folders[1], name, load_seconds=0.2, token_ms=20, tokens=5000)
    with TwoNodes(folders) as nodes:
        nodes.until(lambda: len(nodes.get("/models")["items"]) == 3, 20, "the models are known")
        nodes.set_default("base")
        nodes.until_ready("base")
        nodes.second_default("far")
        nodes.second_ready("far")
        yield nodes


@pytest.fixture
def n(fleet: TwoNodes) -> TwoNodes:
    """No bookings; n2 serves `far`, and n1 knows it."""
    for booking in fleet.get("/reservations?status=approved")["items"]:
        fleet.post(f"/reservations/{booking['id']}/end", {"reason": "the next test begins"})
    fleet.second_ready("far")
    fleet.until(lambda: "far" in models(fleet), 20, "n1 lists it")
    return fleet


def models(n: TwoNodes, who: str = "maya") -> dict[str, Any]:
    answer = n.http.get(f"{n.gateway_url}/v1/models", headers=n.headers(who)).json()
    return {item["id"]: item for item in answer["data"]}


def usage(n: TwoNodes, request_id: str) -> list[Any]:
    """The rows of a request: (node, channel, status)."""
    with sqlite3.connect(f"file:{n.root / 'c' / 'slotserve.db'}?mode=ro", uri=True) as db:
        return db.execute(
            "SELECT nodes.name, usage.channel, usage.status FROM usage JOIN nodes ON nodes.id = usage.node_id "
            "WHERE usage.id = ?",
            (request_id,),
        ).fetchall()


def engine_log(n: TwoNodes) -> str:
    return str(n.get("/channels/n2/main/log?offset=0&limit=1000000")["text"])


def test_a_gateway_that_does_not_relay_says_where_and_when(n: TwoNodes) -> None:
    error = n.known("base", "n1/main", url=n.second_url)
    assert error["code"] == "model_not_found"
    assert f"It is served now on n1/main ({n.gateway_url})." in error["message"]
    body = {"model": "base", "messages": []}
    answer = httpx.post(f"{n.second_url}/v1/chat/completions", json=body, headers=n.headers("maya"))
    assert answer.status_code == 404
    assert f"It is served now on n1/main ({n.gateway_url})." in answer.json()["error"]["message"]
    assert "X-SlotServe-Node" not in answer.headers
    booking = n.post(
        "/reservations",
        {
            "channel": "n2/main",
            "kind": "model",
            "model": "farther",
            "starts_at": stamp(1800),
            "ends_at": stamp(3600),
        },
        "maya",
    )

    def next_time() -> Any:
        answer = n.chat("maya", "farther")
        return answer if "next on n2/main" in answer.text else None

    told = n.until(next_time, 20, "the holder hears when it is there next")
    assert told.status_code == 404
    assert told.json()["error"]["until"] >= booking["starts_at"][:16]
    assert "next" not in n.chat("tomas", "farther").text  # it is reserved for somebody else then


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_a_request_is_relayed_and_counted_where_it_is_served(n: TwoNodes) -> None:
    answer = n.chat("maya", "far")
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "far"
    assert answer.headers["X-SlotServe-Node"] == "n2"
    assert answer.headers["X-SlotServe-Channel"] == "main"
    assert answer.headers["X-SlotServe-Model"] == "far"
    request_id = answer.headers["X-Request-Id"]
    for process in (n.gateway, n.second_gateway):
        n.until(lambda p=process: request_id in p.tail(200), 10, "both logs have the same id")  # type: ignore[misc]
    rows = n.until(lambda: usage(n, request_id), 20, "the usage row is there")
    assert rows == [("n2", "main", 200)]
    assert n.chat("maya", "auto").headers.get("X-SlotServe-Node") is None
    assert models(n)["far"]["node"] == "n2"
    assert n.chat("maya", "far", channel="main").status_code == 404  # a named channel is only ever that one


def test_a_stream_comes_as_it_is_made_and_ends_at_the_engine_with_its_client(n: TwoNodes) -> None:
    body = {"model": "far", "stream": True, "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}
    url = f"{n.gateway_url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=n.headers("maya"), timeout=30) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert len(lines) >= 20
    before = engine_log(n).count("request cancelled")
    with httpx.stream("POST", url, json=body | {"max_tokens": 5000}, headers=n.headers("maya"), timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        next(answer.iter_lines())
    n.until(lambda: engine_log(n).count("request cancelled") > before, 20, "the engine hears that nobody listens")
    n.until(lambda: n.second()["in_flight"] == 0, 10, "and so does the channel")


def test_the_serving_node_decides(n: TwoNodes) -> None:
    n.post(
        "/reservations",
        {"channel": "n2/main", "kind": "model", "model": "far", "starts_at": "now", "ends_at": stamp(600)},
        "maya",
    )
    answer = n.until(lambda: (a := n.chat("tomas", "far")).status_code == 403 and a, 20, "others are refused")
    assert answer.json()["error"]["code"] == "gpu_reserved"
    assert "reserved" in answer.json()["error"]["message"]
    assert answer.headers["X-SlotServe-Node"] == "n2"
    n.until(lambda: "far" not in models(n, "tomas"), 10, "it is not listed for others")
    assert n.chat("maya", "far").status_code == 200
    assert "far" in models(n)
    assert "maya" not in answer.text


def relay_call(n: TwoNodes, context: ssl.SSLContext, hashed: str, model: str = "far") -> bytes:
    host, _, port = n.relays["n2"].rpartition(":")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname="any") as tls,
    ):
        tls.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: req_mine\r\nX-SlotServe-Relay: "
            + hashed.encode()
            + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        said = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := tls.recv(65536):
                said += piece
        return said


def context_of(certificate: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def test_the_relay_address_is_for_nodes_only_and_what_comes_there_goes_no_further(n: TwoNodes, tmp_path: Path) -> None:
    import hashlib

    from controller.fleet.ca import CertificateAuthority
    from tests.bench.thousand import csr

    hashed = hashlib.sha256(n.keys["maya"].encode()).hexdigest()
    identity = State(n.root / "a").identity()
    own = tmp_path / "own.pem"
    own.write_bytes(identity.key + b"\n" + identity.certificate)
    good = relay_call(n, context_of(own), hashed)
    assert b" 200 OK" in good.split(b"\r\n")[0]
    assert b"X-Request-Id: req_mine" in good
    assert b" 401 " in relay_call(n, context_of(own), "0" * 64).split(b"\r\n")[0]
    onward = relay_call(n, context_of(own), hashed, "base")  # n2 knows that n1 has it, and leaves it at that
    assert b" 404 " in onward.split(b"\r\n")[0]
    assert b"Node n2 was asked" in onward
    for number, folder in enumerate((n.root / "c" / "ca", tmp_path / "foreign")):
        ca = CertificateAuthority(folder)
        if number == 0:  # of our CA, but a controller's
            key, certificate = ca.controller_pair()
        else:
            (tmp_path / "keys").mkdir()
            certificate = ca.sign_csr(*csr(tmp_path / "keys", "n1")).pem.encode()
            key = (tmp_path / "keys" / "n1.key").read_bytes()
        pem = tmp_path / f"{number}.pem"
        pem.write_bytes(key + b"\n" + certificate)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert relay_call(n, context_of(pem), hashed) == b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        assert relay_call(n, context_of(None), hashed) == b""
    # at the address for people nobody is believed
    forged = {"X-SlotServe-Relay": hashed, "X-Request-Id": "req_forged"}
    answer = httpx.post(f"{n.second_url}/v1/chat/completions", json={"model": "far", "messages": []}, headers=forged)
    assert answer.status_code == 401
    assert answer.headers["X-Request-Id"] != "req_forged"


def test_a_node_that_cannot_be_reached_is_named(n: TwoNodes) -> None:
    n.second_gateway.stop()
    try:
        answer = n.chat("maya", "far")
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "node_unreachable"
        assert f"n2/main ({n.second_url})" in answer.json()["error"]["message"]
        assert answer.headers["Retry-After"] == "5"
        assert n.chat("maya", "base").status_code == 200
    finally:
        n.second_gateway.start()
        n.until(lambda: n.http.get(n.second_url + "/healthz").status_code == 200, 20, "it is back")
    n.until(lambda: n.chat("maya", "far").status_code == 200, 20, "and is relayed to again")


def test_it_goes_on_without_the_controller(n: TwoNodes) -> None:
    n.controller.stop(signal.SIGKILL)
    try:
        assert n.chat("maya", "far").status_code == 200
        headers, url = n.headers("maya"), f"{n.second_url}/v1/models/base"

        def aged() -> bool:
            return "As known at" in n.http.get(url, headers=headers).text

        n.until(aged, 20, "what is known has its age")
        n.gateway.stop()
        n.gateway.start()
        n.until(lambda: n.chat("maya", "far").status_code == 200, 20, "a gateway that starts has it from the file")
    finally:
        n.start_controller()
    n.until(lambda: not aged(), 40, "the controller is back")
    assert n.chat("maya", "far").status_code == 200

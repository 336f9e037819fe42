"""The gateway as a part of the whole: what only shows with real bookings, real switches and processes that die.

One node with two channels, `main` and `side`, is shared by all tests; each leaves `main` serving `base` to everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.cluster import Cluster, Process, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
STOP, DRAIN = 3.0, 3.0  # as tests/system/cluster.py sets them


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("models")
    for name in ("base", "other", "third"):
        sim_model(folder, name, load_seconds=0.2, token_ms=10, tokens=5000)
    channel = {"folder": folder, "engines": ["simulated"]}
    with running(SIMULATED, {"main": channel, "side": channel}) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) == 3, 20, "the models are known")
        cluster.set_default("other", channel="side")
        for model in ("third", "other", "base"):  # each loaded once, so that the estimates are short
            cluster.set_default(model)
            cluster.until_ready(model)
        cluster.until_ready("other", channel="side")
        yield cluster


class Stream:
    """A long answer, read by a thread; `ended` is set at its end, `last` is its last event."""

    def __init__(self, c: Cluster, who: str, channel: str = "main", tokens: int = 3000) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.status, self.last = 0, ""
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "stream": True}
        url = f"{c.gateway_url}/channels/{channel}/v1/chat/completions"
        self._args = (c.http, url, body, {"Authorization": f"Bearer {c.keys[who]}"})
        threading.Thread(target=self._read, daemon=True).start()
        assert self.begun.wait(20), "the stream begins"

    @property
    def told(self) -> str | None:
        """The code of the error event at the end."""
        return json.loads(self.last)["error"]["code"] if '"error"' in self.last else None

    def _read(self) -> None:
        http, url, body, headers = self._args
        with (
            contextlib.suppress(httpx.HTTPError),
            http.stream("POST", url, json=body, headers=headers, timeout=60) as answer,
        ):
            self.status = answer.status_code
            for line in answer.iter_lines():
                self.begun.set()
                if line.startswith("data: "):
                    self.last = line[6:]
        self.begun.set()
        self.ended.set()


def told(c: Cluster) -> Any:
    """What the agent has told the gateway of channels and clock."""
    return json.loads((c.root / "a" / "gateway" / "table.json").read_bytes())


def until_told(c: Cluster, booking: Any) -> None:
    c.until(lambda: booking["id"] in json.dumps(told(c)["channels"]), 20, "the gateway knows of the booking")


def offset_ms(c: Cluster) -> int:
    """Of node time, as agent and gateway have it, to the boot clock."""
    clock = told(c)["clock"]
    return int(clock["controller_ms"]) - int(clock["boottime_ms"])


async def hammer(c: Cluster, who: str, offset: int, until: int, seen: list[tuple[int, int, int]]) -> None:
    """Calls `main` without a pause until it is served behind `until`; (before, after, status) in node time."""
    body = json.dumps({"model": "auto", "prompt": "x", "max_tokens": 1}).encode()
    host, port = c.gateway_url[len("http://") :].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /channels/main/v1/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {c.keys[who]}\r\n"
    data = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    status = 0
    while (before := offset + boottime_ms()) < until or (status != 200 and before < until + 20_000):
        writer.write(data)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = answer.partition("content-length: ")[2].partition("\r\n")[0]
        await reader.readexactly(int(length))
        status = int(answer.split(" ")[1])
        seen.append((before, offset + boottime_ms(), status))
    writer.close()


def boottime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def ms(text: str) -> int:
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("model", "holder", "outside"),
    [
        ("base", {200}, {200}),  # what runs anyway: nothing changes but who may call
        ("other", {200, 503}, {200, 503}),  # preloaded, and left again at its end
        (None, {503}, {200, 503}),  # exclusive: cleared before, loaded again after
    ],
)
def test_access_is_exact_to_the_millisecond(
    node: Cluster, model: str | None, holder: set[int], outside: set[int]
) -> None:
    """Nobody else is served inside [start, end), the holder is never shut out, others never outside; by node time.
    `holder`: what the holder may see inside, `outside`: what anybody may see outside."""
    booking = node.book(model, 3.0, 4.5)
    start, end = ms(booking["starts_at"]), ms(booking["ends_at"])
    until_told(node, booking)
    offset = offset_ms(node)
    assert offset + boottime_ms() < start, "in time"
    offsets = {offset}
    seen: dict[str, list[tuple[int, int, int]]] = {"tomas": [], "root": [], "maya": []}

    async def all_of_them() -> None:
        people = ("tomas", "tomas", "root", "maya")
        calls = asyncio.gather(*(hammer(node, who, offset, end, seen[who]) for who in people))
        while not calls.done():
            offsets.add(offset_ms(node))  # measured anew with each plan; whatever was in force counts
            await asyncio.sleep(0.01)
        await calls

    asyncio.run(all_of_them())
    slack = 1 + max(abs(other - offset) for other in offsets)
    assert slack < 20, "controller and node are on one machine"
    everybody = seen["tomas"] + seen["root"] + seen["maya"]
    inside = {who: {s for b, a, s in seen[who] if b >= start + slack and a <= end - slack} for who in seen}
    others = {s for b, a, s in everybody if a <= start - slack or b >= end + slack}
    assert len(everybody) > 200
    assert inside["tomas"] == inside["root"] == {403}
    assert inside["maya"]
    assert inside["maya"] <= holder
    assert 200 in others
    assert others <= outside
    assert {seen[who][-1][2] for who in seen} == {200}, "served again"
    node.until_ready("base")


def test_which_channel_answers(node: Cluster) -> None:
    def served(who: str, model: str = "auto", channel: str | None = None, **more: Any) -> tuple[Any, ...]:
        answer = node.chat(who, model, channel, **more)
        if answer.status_code == 200:
            return answer.headers["X-SlotServe-Channel"], answer.headers["X-SlotServe-Model"], answer.json()["model"]
        return answer.status_code, answer.json()["error"]["code"]

    def listed(who: str, path: str = "/v1/models") -> list[tuple[str, str | None]]:
        answer = node.http.get(node.gateway_url + path, headers={"x-api-key": node.keys[who]})
        return [(m["id"], m["channel"]) for m in answer.json()["data"]]

    everything = [("base", "main"), ("other", "side"), ("auto", None)]
    assert listed("tomas") == listed("maya") == everything
    assert listed("tomas", "/channels/side/v1/models") == [("other", "side"), ("auto", None)]
    assert served("tomas") == ("main", "base", "base")
    assert served("tomas", "other") == ("side", "other", "other")
    busy = Stream(node, "noor", "main", tokens=300)
    assert served("tomas") == ("side", "other", "other"), "fewest running requests"
    assert served("tomas", "base", "side") == (404, "model_not_found"), "never an answer from another model"
    assert served("tomas", "base", "nowhere") == (404, "channel_not_found")
    assert served("tomas", "nonsense") == (404, "model_not_found")
    assert busy.ended.wait(20)

    preset = {"model": "other", "name": "short", "engine": "simulated", "args": ["--ctx-size", "512"]}
    node.post("/presets", preset)
    booking = node.book("other", 0, 600, preset="short")
    node.until(lambda: served("maya", "other:short") == ("main", "other", "other"), 20, "the holder is served")
    assert served("maya", "other") == ("main", "other", "other"), "own first, though the other one is ready as well"
    assert served("tomas", "other") == ("side", "other", "other")
    assert served("tomas", "other:short") == (403, "gpu_reserved")
    assert served("tomas", "base") == (403, "gpu_reserved"), "the name comes next on a channel that is reserved now"
    assert served("maya", "base", "main") == (404, "model_not_found")
    assert listed("maya") == [("other", "main"), ("other:short", "main"), ("auto", None)]
    assert listed("tomas") == [("other", "side"), ("auto", None)]
    shut = node.chat("tomas", "auto", "main").json()["error"]
    assert " UTC (in " in shut["message"]
    assert "Open to all after that." in shut["message"]
    assert ms(shut["until"]) == ms(booking["ends_at"])
    assert 590 <= int(node.chat("maya").headers["X-SlotServe-Ends-In"]) <= 600
    node.post(f"/reservations/{booking['id']}/end", who="maya")
    node.until_ready("base")


def test_a_drain_before_a_reservation_ends_in_time(node: Cluster) -> None:
    """At start - load - STOP_TIMEOUT, though DRAIN_SECONDS would last longer; then the preload is open to all."""
    node.set_default("base", preload_lead_seconds=5)
    try:
        booking = node.book("other", 7, 14)
        start = ms(booking["starts_at"]) / 1000
        until_told(node, booking)
        asked = time.time()
        ends_in = int(node.chat("tomas", "base").headers["X-SlotServe-Ends-In"])
        preload = start - 5
        assert preload - time.time() - 1.1 <= ends_in <= preload - asked + 0.1, "to the next known switch: the preload"
        stream = Stream(node, "tomas")
        deadline = ms(node.until(lambda: node.channel()["drain_deadline"], 20, "it is drained")) / 1000
        assert preload < deadline < start - STOP, f"{deadline - start:+.2f} s, {node.get('/models/other')}"
        assert stream.ended.wait(20)
        assert stream.told == "model_switching"
        node.until(lambda: node.chat("tomas", "other", "main").status_code == 200, 20, "the preload is open to all")
        node.until(lambda: node.chat("tomas", "auto", "main").status_code == 403, 20, "it has begun")
        assert node.chat("maya", "auto", "main").status_code == 200
        node.post(f"/reservations/{booking['id']}/end", who="maya")
    finally:
        node.set_default("base", preload_lead_seconds=None)
    node.until_ready("base")


def test_a_killed_gateway_holds_nothing_up(node: Cluster) -> None:
    """Counts go back to zero with it, a switch goes on without any gateway, the next one serves what is there."""
    streams = [Stream(node, "tomas") for _ in range(3)]
    node.until(lambda: node.channel()["in_flight"] == 3, 20, "they are counted")
    node.gateway.stop(signal.SIGKILL)
    assert all(s.ended.wait(20) for s in streams)
    assert all(s.told is None for s in streams), "nobody was there to say anything"
    node.until(lambda: node.channel()["in_flight"] == 0, 20, "nothing runs any more")
    node.set_default("third")
    node.until_ready("third")
    node.gateway.start()
    node.until(lambda: node.chat("tomas", "third").status_code == 200, 20, "the new gateway serves it")
    node.set_default("base")
    node.until_ready("base")


def test_a_replaced_gateway_and_its_successor_are_counted_both(node: Cluster) -> None:
    old_stream = Stream(node, "tomas")
    old = node.gateway
    assert old.popen is not None
    old.popen.send_signal(signal.SIGTERM)
    new = Process("gateway2", old.args, node.env, node.root)

    def taken_over() -> bool:
        if not new.alive():
            new.start()
            time.sleep(0.3)
        return node.http.get(node.gateway_url + "/healthz").status_code == 200

    try:
        node.until(taken_over, 20, "the new gateway listens")
        new_stream = Stream(node, "noor")
        node.until(lambda: node.channel()["in_flight"] == 2, 20, "both count")
        assert not old_stream.ended.is_set(), "a replaced gateway goes on for its last streams"
        node.set_default("third")
        assert old_stream.ended.wait(20)
        assert new_stream.ended.wait(20)
        assert (old_stream.told, new_stream.told) == ("model_switching", "model_switching")
        assert old.popen.wait(20) == 0, "with its last stream it ends"
        node.until_ready("third")
        assert node.channel()["in_flight"] == 0
    finally:
        node.gateway = new
    node.set_default("base")
    node.until_ready("base")


def test_every_request_is_in_the_usage_exactly_once(node: Cluster) -> None:
    """Also where the agent is killed and the gateway is replaced in between."""

    def counted() -> int:
        return sum(row["requests"] for row in node.get("/usage", who="noor")["items"])

    before = node.until(lambda: (n := counted()) is not None and (n,), 20, "the usage can be read")[0]
    for _ in range(5):
        assert node.chat("noor", channel="side").status_code == 200
    node.agent.stop(signal.SIGKILL)
    for _ in range(5):
        assert node.chat("noor", channel="side").status_code == 200
    node.gateway.stop()  # while the agent is away
    node.gateway.start()
    node.until(lambda: node.chat("noor", channel="side").status_code == 200, 20, "served without an agent")
    node.agent.start()
    node.until(lambda: node.node()["online"], 20, "the agent is back")
    node.until(lambda: counted() - before >= 11, 20, "all are counted")
    time.sleep(1.2)  # two more rounds of handing over
    assert counted() - before == 11
    node.until_ready("base")


def test_metrics_are_for_the_node_and_for_administrators(node: Cluster) -> None:
    far = {"X-Forwarded-For": "192.0.2.7"}
    url = node.gateway_url + "/metrics"
    assert node.http.get(url, headers=far).status_code == 401
    assert node.http.get(url, headers={**far, "x-api-key": node.keys["maya"]}).status_code == 403
    assert node.http.get(url, headers={**far, "x-api-key": node.keys["root"]}).status_code == 200
    assert node.chat("maya", channel="side").status_code == 200
    text = node.http.get(url).text
    assert 'slotserve_gateway_requests_total{channel="side",outcome="ok",status="200"}' in text
    assert 'slotserve_gateway_in_flight{channel="main"} 0' in text
    assert 'slotserve_channel_phase{channel="main",phase="ready"} 1' in text
    assert "slotserve_gateway_first_byte_seconds_bucket" in text
    starts = 'slotserve_engine_starts_total{channel="side"} 1'
    node.until(lambda: starts in node.http.get(url).text, 20, "the agent's figures are there as well")

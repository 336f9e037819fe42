"""Relays between two gateways, n1 and n2, over mutual TLS with certificates of one authority: what goes through as it is,
who decides, how it ends, and who does not get in."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from agent.gateway.elsewhere import _place
from agent.gateway.listen import bind
from agent.gateway.relay import DOWN_SECONDS, Relays, tls_name
from agent.state import Identity, State
from controller.fleet.ca import CertificateAuthority, relay_name
from tests.agent.gateway.test_websocket import OFFER, frame, talks
from tests.fakes.gateway_pair import FAR, Pair, enrol, pair, place
from tests.fakes.gateway_rig import NOW, Rig, chat, request, reserved, target
from tests.fakes.stub_engine import SSE_HEAD, Seen, complete, silent, stream_for_ever


def test_the_certificate_says_what_is_looked_for() -> None:
    for node in ("n1", "gpu-a01", "a..b_c"):
        assert tls_name(node) == relay_name(node)


def test_a_request_goes_through_as_it_came() -> None:
    async def test(p: Pair) -> None:
        answer = await p.near.call("maya", "far-model", note="ü")
        assert answer.status == 200, answer.body
        assert answer.headers["x-slotserve-node"] == "n2"
        assert answer.headers["x-slotserve-channel"] == "main"
        assert answer.headers["x-slotserve-model"] == "far-model"
        seen = p.far.engine.seen[0]
        assert seen.headers["authorization"] == "Bearer engine-secret"
        assert seen.headers["x-request-id"] == answer.headers["x-request-id"]
        assert "x-slotserve-relay" not in seen.headers
        assert seen.json()["note"] == "ü"
        await p.far.until(lambda: p.far.rows)
        row = p.far.rows[0]
        assert (row["id"], row["user_id"], row["key_id"]) == (answer.headers["x-request-id"], "maya", "k-maya")
        assert not p.near.rows
        assert not p.near.gateway.running.relaying
        assert 'outcome="relayed"' in p.near.gateway.metrics_text()

    pair(test)


def test_what_is_served_here_never_asks_elsewhere() -> None:
    async def test(p: Pair) -> None:
        await p.say(place(p.port, "default-model"), place(p.port))
        p.near.gateway.directory = None  # type: ignore[assignment]
        assert (await p.near.call("maya", "default-model")).status == 200
        assert (await p.near.call("maya", "auto")).status == 200
        assert (await p.near.call("maya", None)).status == 200
        assert not p.far.engine.seen

    pair(test)


@pytest.mark.parametrize("length", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_long_bodies_go_through_as_they_come(length: bytes) -> None:
    async def test(p: Pair) -> None:
        text = b'{"model":"far-model","messages":[],"x":"' + b"y" * 2_000_000 + b'"}'
        head = request("/v1/chat/completions", b"", "maya")[:-2]
        if length:
            data = head + length + b"\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
        else:
            data = head + b"Content-Length: %d\r\n\r\n" % len(text) + text
        answer = await p.near.raw(data)
        assert answer.status == 200, answer.body
        assert p.far.engine.seen[0].body == text

    pair(test)


def test_a_client_that_goes_ends_the_engines_request() -> None:
    async def test(p: Pair) -> None:
        for behaviour in (stream_for_ever, silent):  # in mid-stream, and before the first byte
            p.far.engine.seen.clear()
            p.far.engine.behaviour = behaviour
            _, writer = await p.near.open(chat(stream=True, model="far-model", who="maya"))
            seen = await p.far.engine.next()
            (relayed,) = p.near.gateway.running.relaying
            assert relayed.upstream is not None
            peer = relayed.upstream.transport.get_extra_info("socket")
            assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), "a node that loses its power is noticed"
            writer.close()
            await asyncio.wait_for(seen.gone.wait(), 20)
            await p.far.drained()
            await p.near.until(lambda: not p.near.gateway.running.relaying)

    pair(test)


def test_a_client_that_does_not_read_holds_the_engine_up() -> None:
    sent = 0

    async def flood(seen: Seen) -> None:
        nonlocal sent
        await seen.send(SSE_HEAD)
        while not seen.gone.is_set():
            await seen.chunk(b"data: " + b"x" * 16_000 + b"\n\n")
            sent += 16_000

    async def test(p: Pair) -> None:
        p.far.engine.behaviour = flood
        _, writer = await p.near.open(chat(stream=True, model="far-model", who="maya"))
        last = -1
        async with asyncio.timeout(30):
            while sent != last or not sent:  # until nothing more is taken
                last = sent
                await asyncio.sleep(0.5)
        assert sent < 40_000_000  # sockets' buffers, no more
        writer.close()

    pair(test)


def test_the_serving_node_refuses_in_its_own_words() -> None:
    async def test(p: Pair) -> None:
        await p.far.publish(p.far.entry(serving=FAR, steps=[reserved(NOW - 1000, NOW + 600_000, FAR)]))
        answer = await p.near.call("tomas", "far-model")
        assert (answer.status, answer.code) == (403, "gpu_reserved")
        assert answer.headers["x-slotserve-node"] == "n2"
        assert (await p.near.call("maya", "far-model")).status == 200
        p.far.gateways.set_keys(Rig.keys(without="maya"))
        await p.far.until(lambda: len(p.far.gateway.keys) == 3)
        assert (await p.near.call("maya", "far-model")).code == "invalid_api_key"
        loading = {"loading": {**FAR, "ready_at_ms": NOW + 30_000}, "phase": "loading", "steps": []}
        await p.far.publish(p.far.entry(serving=None, **loading))
        answer = await p.near.call("noor", "far-model")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "model_loading", "30")

    pair(test)


def test_one_hop() -> None:
    """n2 believes that n1 has the model, n1 believes it of n2: the request ends at n2."""

    async def test(p: Pair) -> None:
        await p.say(place(p.port, "nobody-has-it"))
        p.far.gateway.relays = p.near.gateway.relays
        p.far.gateways.set_directory([place(p.port, "nobody-has-it", "n1")])
        await p.far.until(lambda: p.far.gateway.directory.by_name)
        answer = await p.near.call("maya", "nobody-has-it")
        assert (answer.status, answer.code) == (404, "model_not_found")
        assert answer.json()["error"]["message"].startswith("Node n2 was asked: ")
        assert not p.far.engine.seen

    pair(test)


def test_a_node_that_does_not_answer_is_passed_over_or_named() -> None:
    async def test(p: Pair) -> None:
        closed = bind("127.0.0.1:0")
        dead = closed.getsockname()[1]
        closed.close()
        await p.say(place(dead, node="n3"), place(p.port))
        for _ in range(2):
            assert (await p.near.call("maya", "far-model")).headers["x-slotserve-node"] == "n2"
        await p.say(place(dead, node="n3"))
        answer = await p.near.call("maya", "far-model")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "node_unreachable", "5")
        assert "n3/main (http://n3:8710)" in answer.json()["error"]["message"]
        await p.say(place(p.port, node="n4"))  # n2's certificate is not n4's
        assert (await p.near.call("maya", "far-model")).code == "node_unreachable"
        assert not p.far.gateway.connections

    pair(test)


def test_a_node_that_was_not_reached_is_asked_last(tmp_path: Path) -> None:
    relays = Relays(tmp_path)
    places = [_place(place(port, node=f"n{port}")) for port in range(2, 7)]
    assert [p.node for p in relays.order(places, 0)] == ["n2", "n3", "n4"]
    relays.not_reached(places[0], 0)
    relays.not_reached(places[1], 0)
    assert [p.node for p in relays.order(places, 5)] == ["n4", "n5", "n6"]
    assert [p.node for p in relays.order(places[:2], 5)] == ["n2", "n3"]
    relays.reached(places[1])
    assert [p.node for p in relays.order(places, 5)] == ["n3", "n4", "n5"]
    assert [p.node for p in relays.order(places, DOWN_SECONDS + 1)] == ["n2", "n3", "n4"]


def test_an_engine_that_dies_is_not_taken_for_an_end() -> None:
    async def dies(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        await seen.chunk(b"data: 1\n\n")
        seen.writer.transport.abort()

    async def test(p: Pair) -> None:
        p.far.engine.behaviour = dies
        reader, writer = await p.near.open(chat(stream=True, model="far-model", who="maya"))
        rest = await asyncio.wait_for(reader.read(), 20)
        assert b"data: 1\n\n" in rest
        assert not rest.endswith(b"0\r\n\r\n")
        writer.close()

    pair(test)


def test_websockets_are_relayed() -> None:
    async def test(p: Pair) -> None:
        p.far.engine.behaviour = talks
        reader, writer = await p.near.open(request("/v1/realtime?model=far-model", b"", "maya", "GET", OFFER))
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
        assert head.startswith("http/1.1 101 ")
        assert "x-slotserve-node: n2" in head
        assert await asyncio.wait_for(reader.readexactly(7), 20) == frame(b"hello")
        seen = p.far.engine.seen[0]
        writer.write(b"\x81\x82abcdXY")
        await p.far.until(lambda: seen.later == b"\x81\x82abcdXY")
        writer.close()
        await asyncio.wait_for(seen.gone.wait(), 20)

    pair(test)


def test_who_may_not_come_in_at_the_relay_address() -> None:
    async def asks(p: Pair, relays: Relays | None) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if relays is not None and relays.client is not None:
            context = relays.client
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError, ssl.SSLError):
            reader, writer = await asyncio.open_connection("127.0.0.1", p.port, ssl=context)
            writer.write(chat(model="far-model", who="maya"))  # a key that opens every gateway
            return await asyncio.wait_for(reader.read(), 20)
        return b""

    async def test(p: Pair) -> None:
        foreign = CertificateAuthority(p.folder / "foreign")
        assert await asks(p, None) == b""
        assert await asks(p, enrol(p.folder / "x", "n1", foreign)) == b""
        key, certificate = p.ca.controller_pair()
        State(p.folder / "y").save_identity(Identity(key, certificate, p.ca.certificate_pem().encode(), "c:1", 0))
        controller = Relays(p.folder / "y")
        assert controller.look()
        assert await asks(p, controller) == b""
        # a node's that is not one of the fleet any more
        p.far.gateways.set_directory([], "ab" * 16)
        await p.far.until(lambda: p.far.gateway.members)
        assert await asks(p, enrol(p.folder / "w", "n9", p.ca)) == b""
        p.far.gateways.set_directory([])
        await p.far.until(lambda: p.far.gateway.members is None)
        # a node's: in, but only the hash that the node vouches for counts
        assert b" 401 " in await asks(p, enrol(p.folder / "z", "n9", p.ca))
        assert not p.far.engine.seen

    pair(test)


def test_nobody_else_is_believed_and_nothing_but_engines_is_relayed() -> None:
    async def test(p: Pair) -> None:
        forged = f"X-SlotServe-Relay: {next(iter(Rig.keys()))}\r\nX-Request-Id: forged\r\nX-SlotServe-Node: n7\r\n"
        answer = await p.far.raw(request("/v1/chat/completions", b'{"model":"far-model"}', None, headers=forged))
        assert answer.status == 401
        assert answer.headers["x-request-id"] != "forged"
        answer = await p.far.raw(request("/v1/chat/completions", b'{"model":"far-model"}', "maya", headers=forged))
        assert answer.status == 200
        assert not {"x-slotserve-relay", "x-slotserve-node"} & p.far.engine.seen[0].headers.keys()
        assert "x-slotserve-node" not in answer.headers

    pair(test)


def test_what_is_listed_and_what_is_said_without_relaying() -> None:
    async def test(p: Pair) -> None:
        shut = {"kind": "model", "holder_id": "maya", "participant_ids": [], "start": NOW - 1, "end": NOW + 60_000}
        await p.say(place(p.port), place(p.port, "shut-model", windows=[shut]))
        listed = {i["id"]: i for i in (await p.near.get("/v1/models")).json()["data"]}
        assert list(listed) == ["default-model", "far-model", "auto"]
        assert (listed["far-model"]["node"], listed["far-model"]["channel"]) == ("n2", "n2/main")
        p.near.gateway.relays = None
        listed = [i["id"] for i in (await p.near.get("/v1/models")).json()["data"]]
        assert listed == ["default-model", "auto"]
        answer = await p.near.call("tomas", "far-model")
        assert (answer.status, answer.code) == (404, "model_not_found")
        assert "It is served now on n2/main (http://n2:8710)." in answer.json()["error"]["message"]
        assert answer.json()["error"]["elsewhere"][0]["gateway_url"] == "http://n2:8710"
        answer = await p.near.call("tomas", "shut-model")
        assert "reserved until 08:01" in answer.json()["error"]["message"]
        assert "maya" not in answer.body.decode()
        assert (await p.near.call("tomas", "far-model", "/channels/main/v1/chat/completions")).status == 404
        assert "n2" not in (await p.near.call("tomas", "unknown")).json()["error"]["message"]

    pair(test)


def test_a_reserved_channel_here_is_no_end_where_another_node_serves() -> None:
    async def test(p: Pair) -> None:
        await p.say(place(p.port, "default-model"))
        await p.far.publish(p.far.entry(serving=target()))
        await p.near.publish(p.near.entry(serving=target(), steps=[reserved(NOW - 1000, NOW + 600_000, target())]))
        assert (await p.near.call("tomas", "default-model")).headers["x-slotserve-node"] == "n2"
        assert "x-slotserve-node" not in (await p.near.call("maya", "default-model")).headers
        assert (await p.near.call("tomas", "auto")).code == "gpu_reserved"
        p.near.gateway.relays = None
        answer = await p.near.call("tomas", "default-model")
        assert answer.code == "gpu_reserved"
        assert answer.json()["error"]["message"].endswith("It is served now on n2/main (http://n2:8710).")

    pair(test)


def test_a_new_certificate_counts_without_a_restart() -> None:
    async def test(p: Pair) -> None:
        p.far.engine.behaviour = stream_for_ever
        _, writer = await p.near.open(chat(stream=True, model="far-model", who="maya"))
        await p.far.engine.next()
        before = p.door._server
        enrol(p.folder / "n2", "n2", p.ca)
        p.door._relays.look()
        await p.door._renew()
        assert p.door._server is not before
        p.far.engine.behaviour = complete
        assert (await p.near.call("maya", "far-model")).status == 200
        assert len(p.near.gateway.running.relaying) == 1  # what ran goes on
        writer.close()

    pair(test)

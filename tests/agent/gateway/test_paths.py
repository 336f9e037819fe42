"""Which paths there are, in which spellings; models and channels in them."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from agent.gateway import routes
from agent.gateway.framing import parse_head
from tests.fakes.gateway_rig import NOW, Rig, chat, request, run, step, target

SERVED = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/audio/transcriptions",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/channels/main/v1/chat/completions",
]
HELPERS = ["tokenize", "detokenize", "apply-template", "infill", "completion", "embedding", "pooling", "classify"]
NOT_THERE = [
    "/",
    "/v1",
    "/v1/",
    "/v1/chat",
    "/v1/chat/completions/",
    "//v1/chat/completions",
    "/V1/chat/completions",
    "/v1/../metrics",
    "/v1/chat/../../slots",
    "/v1/chat%2Fcompletions",
    "/v/v1/chat/completions",
    "/slots",
    "/props",
    "/v1/slots",
    "/lora-adapters",
    "/v1/load_lora_adapter",
    "/sleep",
    "/wake_up",
    "/reset_prefix_cache",
    "/v1/audio/",
    "/v1/audio/a/b",
    "/v1/images/..",
    "/v1/audio/%2e%2e",
    "/channels/main",
    "/channels/main/",
    "/channels/main/slots",
    "/channels/main/metrics",
    "/channels//v1/models",
    "/channels/Main/v1/models",
    "/channels/ma%69n/v1/models",
    "/health",
    "/invocations",
]


@pytest.mark.parametrize("path", SERVED)
def test_served(path: str) -> None:
    route, query = routes.find(path.encode() + b"?beta=true")
    assert route
    assert route.path.decode() == path.removeprefix("/channels/main")
    assert query == b"?beta=true"
    assert route.channel == ("main" if path.startswith("/channels") else None)


@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.parametrize("prefix", ["/v1/", "/", "/channels/main/v1/"])
def test_helpers_are_at_the_engines_root(name: str, prefix: str) -> None:
    route, _ = routes.find((prefix + name).encode())
    assert route
    assert route.path.decode() == f"/{name}"


@pytest.mark.parametrize("path", NOT_THERE)
def test_everything_else_is_not_there(path: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for data in (request(path, b"{}"), request(path, method="GET")):
            answer = await rig.raw(data)
            assert answer.status == 404
            assert answer.code in ("not_found", "channel_not_found")
        assert rig.engine.seen == []

    run(test)


MEANT = {
    "/v1//chat/completions": "/v1/chat/completions",
    "//v1/chat/completions": "/v1/chat/completions",
    "/v/chat/completions": "/v1/chat/completions",
    "/v1/v1/messages": "/v1/messages",
    "/v1/chat/completions/": "/v1/chat/completions",
    "/v1/chat%2Fcompletions": "/v1/chat/completions",
    "/V1/Chat/Completions": "/v1/chat/completions",
    "/chat/completions": "/v1/chat/completions",
    "/api/v1/models": "/v1/models",
    "/channels/main/chat/completions": "/channels/main/v1/chat/completions",
    "/channels/main/v1//audio/speech": "/channels/main/v1/audio/speech",
    "/v1/../v1/chat/completions": None,
    "/v1/../../slots": None,
    "/v1/%2e%2e/v1/models": None,
    "/v1/nonsense": None,
    "/slots": None,
    "/%ff%fe": None,
    "/v1/": None,
    "/": None,
}


@pytest.mark.parametrize("path", MEANT)
def test_a_path_that_is_nearly_right_is_told_what_is(path: str) -> None:
    assert routes.meant(path.encode()) == MEANT[path]

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for query in ("", "?beta=true"):
            answer = await rig.raw(request(path + query, b'{"model": "auto"}'))
            assert (answer.status, answer.code) == (404, "not_found")
            wanted = f"did you mean {MEANT[path]!r}?" if MEANT[path] else "the API begins at /v1/."
            assert answer.json()["error"]["message"].endswith(wanted)
        stranger = await rig.raw(request(path, b"{}", "eve"))
        assert (stranger.status, stranger.code) == (401, "invalid_api_key"), "without a key nothing is told"
        assert rig.engine.seen == []

    run(test)


def test_absolute_form_is_refused_in_words() -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.raw(request("http://gateway/v1/chat/completions", b"{}"))
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert "must be a path, such as /v1/chat/completions" in answer.json()["error"]["message"]

    run(test)


def test_methods() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        answer = await rig.get("/v1/chat/completions")
        assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")
        assert (await rig.raw(request("/v1/models", b"{}"))).status == 405
        assert (await rig.raw(request("/healthz", b"{}"))).status == 405
        reader, writer = await rig.open(request("/v1/chat/completions", method="OPTIONS"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 204 ")
        assert b"\r\nAllow: POST, OPTIONS\r\n" in head
        writer.write(request("/v1/models", method="OPTIONS", who=None))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.close()
        reader, writer = await rig.open(request("/v1/models", method="HEAD"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        writer.write(request("/healthz", method="GET", who=None))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK"), "HEAD had no body"
        writer.close()

    run(test)


def test_names_with_slashes_and_spaces() -> None:
    async def test(rig: Rig) -> None:
        odd = target("org/My Model ü", "long context")
        await rig.publish(rig.entry(serving=odd, steps=[step(NOW - 1, odd)]))
        for name in ("org/My Model ü", "org/My Model ü:long context"):
            answer = await rig.call(model=name)
            assert answer.status == 200
            assert answer.headers["x-slotserve-model"] == "org/My Model %C3%BC"
        assert rig.engine.seen[0].json()["model"] == "org/My Model ü"
        assert rig.engine.seen[1].json()["model"] == "org/My Model ü"
        ids = [m["id"] for m in (await rig.get("/v1/models")).json()["data"]]
        assert ids == ["org/My Model ü", "org/My Model ü:long context", "auto"]
        for path in ("org/My%20Model%20%C3%BC", "org%2FMy%20Model%20%C3%BC", "org%2fMy%20Model%20%c3%bc"):
            answer = await rig.get(f"/v1/models/{path}")
            assert (answer.status, answer.json()["id"]) == (200, "org/My Model ü")
        assert (await rig.get("/v1/models/org/other")).code == "model_not_found"
        assert (await rig.get("/v1/models/%ff")).status == 404
        assert (await rig.call(model="org%2FMy Model")).code == "model_not_found"

    run(test)


def test_channel_by_path_and_header() -> None:
    async def test(rig: Rig) -> None:
        await rig.publish(rig.entry("main", target()), rig.entry("aux", target("small")))
        for data, channel in (
            (chat(path="/channels/aux/v1/chat/completions"), "aux"),
            (chat(headers="X-SlotServe-Channel: aux\r\n"), "aux"),
            (chat(model="default-model"), "main"),
            (chat(model="small"), "aux"),
        ):
            assert (await rig.raw(data)).headers["x-slotserve-channel"] == channel
        wrong = await rig.raw(chat(path="/channels/aux/v1/chat/completions", model="default-model"))
        assert (wrong.status, wrong.code) == (404, "model_not_found")
        assert (await rig.raw(chat(path="/channels/none/v1/chat/completions"))).code == "channel_not_found"
        both = chat(path="/channels/aux/v1/chat/completions", headers="X-SlotServe-Channel: main\r\n")
        assert (await rig.raw(both)).status == 400
        assert (await rig.raw(chat(headers="X-SlotServe-Channel: a b\r\n"))).status == 400
        listed = (await rig.get("/channels/aux/v1/models")).json()["data"]
        assert [m["id"] for m in listed] == ["small", "auto"]

    run(test)


def test_rewritten_only_where_spelled_otherwise() -> None:
    async def test(rig: Rig) -> None:
        served = target("default-model", "fast")
        await rig.publish(rig.entry(serving=served))
        body = b'{ "messages":[],\t"model" : "default-model" , "seed": 1e400}'
        await rig.raw(request("/v1/chat/completions", body))
        await rig.raw(request("/v1/chat/completions", body.replace(b"default-model", b"default-model:fast")))
        assert [seen.body for seen in rig.engine.seen] == [body, body]

    run(test)


def test_multipart_goes_through_with_its_model() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        form = (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n'
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
            + bytes(range(256))
            + b"\r\n--b--\r\n"
        )
        head = f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(form)}\r\n"
        assert (await rig.raw(request("/v1/audio/transcriptions", headers=head) + form)).status == 200
        assert rig.engine.seen[0].body == form.replace(b"auto", b"default-model")
        assert rig.engine.seen[0].headers["content-type"] == "multipart/form-data; boundary=b"

    run(test)


def test_metrics_and_health() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        await rig.call()
        assert (await rig.get("/healthz", None)).json()["status"] == "ok"
        text = (await rig.get("/metrics", None)).body.decode()
        assert 'slotserve_gateway_requests_total{channel="main",outcome="ok",status="200"} 1' in text
        assert 'slotserve_gateway_in_flight{channel="main"} 0' in text
        proxied = "X-Forwarded-For: 10.0.0.9\r\n"
        assert (await rig.get("/metrics", None, proxied)).status == 401
        assert (await rig.get("/metrics", "tomas", proxied)).status == 403
        assert (await rig.get("/metrics", "root", proxied)).status == 200

    run(test)


def test_every_answer_has_one_date_the_gateways_own() -> None:
    async def test(rig: Rig) -> None:
        await rig.serve_default()
        for asked in (chat(), chat(stream=True), chat(model="nothing"), request("/v1/models"), b"no HTTP\r\n\r\n"):
            reader, writer = await rig.open(asked)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            writer.close()
            dates = [line[6:] for line in head.split("\r\n") if line.startswith("Date: ")]
            assert len(dates) == 1, head
            assert abs((parsedate_to_datetime(dates[0]) - datetime.now(UTC)).total_seconds()) < 60
        assert parse_head(b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-A: b").lines == [b"X-A: b\r\n"]

    run(test)

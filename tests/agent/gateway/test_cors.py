"""Web pages that call the gateway from a browser: none, unless the setting names their origins."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from pydantic import ValidationError

from agent.gateway.cors import Cors
from agent.settings import AgentSettings
from tests.fakes.gateway_rig import Answer, Rig, chat, read_answer, request, run

PAGE = "https://chat.example.org"
ASKS = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n"
PATH = "/v1/chat/completions"


def from_page(origin: str = PAGE, more: str = "") -> str:
    return f"Origin: {origin}\r\n{more}"


def with_origins(text: str, test: Callable[[Rig], Awaitable[None]]) -> None:
    async def begin(rig: Rig) -> None:
        rig.gateway.cors = Cors(text)
        await rig.serve_default()
        await test(rig)

    run(begin)


async def preflight(rig: Rig, origin: str = PAGE, path: str = PATH, who: str | None = None, more: str = ASKS) -> Answer:
    """As a browser sends it: without a key."""
    reader, writer = await rig.open(request(path, b"", who, "OPTIONS", from_page(origin, more)))
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    lines = [x.partition(": ") for x in head[:-4].split("\r\n")[1:]]
    return Answer(int(head.split(" ")[1]), {k.lower(): v for k, _, v in lines}, b"")


def cors_headers(answer: Answer) -> set[str]:
    return {k for k in answer.headers if k.startswith("access-control-")}


def test_off_by_default() -> None:
    async def test(rig: Rig) -> None:
        assert (await preflight(rig)).status == 401
        for answer in (await preflight(rig), await rig.raw(chat(headers=from_page()))):
            assert not cors_headers(answer)
            assert "vary" not in answer.headers

    with_origins("", test)


@pytest.mark.parametrize(("setting", "allowed"), [(f"http://other:8080, {PAGE}", PAGE), ("*", "*")])
def test_a_page_may_call_and_read_what_it_is_told(setting: str, allowed: str) -> None:
    async def test(rig: Rig) -> None:
        answer = await preflight(rig)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == allowed
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
        assert "content-length" not in answer.headers
        assert "access-control-allow-credentials" not in answer.headers
        served = await rig.raw(chat(headers=from_page()))
        streamed = await rig.get("/v1/models", headers=from_page())
        refused = await rig.raw(chat(who="eve", headers=from_page()))
        missing = await rig.raw(chat(model="nonsense", headers=from_page()))
        assert [a.status for a in (served, streamed, refused, missing)] == [200, 200, 401, 404]
        for answer in (served, streamed, refused, missing):
            assert answer.headers["access-control-allow-origin"] == allowed
            assert "Retry-After" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "Origin"
        assert rig.engine.seen[0].headers["origin"] == PAGE

    with_origins(setting, test)


def test_another_page_may_not() -> None:
    async def test(rig: Rig) -> None:
        for origin in ("https://evil.example.org", f"{PAGE}.evil", "null", PAGE.upper(), f"{PAGE}:8443"):
            answer = await preflight(rig, origin)
            assert answer.status == 401
            assert not cors_headers(answer)
            assert not cors_headers(await rig.raw(chat(headers=from_page(origin))))

    with_origins(PAGE, test)


def test_what_is_for_the_machine_itself_is_for_no_page() -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.get("/metrics", None, from_page())
        assert answer.status == 200
        assert not cors_headers(answer)

    with_origins("*", test)


def test_what_asks_for_no_page_is_as_ever() -> None:
    async def test(rig: Rig) -> None:
        options = await preflight(rig, who="tomas", more="")
        assert (options.status, options.headers["allow"]) == (204, "POST, OPTIONS")
        nowhere = await rig.raw(request("/v1/nonsense", b"", "tomas", "OPTIONS", from_page(more=ASKS)))
        assert nowhere.status == 404
        header = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a\x80b\r\n"
        reader, writer = await rig.open(request(PATH, b"", None, "OPTIONS", from_page(more=header)))
        assert b"access-control-allow-headers" not in (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.write(chat())
        assert (await read_answer(reader)).status == 200, "the connection goes on"
        writer.close()

    with_origins(PAGE, test)


@pytest.mark.parametrize("text", ["chat.example.org", "https://a/b", "https://a:port", "ftp://a", "https://A", "null"])
def test_what_is_no_origin_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValidationError, match="is no origin; write https://host"):
        AgentSettings(gateway_cors_origins=text)


def test_a_compressed_body_is_refused_in_words() -> None:
    async def test(rig: Rig) -> None:
        body = json.dumps({"model": "auto"}).encode()
        answer = await rig.raw(request(PATH, body, headers="Content-Encoding: gzip\r\n"))
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
        assert (await rig.raw(request(PATH, body, headers="Content-Encoding: identity\r\n"))).status == 200

    with_origins("", test)

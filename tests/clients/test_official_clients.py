"""The official clients understand every refusal: its class, status, code and words; and wait as long as they are told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.officials import Curl, JavaScript, Python, Said, find_javascript
from tests.clients.scenes import SCENES, Scene, play, refused_as_loading, until_ready
from tests.fakes.gateway_rig import Rig, run
from tests.parts import cannot_be_had

CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
    502: "InternalServerError",
    503: "InternalServerError",
    None: "APIError",
}
OTHER_CLASS = {"python": "APIStatusError", "node": "APIError"}  # what has no class of its own
NO_CLEAN_END = {"python": "APIConnectionError", "node": "TypeError", "curl": "exit status 18"}


@pytest.fixture(scope="module", params=["python", "javascript", "curl"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "python":
        yield Python()
    elif request.param == "curl":
        if shutil.which("curl") is None:
            cannot_be_had("curl", "not installed")
        yield Curl()
    else:
        package = find_javascript()
        if isinstance(package, str):
            cannot_be_had("OpenAI's JavaScript client", package)
        else:
            with JavaScript(package) as javascript:
                yield javascript


def test_every_refusal_is_understood(client: Any) -> None:
    async def test(rig: Rig) -> None:
        for scene in SCENES:
            check(scene, client, await play(rig, scene, client))
        await rig.drained()

    run(test, body_limit=1_000_000)


def check(scene: Scene, client: Any, said: Said) -> None:
    where = f"{scene.name}, {client.name}: {said}"
    kind = client.name.partition(" ")[0].removeprefix("openai-")
    if scene.code is None:
        assert said.error == NO_CLEAN_END[kind], where
        return
    wanted = "HTTP" if kind == "curl" else CLASSES.get(scene.status, OTHER_CLASS[kind])
    assert (said.error, said.code) == (wanted, scene.code), where
    assert len(said.message) > 20, where
    if scene.status is not None:  # else it is told in the stream
        assert (said.status, said.retry_after) == (scene.status, scene.retry_after), where
        assert (said.request_id or "").startswith("req_"), where


def test_waits_as_long_as_told_and_succeeds(client: Any) -> None:
    async def test(rig: Rig) -> None:
        said = await until_ready(rig, client, 2.0)
        assert said.text == "hello"
        assert said.seconds > 1.9, "it waited for what Retry-After said"
        assert len(rig.engine.seen) == 1

    run(test)


def test_longer_than_it_waits_it_fails_with_our_words(client: Any) -> None:
    async def test(rig: Rig) -> None:
        said = await until_ready(rig, client, 300.0, retries=0 if client.name == "curl" else 2)
        assert (said.status, said.code, said.retry_after) == (503, "model_loading", "300")
        assert "reserved-model:fast is being loaded on channel main" in said.message
        assert refused_as_loading(rig) == 1, "it asked once"

    run(test)

"""Every refusal there is: how the gateway is brought to it, who calls, and what is to be understood."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.clients.officials import Ask
from tests.fakes.gateway_rig import NOW, Rig, chat, reserved, step, target
from tests.fakes.stub_engine import SSE_HEAD, Seen, complete, stream_for_ever, token

D, A = target("default-model"), target("reserved-model", "fast")
START, END = NOW - 60_000, NOW + 600_000
WINDOW = [reserved(START, END, A, fallback=D), step(END, D)]
LOADING = {"identity": A["identity"], "model": A["model"], "preset": "fast", "ready_at_ms": NOW + 7_500}
SWITCHING = {"identity": A["identity"], "retry_drain": False, "ready_at_ms": NOW + 30_000}
FAILURE = {"reason": "out of GPU memory; lower -c", "category": "out_of_memory", "retry_at_ms": NOW + 20_000}
BLOCKED = {"phase": "blocked", "blocked": "eve's python (pid 4711) holds 23 GB"}
Set = Callable[[Rig], Awaitable[Any]]


@dataclass(frozen=True)
class Scene:
    """A refusal. `during`: what happens while the answer is on its way; `after` the scene the rig is as before."""

    name: str
    status: int | None
    code: str | None
    who: str = "tomas"
    serving: dict[str, Any] | None = None
    entry: dict[str, Any] = field(default_factory=dict)
    retry_after: str | None = None
    ask: Ask = field(default_factory=Ask)
    before: Set | None = None
    during: Set | None = None
    after: Set | None = None

    async def prepare(self, rig: Rig) -> None:
        rig.engine.behaviour = complete
        await rig.publish(rig.entry(serving=self.serving, **self.entry))
        if self.before:
            await self.before(rig)


def scene(name: str, status: int | None, code: str | None, serving: dict[str, Any] | None = D, **more: Any) -> Scene:
    own = {k: more.pop(k) for k in ("who", "retry_after", "ask", "before", "during", "after") if k in more}
    return Scene(name, status, code, serving=serving, entry=more, **own)


def _behave(behaviour: Any) -> Set:
    async def set_(rig: Rig) -> None:
        rig.engine.behaviour = behaviour

    return set_


async def _streaming(rig: Rig) -> None:
    number = len(rig.engine.seen)
    await rig.engine.next(number or 1)
    await asyncio.sleep(0.1)


async def _no_engine(rig: Rig) -> None:
    await rig.engine.stop()


async def _engine_again(rig: Rig) -> None:
    await rig.engine.start()


async def _nonsense(seen: Seen) -> None:
    await seen.send(b"nonsense\r\n\r\n")


async def _dies(seen: Seen) -> None:
    await seen.send(SSE_HEAD)
    await seen.chunk(token())
    await asyncio.sleep(0.05)


async def _revoke(rig: Rig) -> None:
    rig.gateways.set_keys(rig.keys(without="tomas"))


async def _keys_again(rig: Rig) -> None:
    rig.gateways.set_keys(rig.keys())
    await rig.until(lambda: len(rig.gateway.keys) == len(rig.keys()))


async def _cut(rig: Rig) -> None:
    rig.gateways.cut("main", 9)


async def _known_again(rig: Rig) -> None:
    rig.gateway.keys.replace(rig.keys())


async def _full(rig: Rig) -> None:
    """One request at once with one key, and it runs."""
    rig.gateways.set_settings({"limits": {"main": (0, 1)}})
    await rig.until(lambda: rig.gateway.running.limits.limited("main"))
    rig.engine.behaviour = stream_for_ever
    _, _hold.writer = await rig.open(chat(True))
    await rig.until(lambda: rig.gateway.running.in_flight.get("main") == 1)


async def _not_full(rig: Rig) -> None:
    _hold.writer.close()
    rig.gateways.set_settings({"limits": {}})
    await rig.until(lambda: not rig.gateway.running.limits.limited("main"))
    await rig.drained()


async def _keys_unknown(rig: Rig) -> None:
    rig.gateway.keys.replace({})
    rig.gateway.keys.known = False


async def _stopping(rig: Rig) -> None:
    rig.gateway.refusing = True


async def _not_stopping(rig: Rig) -> None:
    rig.gateway.refusing = False


class _hold:
    """The connection that takes the only place."""

    writer: asyncio.StreamWriter


STREAM = Ask(stream=True)
SCENES = (
    scene("unknown key", 401, "invalid_api_key", who="eve"),
    scene("no key known yet", 503, "not_ready", retry_after="5", before=_keys_unknown, after=_known_again),
    scene("somebody else's reservation", 403, "gpu_reserved", A, steps=WINDOW),
    scene("own reservation, loading", 503, "model_loading", None, who="maya", steps=WINDOW, phase="loading",
          loading=LOADING, retry_after="8"),
    scene("own reservation, switching", 503, "model_switching", D, who="maya", steps=WINDOW, phase="draining", open=False,
          switching=SWITCHING, retry_after="30"),
    scene("own reservation, failed", 503, "model_failed", None, who="maya", steps=WINDOW, phase="retry_wait",
          failure=FAILURE, retry_after="20"),
    scene("own reservation, exclusive", 503, "gpu_exclusive", None, who="maya", steps=[reserved(START, END, None)]),
    scene("own reservation, GPU held by a stranger", 503, "gpu_busy", None, who="maya", steps=WINDOW, **BLOCKED),
    scene("free, loading", 503, "model_loading", None, steps=[step(START, A)], phase="loading", loading=LOADING,
          retry_after="8"),
    scene("free, switching", 503, "model_switching", D, steps=[step(START, A)], phase="draining", open=False,
          switching=SWITCHING, retry_after="30"),
    scene("free, failed", 503, "model_failed", None, steps=[step(START, A)], phase="retry_wait", failure=FAILURE,
          retry_after="20"),
    scene("free, nothing loaded", 503, "no_model", None, steps=[step(START, None)]),
    scene("free, GPU held by a stranger", 503, "gpu_busy", None, steps=[step(START, A)], **BLOCKED),
    scene("a model that is not here", 404, "model_not_found", ask=Ask("nonsense")),
    scene("a model that this channel has not", 404, "model_not_found", ask=Ask("nonsense", channel="main")),
    scene("a channel that is not here", 404, "channel_not_found", ask=Ask(channel="nowhere")),
    scene("a path that is not here", 404, "not_found", ask=Ask(path="/fine_tuning/jobs", method="get")),
    scene("the wrong method", 405, "method_not_allowed", ask=Ask(path="/embeddings", method="get")),
    scene("a model that is no text", 400, "invalid_request", ask=Ask(7)),
    scene("no model in the first megabytes", 413, "body_too_large", ask=Ask(more=2_000_000, path="/chat/completions")),
    scene("too many at once with this key", 429, "too_many_requests", before=_full, after=_not_full, retry_after="1"),
    scene("engine not there", 503, "model_failed", before=_no_engine, after=_engine_again, retry_after="5"),
    scene("engine talks nonsense", 502, "model_failed", before=_behave(_nonsense), retry_after="5"),
    scene("gateway being replaced", 503, "restarting", before=_stopping, after=_not_stopping, retry_after="1"),
    scene("stream cut at the drain's end", None, "model_switching", ask=STREAM, before=_behave(stream_for_ever), during=_cut),
    scene("stream of a key that is revoked", None, "invalid_api_key", ask=STREAM, before=_behave(stream_for_ever),
          during=_revoke, after=_keys_again),
    scene("engine gone in mid-stream", None, None, ask=STREAM, before=_behave(_dies)),
)  # fmt: skip


async def play(rig: Rig, scene: Scene, client: Any) -> Any:
    """One client through one scene."""
    await scene.prepare(rig)
    rig.engine.seen.clear()
    asking = asyncio.create_task(asyncio.to_thread(client.ask, rig.url, f"sk-ss-{scene.who}", scene.ask))
    if scene.during:
        await _streaming(rig)
        await scene.during(rig)
    try:
        return await asking
    finally:
        if scene.after:
            await scene.after(rig)


async def until_ready(rig: Rig, client: Any, seconds: float, retries: int = 2) -> Any:
    """A channel that loads and says how long; it is ready then. What the client makes of it."""
    loading = {**LOADING, "ready_at_ms": NOW + int(seconds * 1000)}
    await rig.publish(rig.entry(phase="loading", loading=loading, steps=[step(START, A)]))
    rig.engine.behaviour = complete
    before = refused_as_loading(rig)
    asking = asyncio.create_task(asyncio.to_thread(client.ask, rig.url, "sk-ss-tomas", Ask(retries=retries)))
    if seconds < 30:
        await rig.until(lambda: refused_as_loading(rig) > before)
        await rig.publish(rig.entry(serving=A, phase="ready", steps=[step(START, A)]))
    return await asking


def refused_as_loading(rig: Rig) -> int:
    """Requests so far, as the gateway has counted them."""
    return sum(map(int, re.findall(r'outcome="model_loading",status="503"} (\d+)', rig.gateway.metrics_text())))

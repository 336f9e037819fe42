"""Engines that hang or are broken while they serve, with real processes: found out, stopped, named, started anew."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import liveness
from agent.core import alive
from agent.core.alive import Limits
from agent.core.types import Launch, Step
from agent.liveness import Liveness, Traffic
from agent.runtime import vitals
from tests.agent.runtime.runtimes import end_all
from tests.agent.test_channels_real import Channel, now
from tests.fakes.gateway_rig import Rig
from tests.parts import pid_alive

pytestmark = pytest.mark.slow  # real processes

SOON, NEVER = 1.0, 60.0  # until an engine counts as hung: where it does not, a slow machine must not make it so


@pytest.fixture
def play(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[..., Awaitable[None]]], None]]:
    monkeypatch.setattr(alive, "HEALTH_BAD", 0.5)
    monkeypatch.setattr(alive, "DEVICE_SILENT", 0.3)
    monkeypatch.setattr(liveness, "HEALTH_SECONDS", 0.0)
    monkeypatch.setattr(vitals, "BUSY_SHARE", 0.5)  # looks are 0.1 s apart here: a health check is a tenth of that

    def run(story: Callable[[Channel, Liveness], Awaitable[None]], hung: float) -> None:
        async def main() -> None:
            channel = Channel(short_dir)
            looker = Liveness(channel.task, channel.runtime, now, Limits(hung, probe=0.5), pause=0.1)
            looking = asyncio.ensure_future(looker.run())
            try:
                await story(channel, looker)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                await channel.end()

        asyncio.run(main())

    yield run
    end_all(short_dir)


def serve(channel: Channel, *args: str) -> None:
    launch = Launch("id-a", "m", "a", "simulated", args, load_seconds=0.1)
    channel.task.set_steps((Step(now() - 1000, launch, "default"),), channel.timing)


async def failed(channel: Channel, seconds: float = 60) -> dict[str, Any]:
    end = asyncio.get_running_loop().time() + seconds
    while not (failure := channel.task.status()["failure"]):
        assert asyncio.get_running_loop().time() < end, channel.task.status()
        await asyncio.sleep(0.01)
    return failure


@pytest.mark.parametrize(
    ("args", "category", "words", "detail"),
    [
        (("--sim-hang",), "hung", "has answered no request", ""),
        (
            ("--sim-cuda-error-after", "0.2"),
            "crashed",
            "error of the GPU or its driver",
            "CUDA error: an illegal memory",
        ),
        (("--sim-sick-after", "0.2"), "crashed", "health check has failed", "HTTP 500: simulated sickness"),
        (("--sim-closed-after", "0.2"), "crashed", "health check has failed", "nobody listens at its address"),
    ],
)
def test_found_out_stopped_and_started_anew(
    play: Callable[..., None], args: tuple[str, ...], category: str, words: str, detail: str
) -> None:
    async def story(channel: Channel, looker: Liveness) -> None:
        serve(channel, *args)
        first = await channel.until("ready")
        failure = await failed(channel)
        assert (failure["category"], failure["count"]) == (category, 1)
        assert words in failure["reason"]
        assert detail in failure["detail"]
        assert failure["retry_at_ms"] > failure["last_ms"]
        again = await channel.until("ready")
        assert again["engine_pid"] != first["engine_pid"]
        assert not pid_alive(first["engine_pid"])
        assert [x.failed for x in channel.runtime.logs.launches()] == [True, False], "its output is kept"

    play(story, SOON if category == "hung" else NEVER)


def test_a_stopped_process_answers_not_even_its_health_check(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "HEALTH_SECONDS", 0.3)

    async def story(channel: Channel, looker: Liveness) -> None:
        serve(channel)
        first = await channel.until("ready")
        os.kill(first["engine_pid"], signal.SIGSTOP)
        failure = await failed(channel)
        assert failure["category"] == "hung"
        assert "neither requests nor its health check" in failure["reason"]
        await channel.until("ready")
        assert not pid_alive(first["engine_pid"])

    play(story, SOON)


def test_a_healthy_engine_and_a_slow_one_are_left_alone(play: Callable[..., None]) -> None:
    async def story(channel: Channel, looker: Liveness) -> None:
        serve(channel, "--sim-first-token-ms", "300")
        first = await channel.until("ready")
        await Rig.until(lambda: looker._signs.answers, 60)
        status = channel.task.status()
        assert (status["phase"], status["engine_pid"]) == ("ready", first["engine_pid"])
        # Nothing is looked at once it is gone.
        channel.task.set_steps((Step(now() - 1000, None, "idle"),), channel.timing)
        await channel.until("off")
        await Rig.until(lambda: looker._vitals is None)

    play(story, NEVER)


def test_traffic_counts_what_the_engine_answered() -> None:
    traffic = Traffic()
    rows = [
        {"outcome": "engine_error", "status": 500, "at_ms": 1},
        {"outcome": "engine_gone", "status": 502, "at_ms": 2},
        {"outcome": "own", "status": 503, "at_ms": 3},
        {"outcome": "client_gone", "status": 200, "at_ms": 4},
    ]
    traffic.take(rows)
    assert (traffic.answered_at, traffic.failed_in_a_row) == (0, 2)
    traffic.take([{"outcome": "engine_error", "status": 400, "at_ms": 5}])
    assert (traffic.answered_at, traffic.failed_in_a_row) == (5, 0)
    traffic.take([{"outcome": "ok", "status": 200, "at_ms": 9}, {"outcome": "ok", "status": 200, "at_ms": 7}])
    assert traffic.answered_at == 9

"""The owner task with real processes: its shim and the simulated engine; times are the machine's own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.channels import ChannelTask
from agent.core.types import Launch, Step, Timing
from tests.agent.runtime.runtimes import end_all, runtime
from tests.parts import pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes


def now() -> int:
    return time.time_ns() // 1_000_000


def target(name: str, load: float = 0.2, *more: str) -> Launch:
    args = ("--sim-load-seconds", str(load), *more)
    return Launch(f"id-{name}", "m", name, "simulated", args, load_seconds=load)


class Door:
    """A gateway with nothing running."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Any]] = []

    async def close(self, channel: str) -> int:
        return 0

    async def wait_drained(self, channel: str) -> None:
        return None

    def in_flight(self, channel: str) -> int:
        return 0

    def cut(self, channel: str, retry_after: int) -> None:
        return None

    def publish(self, channel: str, entry: Any) -> None:
        self.entries.append((now(), entry))


class Channel:
    """A task over a real runtime in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.door = runtime(folder), Door()
        self.kept: dict[str, Any] | None = None
        self.loads: list[dict[str, Any]] = []
        self.stopped: list[int] = []
        stop = self.runtime.stop

        async def noted(process: Any, timeout: float) -> bool:
            self.stopped.append(now())
            return await stop(process, timeout)

        self.runtime.stop = noted  # type: ignore[method-assign]
        self.timing = Timing(stop_timeout=3, drain=2, retry_min=0.5, retry_max=2)
        self.begin()

    def begin(self) -> None:
        self.task = ChannelTask(
            "main",
            runtime=self.runtime,
            door=self.door,
            now=now,
            load_retry=lambda: self.kept,
            save_retry=lambda kept: setattr(self, "kept", kept),
            on_load_result=self.loads.append,
        )
        self.running = asyncio.ensure_future(self.task.run())

    async def until(self, phase: str, name: str | None = None, seconds: float = 20.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            status = self.task.status()
            if status["phase"] == phase and (name is None or status["running_preset"] == name):
                return status
            assert time.monotonic() < end, status
            await asyncio.sleep(0.005)

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
def play(short_dir: Path) -> Iterator[Callable[[Callable[[Channel], Awaitable[None]]], None]]:
    def run(story: Callable[[Channel], Awaitable[None]]) -> None:
        async def main() -> None:
            channel = Channel(short_dir)
            try:
                await story(channel)
            finally:
                await channel.end()

        asyncio.run(main())

    yield run
    end_all(short_dir)


def test_a_switch_is_on_time_and_short(play) -> None:
    async def story(channel: Channel) -> None:
        channel.task.set_steps((Step(now(), target("a"), "default"),), channel.timing)
        await channel.until("ready", "a")
        at = now() + 300
        channel.task.set_steps(
            (Step(0, target("a"), "reserved"), Step(at, target("b", 0.5), "default")), channel.timing
        )
        await channel.until("ready", "b")
        ready = now()
        late, load = channel.stopped[0] - at, channel.loads[-1]["seconds"]
        freed = next(when for when, entry in channel.door.entries if when >= at and entry["phase"] == "freeing")
        beyond = ready - at - (freed - channel.stopped[0]) - load * 1000
        print(f"SIGTERM {late} ms after the instant; {beyond:.0f} ms beyond stop and load ({load:.2f} s)")
        assert 0 <= late < 1000, "100 ms on a quiet machine"
        assert beyond < 2500, "250 ms on a quiet machine"

    play(story)


def test_killed_engine_is_a_failure_and_comes_back(play) -> None:
    async def story(channel: Channel) -> None:
        channel.task.set_steps((Step(now(), target("a"), "default"),), channel.timing)
        first = await channel.until("ready")
        os.kill(first["engine_pid"], signal.SIGKILL)
        failed = await channel.until("retry_wait")
        assert failed["failure"]["category"] in ("killed_by_kernel", "crashed")
        second = await channel.until("ready")
        assert second["engine_pid"] != first["engine_pid"]
        assert not pid_alive(first["engine_pid"])
        assert [r["ok"] for r in channel.loads] == [True, True]

    play(story)


def test_a_new_agent_adopts_the_same_engine(play, short_dir) -> None:
    async def story(channel: Channel) -> None:
        steps = (Step(now(), target("a"), "default"),)
        channel.task.set_steps(steps, channel.timing)
        before = await channel.until("ready")
        await channel.end()
        channel.runtime = runtime(short_dir)
        channel.begin()
        channel.task.set_steps(steps, channel.timing)
        after = await channel.until("ready")
        assert after["engine_pid"] == before["engine_pid"]
        assert channel.stopped == []
        assert channel.door.entries[-1][1]["serving"]["socket"]

    play(story)


def test_an_engine_that_died_while_no_agent_ran_is_a_failure(play, short_dir) -> None:
    """Counted once, though the agent starts twice; the target is waited for, not started at once."""

    async def story(channel: Channel) -> None:
        steps = (Step(now(), target("a"), "default"),)
        channel.timing = Timing(stop_timeout=3, drain=2, retry_min=3, retry_max=6)
        channel.task.set_steps(steps, channel.timing)
        before = await channel.until("ready")
        await channel.end()
        os.kill(before["engine_pid"], signal.SIGKILL)
        wait_until(lambda: not pid_alive(before["engine_pid"]))
        for _ in range(2):
            channel.runtime = runtime(short_dir)
            channel.begin()
            channel.task.set_steps(steps, channel.timing)
            failed = await channel.until("retry_wait")
            assert failed["failure"]["count"] == 1
            assert failed["failure"]["category"] in ("killed_by_kernel", "crashed")
            await channel.end()
        channel.begin()
        channel.task.set_steps(steps, channel.timing)
        after = await channel.until("ready")
        assert after["engine_pid"] != before["engine_pid"]

    play(story)


def test_a_crash_while_loading_brings_the_fallback(play) -> None:
    async def story(channel: Channel) -> None:
        broken = target("a", 0.1, "--sim-oom")
        step = Step(now(), broken, "reserved", fallback=target("d"), reservation_id="r1")
        channel.task.set_steps((step,), channel.timing)
        status = await channel.until("ready", "d")
        assert (status["fallback"], status["failure"]["category"]) == (True, "out_of_memory")
        await channel.until("stopping", "d")  # the retry
        await channel.until("ready", "d")
        assert channel.task.status()["failure"]["count"] >= 2

    play(story)

"""Reading ahead with a real helper: begun, finished, stopped; never while an engine loads or memory is short."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import ahead
from agent.ahead import ReadAhead, read_memory
from agent.core.ahead import Memory
from agent.core.types import Launch, Step
from agent.runtime.models import ModelIndex
from agent.settings import ChannelConfig
from tests.parts import pid_alive, until

GIB = 1 << 30
PLENTY = Memory(64 * GIB, 60 * GIB)
SHORT = Memory(64 * GIB, 3 * GIB)


class World:
    """A channel that serves `a`, with `b` planned in a minute."""

    def __init__(self, folder: Path) -> None:
        for name in ("a", "b", "c"):
            (folder / f"{name}.gguf").write_bytes(b"GGUF" + bytes(1 << 20))
        index = ModelIndex([ChannelConfig(name="main", model_folders=[folder], engines=["llama.cpp"])])
        index.scan()
        self.now, self.memory = 1_800_000_000_000, PLENTY
        process = SimpleNamespace(model="a", engine_pid=os.getpid())
        self.task: Any = SimpleNamespace(steps=(), process=process, view=SimpleNamespace(phase="ready"))
        self.plan("b")
        self.reader = ReadAhead({"main": self.task}, index, lambda: self.now, 0.02, lambda _: self.memory)

    def plan(self, model: str) -> None:
        launches = [Launch(f"id-{m}", m, None, "llama.cpp") for m in ("a", model)]
        self.task.steps = tuple(Step(self.now + at, x, "default") for at, x in zip((-1, 60_000), launches, strict=True))

    @property
    def reading(self) -> str:
        return self.reader._reading.model.name if self.reader._reading else ""


@pytest.fixture(autouse=True)
def small_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST_BYTES", 1 << 10)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A helper that goes on until it is stopped."""
    start = asyncio.create_subprocess_exec

    async def instead(*args: str, **more: Any) -> asyncio.subprocess.Process:
        return await start("/bin/sleep", "600", **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)


def play(folder: Path, story: Callable[[World], Any]) -> None:
    async def main() -> None:
        world = World(folder)
        running = asyncio.ensure_future(world.reader.run())
        try:
            await story(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_the_next_model_is_read_once(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        await until(lambda: w.reading == "b")
        await until(lambda: w.reader._done)
        await asyncio.sleep(0.2)
        assert w.reading == ""
        assert [Path(path).name for path, _, _ in w.reader._done] == ["b.gguf"]
        w.plan("c")
        await until(lambda: len(w.reader._done) == 2)

    play(tmp_path, story)


@pytest.mark.usefixtures("slow")
def test_stopped_when_the_plan_changes_memory_runs_short_or_an_engine_loads(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        async def begun(model: str) -> int:
            await until(lambda: w.reading == model)
            return w.reader._reading.helper.pid  # type: ignore[union-attr]

        first = await begun("b")
        w.plan("c")
        second = await begun("c")
        await until(lambda: not pid_alive(first))
        w.task.view.phase = "loading"
        await until(lambda: w.reading == "")
        await until(lambda: not pid_alive(second))
        w.task.view.phase = "ready"
        third = await begun("c")
        w.memory = SHORT
        await until(lambda: w.reading == "")
        await until(lambda: not pid_alive(third))
        w.memory = PLENTY
        await asyncio.sleep(0.2)
        assert w.reading == "", "not again at once"

    play(tmp_path, story)


@pytest.mark.usefixtures("slow")
def test_not_begun_without_room_and_ended_with_the_agent(tmp_path: Path) -> None:
    helper = 0

    async def story(w: World) -> None:
        nonlocal helper
        w.memory = SHORT
        await asyncio.sleep(0.2)
        assert w.reading == ""
        w.memory = PLENTY
        await until(lambda: w.reading == "b")
        helper = w.reader._reading.helper.pid  # type: ignore[union-attr]

    play(tmp_path, story)
    assert not pid_alive(helper)


def test_this_machines_memory() -> None:
    said = read_memory([os.getpid()])
    assert 0 < said.available <= said.total
    assert 0 < said.mapped < 1 * GIB

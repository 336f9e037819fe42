"""Faster switches: while the present model still serves, the next one's files are read into free memory.

One reader a node, for the channels share its disk. It begins when the plan loads another model in the next minutes and
free memory holds it; it is ended when memory runs short, the plan changes, or an engine of this node loads (that one
needs the disk). What is read is the page cache's: nothing is taken from anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.channels import ChannelTask
from agent.core.ahead import Memory, next_model
from agent.core.types import Millis
from agent.every import every
from agent.interfaces import Process
from agent.runtime import proc
from agent.runtime.models import FoundModel, ModelIndex

log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
AGAIN_SECONDS = 1800.0  # read once, it may have been displaced after so long
LEAST_BYTES = 64 << 20  # less is read in no time
MEMINFO = Path("/proc/meminfo")


@dataclass(slots=True)
class Reading:
    channel: str
    model: FoundModel
    helper: asyncio.subprocess.Process
    begun: float


class ReadAhead:
    """`run` until cancelled; the helper goes with it."""

    def __init__(
        self,
        channels: Mapping[str, ChannelTask],
        models: ModelIndex,
        now: Callable[[], Millis],
        pause: float = LOOK_SECONDS,
        memory: Callable[[list[int]], Memory] | None = None,
    ) -> None:
        self._channels, self._models, self._now, self._pause = channels, models, now, pause
        self._memory = memory or read_memory
        self._reading: Reading | None = None
        self._done: dict[tuple[str, int, int], float] = {}
        self._said: tuple[str, str] = ("", "")

    async def run(self) -> None:
        try:
            await every(self._pause, self._look, "reading ahead failed")
        finally:
            await self._stop("the agent ends")

    async def _look(self) -> None:
        memory = await asyncio.to_thread(self._memory, [p.engine_pid for p in self._processes()])
        wanted = self._wanted()
        if self._reading is not None:
            await self._look_after(self._reading, wanted, memory)
        if self._reading is None and wanted is not None:
            await self._begin(*wanted, memory)

    async def _look_after(self, reading: Reading, wanted: tuple[str, FoundModel] | None, memory: Memory) -> None:
        if reading.helper.returncode is not None:
            seconds = time.monotonic() - reading.begun
            self._reading = None
            self._done[_key(reading.model)] = time.monotonic()
            log.info(
                "read ahead channel=%s model=%s bytes=%s seconds=%.1f status=%s",
                reading.channel, reading.model.name, reading.model.size_bytes, seconds, reading.helper.returncode,
            )  # fmt: skip
        elif memory.spare <= 0:
            self._done[_key(reading.model)] = time.monotonic()  # not begun again at once
            await self._stop("memory runs short")
        elif wanted is None or _key(wanted[1]) != _key(reading.model):
            await self._stop("the plan is another, or an engine loads")

    async def _begin(self, channel: str, model: FoundModel, memory: Memory) -> None:
        if memory.spare < model.size_bytes:
            if self._said != (channel, model.path):
                self._said = channel, model.path
                log.info(
                    "not read ahead, free memory does not hold it channel=%s model=%s bytes=%s spare=%s",
                    channel, model.name, model.size_bytes, memory.spare,
                )  # fmt: skip
            return
        helper = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent.runtime.read_ahead", *model.files,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._reading = Reading(channel, model, helper, time.monotonic())
        log.info("reading ahead channel=%s model=%s bytes=%s", channel, model.name, model.size_bytes)

    async def _stop(self, why: str) -> None:
        reading, self._reading = self._reading, None
        if reading is None or reading.helper.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            reading.helper.kill()
        log.info("reading ahead stopped channel=%s model=%s why=%r", reading.channel, reading.model.name, why)
        with contextlib.suppress(TimeoutError):  # one that hangs in a disk goes when that answers
            async with asyncio.timeout(2):
                await reading.helper.wait()

    def _wanted(self) -> tuple[str, FoundModel] | None:
        """The channel and model of the earliest next switch; none while an engine loads."""
        if any(task.view.phase in ("loading", "freeing") for task in self._channels.values()):
            return None
        now = self._now()
        for name, task in self._channels.items():
            running = task.process.model if task.process else None
            launch = next_model(task.steps, running, now)
            model = self._models.find(launch.model, name) if launch is not None else None
            if model is None or model.incomplete or model.size_bytes < LEAST_BYTES:
                continue
            if time.monotonic() < self._done.get(_key(model), float("-inf")) + AGAIN_SECONDS:
                continue
            return name, model
        return None

    def _processes(self) -> list[Process]:
        return [task.process for task in self._channels.values() if task.process is not None]


def read_memory(pids: list[int]) -> Memory:
    """Of this machine, and what the engines' trees have mapped of files."""
    fields = {}
    for line in MEMINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    mapped = sum(proc.mapped_bytes(s.pid) for s in proc.tree(*pids)) if pids else 0
    return Memory(fields["MemTotal"], fields.get("MemAvailable", fields["MemFree"]), mapped)


def _key(model: FoundModel) -> tuple[str, int, int]:
    return model.path, model.size_bytes, model.stamp

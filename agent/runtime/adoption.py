"""Finding the engine of a channel again after the agent's own restart, and ending engines from outside the agent.

An engine is known by boot id + pid + start ticks of its shim and itself. What carries the channel's marker and is not of
that launch is left over from a shim that was killed: it is ended here, before anything is started beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agent.core.types import Seconds
from agent.runtime import records, stopping
from agent.runtime.records import ChannelPaths, ExitRecord, RunRecord

log = logging.getLogger(__name__)
SHIM_FINISHES = 2.0


@dataclass(frozen=True, slots=True)
class Found:
    """`record`: the last start of this boot; `alive`: it runs and was not being stopped; else `ended` says how it ended
    while nobody watched (None where nothing says: its shim was killed)."""

    record: RunRecord | None = None
    alive: bool = False
    ended: ExitRecord | None = None
    stopping: bool = False  # SIGTERM had been sent; its shim goes on with it


def look(paths: ChannelPaths) -> Found:
    """What runs of this channel, leftovers ended. Blocks for 7 s at most, normally for milliseconds."""
    record = records.read_run(paths)
    if record is None or not record.this_boot:
        _told(stopping.clear_now(paths, None))
        return Found()
    launch_id = record.process.launch_id
    if record.shim_alive and records.stop_asked(paths, launch_id):
        return Found(record, stopping=True)
    if record.shim_alive and not record.engine_alive:
        _wait(record, SHIM_FINISHES)  # it is clearing away and about to write its exit record
    if record.shim_alive and record.engine_alive:
        _told(stopping.clear_now(paths, record, keep_launch=launch_id))
        return Found(record, alive=True)
    _told(stopping.clear_now(paths, record))
    return Found(record, ended=records.read_exit(paths, launch_id))


async def stop_engine(paths: ChannelPaths, timeout: Seconds) -> list[int]:
    """Stops the channel's engine, whoever started it and also where it is being stopped already; the pids that are left.
    For when no owner task has the channel."""
    record = await asyncio.to_thread(records.read_run, paths)
    if record is not None and record.shim_alive:
        await stopping.stop(paths, record, timeout)
    else:
        begun = time.monotonic()
        await stopping.clear(paths, record, kill_at=begun, give_up=begun + stopping.GIVE_UP)
    return [s.pid for s in await asyncio.to_thread(stopping.leftovers, paths.root, record)]


async def stop_undeclared(state_dir: Path, declared: Collection[str], timeout: Seconds) -> dict[str, list[int]]:
    """Stops what still runs of channels that the node's file no longer has, for it holds their GPUs: {name: pids left}."""
    found = [name for name in await asyncio.to_thread(still_running, state_dir) if name not in declared]
    for name in found:
        log.warning("stopping the engine of a channel that is no longer declared channel=%s", name)
    folders = [ChannelPaths(state_dir.absolute() / "channels" / name) for name in found]
    answers = await asyncio.gather(*(stop_engine(paths, timeout) for paths in folders))
    return dict(zip(found, answers, strict=True))


def drop_caches(state_dir: Path, declared: Collection[str]) -> None:
    """Removes what engines compiled on channels that the node's file no longer has; logs and records stay."""
    running = still_running(state_dir)
    for paths in channel_folders(state_dir.absolute()):
        if paths.root.name not in declared and paths.root.name not in running and paths.cache.is_dir():
            log.info("engine cache removed, its channel is no longer declared channel=%s", paths.root.name)
            shutil.rmtree(paths.cache, ignore_errors=True)


def still_running(state_dir: Path) -> dict[str, list[int]]:
    """Pids by channel, declared or not, of whatever runs, also on its way down. Blocks while it reads /proc."""
    found = {
        paths.root.name: [s.pid for s in stopping.leftovers(paths.root, records.read_run(paths))]
        for paths in channel_folders(state_dir.absolute())
    }
    return {name: pids for name, pids in found.items() if pids}


def channel_folders(state_dir: Path) -> list[ChannelPaths]:
    """Every channel that has ever run something here, also those that are no longer declared."""
    try:
        names = sorted(os.listdir(state_dir / "channels"))
    except FileNotFoundError:
        return []
    return [ChannelPaths(state_dir / "channels" / n) for n in names]


def _wait(record: RunRecord, seconds: float) -> None:
    end = time.monotonic() + seconds
    while record.shim_alive and time.monotonic() < end:
        time.sleep(0.01)


def _told(pids: list[int]) -> None:
    if pids:
        log.warning("ended what a dead engine had left behind pids=%s", pids)

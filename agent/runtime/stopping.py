"""Ending an engine with all it started, and what was left by shims that were killed.

The shim does the stopping; this asks it, waits, and takes over where it cannot (killed, frozen). What it left behind is
found by the channel's marker in the environment, whatever its name, session or parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from agent.core.types import Seconds
from agent.runtime import proc, records
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER, ChannelPaths, RunRecord

log = logging.getLogger(__name__)
SHIM_GRACE = 5.0  # for the shim's own work beyond the time-out
GIVE_UP = 30.0  # after SIGKILL


async def stop(paths: ChannelPaths, record: RunRecord, timeout: Seconds) -> bool:
    """SIGTERM to all at once, SIGKILL after `timeout`; False where something is still there 30 s later."""
    launch_id = record.process.launch_id
    begun = time.monotonic()
    try:
        records.ask_stop(paths, launch_id, timeout)
    except OSError as err:  # the shim then takes the time-out of the start
        log.warning("stop request not written launch=%s error=%s", launch_id, err)
    if record.shim_alive:
        proc.send(record.process.shim_pid, record.shim_ticks, signal.SIGTERM)
        await wait_gone(record.process.shim_pid, record.shim_ticks, timeout + SHIM_GRACE)
    if not record.shim_alive and records.read_exit(paths, launch_id) is not None:
        return True
    log.warning("shim did not finish the stop launch=%s shim=%d", launch_id, record.process.shim_pid)
    return await clear(paths, record, kill_at=begun + timeout, give_up=begun + timeout + GIVE_UP)


async def clear(paths: ChannelPaths, record: RunRecord | None, kill_at: float, give_up: float) -> bool:
    """Ends whatever of the channel still runs, without the shim's help. Times are of time.monotonic()."""
    signalled: set[tuple[int, int]] = set()
    pause = 0.02
    while True:
        left = await asyncio.to_thread(leftovers, paths.root, record)
        if not left:
            return True
        now = time.monotonic()
        if now >= give_up:
            log.error("processes cannot be ended pids=%s", [s.pid for s in left])
            return False
        if now >= kill_at:
            proc.send_all(left, signal.SIGKILL)
        else:
            fresh = [s for s in left if (s.pid, s.ticks) not in signalled]
            proc.send_all(fresh, signal.SIGTERM)
            signalled |= {(s.pid, s.ticks) for s in fresh}
        await asyncio.sleep(pause)
        pause = min(0.25, pause * 1.5)


def clear_now(paths: ChannelPaths, record: RunRecord | None, keep_launch: str = "", seconds: float = 5.0) -> list[int]:
    """SIGKILL to leftovers of the channel other than `keep_launch`'s; the pids that were found. Blocks until they are
    gone, `seconds` at most."""
    end, found = time.monotonic() + seconds, set()
    while left := leftovers(paths.root, record, keep_launch):
        found |= {s.pid for s in left}
        proc.send_all(left, signal.SIGKILL)
        if time.monotonic() > end:
            log.error("processes cannot be ended pids=%s", [s.pid for s in left])
            break
        time.sleep(0.02)
    return sorted(found)


def leftovers(root: Path, record: RunRecord | None, keep_launch: str = "") -> list[proc.Stat]:
    """All that runs of a channel: by its marker, and below the recorded shim and engine."""
    found = {s.pid: s for s in proc.marked(CHANNEL_MARKER, str(root))}
    if record is not None and record.process.launch_id != keep_launch:
        roots = [record.process.shim_pid] if record.shim_alive else []
        roots += [record.process.engine_pid] if record.engine_alive else []
        found |= {s.pid: s for s in (proc.tree(*roots) if roots else [])}
    if keep_launch:
        keep = f"{LAUNCH_MARKER}={keep_launch}".encode()
        found = {pid: s for pid, s in found.items() if keep not in _environ(pid)}
    return list(found.values())


async def wait_gone(pid: int, ticks: int, timeout: Seconds | None = None) -> bool:
    """Until that process has ended (a zombie has); False after `timeout`. An adopted one is no child: hence a pidfd."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if not proc.alive(pid, ticks):
            return True
        loop.add_reader(fd, ended.set)
        async with asyncio.timeout(timeout):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return True


def _environ(pid: int) -> list[bytes]:
    try:
        return proc.environ(pid)
    except OSError:
        return []

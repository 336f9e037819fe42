"""Starting a shim and hearing from it that the engine runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

from agent.core.types import Seconds
from agent.engines.base import Prepared
from agent.interfaces import Process, StartFailed, Trouble
from agent.runtime import logs, proc
from agent.runtime.files import write_json
from agent.runtime.logs import LaunchLog, LogFolder
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER, ChannelPaths, RunRecord

log = logging.getLogger(__name__)
SHIM = Path(__file__).with_name("shim.py")
HANDSHAKE = 15.0
LEAST_FREE = 1 << 20  # less is no room for the few small files of a start
FULL = "No space left on device"


def make_room(paths: ChannelPaths, socket: Path, folder: LogFolder, note: LaunchLog) -> None:
    """Folders, a free path for the socket, and the note of the start; on a full disk our own old logs go. Raises
    StartFailed."""
    try:
        paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _free(paths.root) < LEAST_FREE and folder.make_room():
            log.warning("disk full: output of earlier launches removed folder=%s", paths.logs)
        socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        socket.unlink(missing_ok=True)
        folder.begin(note)
    except OSError as err:
        raise StartFailed(_cannot(str(err), paths.root)) from None


def remove_folders(paths: ChannelPaths, keep: str) -> None:
    """Homes and temporary folders of launches other than `keep`; in a thread, for they may be large."""
    old: list[Path] = []
    for folder, kept in ((paths.root / "home", keep), (paths.root / "tmp", keep[-8:])):
        with contextlib.suppress(FileNotFoundError):
            old += [p for p in folder.iterdir() if p.name != kept]
    if old:
        threading.Thread(target=_remove, args=(old,), name="remove-folders", daemon=True).start()


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _free(path: Path) -> int:
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize


def _cannot(error: str, folder: Path) -> Trouble:
    if FULL in error:
        words = f"the disk of {folder} is full: free some space on the node; the next try starts it"
        return Trouble("crashed", words, error)
    return Trouble("crashed", f"the engine could not be started: {error or 'its shim ended without a word'}", error)


async def spawn(
    paths: ChannelPaths, process: Process, prepared: Prepared, extra: dict[str, Any], stop_timeout: Seconds
) -> tuple[RunRecord, subprocess.Popen[bytes]]:
    """Starts the engine of `process` (pids still 0) under a shim. Raises StartFailed; cancelled: the shim is killed, and
    its engine dies with it."""
    launch_id = process.launch_id
    spec = paths.spec(launch_id)
    try:
        for folder in (paths.home(launch_id), paths.tmp(launch_id), paths.cache):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in (paths.exit, paths.ready, paths.stop):
            old.unlink(missing_ok=True)
        write_json(spec, _spec(paths, process, prepared, extra, stop_timeout))
        shim = _popen(paths, launch_id, spec)
    except OSError as err:
        raise StartFailed(_cannot(str(err), paths.root)) from None
    try:
        said = await _hear(shim)
    except BaseException:  # cancelled as well: nobody would know of this shim
        shim.kill()
        shim.wait()
        raise
    finally:
        spec.unlink(missing_ok=True)
    if "engine_pid" not in said:
        await asyncio.to_thread(shim.wait)
        raise StartFailed(_not_started(str(said.get("error", "")), prepared, paths.root))
    shim_stat, engine_stat = proc.stat(shim.pid), proc.stat(said["engine_pid"])
    values = {f.name: getattr(process, f.name) for f in fields(Process)}
    record = RunRecord(
        process=Process(**{**values, "shim_pid": shim.pid, "engine_pid": said["engine_pid"]}),
        boot_id=proc.boot_id(),
        shim_ticks=shim_stat.ticks if shim_stat else 0,
        engine_ticks=engine_stat.ticks if engine_stat else 0,
        args=tuple(extra["args"]),
        reservation_id=extra["reservation_id"],
        gpu_used=extra["gpu_used"],
    )
    return record, shim


def _spec(
    paths: ChannelPaths, process: Process, prepared: Prepared, extra: dict[str, Any], stop_timeout: Seconds
) -> dict[str, Any]:
    skipped = ("shim_pid", "engine_pid", "was_ready", "launch_id")
    return {
        "launch_id": process.launch_id,
        "command": list(prepared.command),
        "env": dict(prepared.env),
        "cwd": str(paths.home(process.launch_id)),
        "markers": {LAUNCH_MARKER: process.launch_id, CHANNEL_MARKER: str(paths.root)},
        "stop_timeout": stop_timeout,
        "log": {"folder": str(paths.logs), "segment_bytes": logs.SEGMENT_BYTES, "segments": logs.SEGMENTS},
        "paths": {"run": str(paths.run), "exit": str(paths.exit), "stop": str(paths.stop)},
        "record": {**{f.name: getattr(process, f.name) for f in fields(Process) if f.name not in skipped}, **extra},
    }


def _popen(paths: ChannelPaths, launch_id: str, spec: Path) -> subprocess.Popen[bytes]:
    # Nothing but start_new_session: this process has gRPC in it, no Python may run between fork and exec.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", "-B", str(SHIM), str(spec)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8", CHANNEL_MARKER: str(paths.root), LAUNCH_MARKER: launch_id},
        cwd="/",
        start_new_session=True,
    )


async def _hear(shim: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The shim's one line; {} where it ended without a word."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), shim.stdout)
    try:
        async with asyncio.timeout(HANDSHAKE):
            line = await reader.readline()
        return dict(json.loads(line)) if line else {}
    except TimeoutError:
        shim.kill()
        return {"error": f"its shim said nothing within {HANDSHAKE:g} s"}
    except ValueError as err:
        return {"error": f"its shim cannot be understood: {err}"}
    finally:
        transport.close()


def _not_started(error: str, prepared: Prepared, folder: Path) -> Trouble:
    program = prepared.command[0]
    if error.startswith("No such file"):
        return Trouble(
            "missing_file", f"the engine's program {program} does not exist; mend its command in the node's file", error
        )
    if error.startswith("Permission denied"):
        return Trouble("missing_file", f"the engine's program {program} may not be executed", error)
    return _cannot(error, folder)

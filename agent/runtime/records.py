"""The files of a channel that outlive the agent: run record, ready mark, stop request, exit record; all name their launch.

<state>/channels/<name>/run.json    by the shim once the engine runs: what was started, where, pids, boot id; has the key
                        ready.json  by the agent when the engine first answered
                        stop.json   by the agent before it sends SIGTERM to the shim: the time-out in force
                        exit.json   by the shim when all is gone
                        logs/ home/<launch>/ tmp/<short>/ cache/
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agent.core.types import Millis
from agent.interfaces import Process
from agent.runtime import proc
from agent.runtime.files import read_json, write_json

LAUNCH_MARKER = "SLOTSERVE_LAUNCH"  # =launch id, in the environment of an engine and all it starts
CHANNEL_MARKER = "SLOTSERVE_CHANNEL"  # =the channel's folder, likewise, and of the shim


@dataclass(frozen=True, slots=True)
class ChannelPaths:
    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run.json"

    @property
    def ready(self) -> Path:
        return self.root / "ready.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop.json"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def cache(self) -> Path:
        """What engines compile, kept over launches."""
        return self.root / "cache"

    def spec(self, launch_id: str) -> Path:
        return self.root / f"spec-{launch_id}.json"

    def home(self, launch_id: str) -> Path:
        return self.root / "home" / launch_id

    def tmp(self, launch_id: str) -> Path:
        """Short: engines put sockets here, whose path has at most 107 bytes."""
        return self.root / "tmp" / launch_id[-8:]


@dataclass(frozen=True, slots=True)
class RunRecord:
    process: Process
    boot_id: str
    shim_ticks: int
    engine_ticks: int
    args: tuple[str, ...]  # of the preset, for advice in failures
    reservation_id: str
    gpu_used: Mapping[str, int]  # bytes by UUID just before the start

    @property
    def this_boot(self) -> bool:
        return self.boot_id == proc.boot_id()

    @property
    def shim_alive(self) -> bool:
        return self.this_boot and proc.alive(self.process.shim_pid, self.shim_ticks)

    @property
    def engine_alive(self) -> bool:
        return self.this_boot and proc.alive(self.process.engine_pid, self.engine_ticks)


@dataclass(frozen=True, slots=True)
class ExitRecord:
    code: int | None
    stop_asked: bool
    killed: bool  # by SIGKILL of ours
    ended_boottime_ms: int
    error: str  # the program could not be executed

    def seconds_ago(self) -> float:
        """0 at least; only right within one boot."""
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.ended_boottime_ms / 1000)


def read_run(paths: ChannelPaths) -> RunRecord | None:
    """The last start that got as far as an engine, or None (also where the file is of another version)."""
    data = read_json(paths.run)
    if data is None:
        return None
    try:
        names = {f.name for f in fields(Process)}
        process = Process(**{k: v for k, v in data.items() if k in names and k != "was_ready"})
        return RunRecord(
            process=with_ready(process, ready_at(paths, process.launch_id) is not None),
            boot_id=data["boot_id"],
            shim_ticks=data["shim_ticks"],
            engine_ticks=data["engine_ticks"],
            args=tuple(data.get("args", ())),
            reservation_id=data.get("reservation_id", ""),
            gpu_used=data.get("gpu_used", {}),
        )
    except (TypeError, KeyError):
        return None


def with_ready(process: Process, was_ready: bool) -> Process:
    values = {f.name: getattr(process, f.name) for f in fields(Process)}
    return Process(**{**values, "was_ready": was_ready})


def read_exit(paths: ChannelPaths, launch_id: str) -> ExitRecord | None:
    data = _of(paths.exit, launch_id)
    if data is None:
        return None
    return ExitRecord(
        code=data.get("exit_code"),
        stop_asked=bool(data.get("stop_asked")),
        killed=bool(data.get("killed")),
        ended_boottime_ms=int(data.get("ended_boottime_ms", 0)),
        error=str(data.get("error", "")),
    )


def ready_at(paths: ChannelPaths, launch_id: str) -> Millis | None:
    data = _of(paths.ready, launch_id)
    return None if data is None else int(data["ready_at"])


def mark_ready(paths: ChannelPaths, launch_id: str, now: Millis) -> None:
    write_json(paths.ready, {"launch_id": launch_id, "ready_at": now})


def ask_stop(paths: ChannelPaths, launch_id: str, timeout: float) -> None:
    write_json(paths.stop, {"launch_id": launch_id, "timeout": timeout})


def stop_asked(paths: ChannelPaths, launch_id: str) -> bool:
    return _of(paths.stop, launch_id) is not None


def _of(path: Path, launch_id: str) -> dict[str, Any] | None:
    data = read_json(path)
    return data if data is not None and data.get("launch_id") == launch_id else None

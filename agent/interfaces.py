"""What the owner task of a channel (agent/channels.py) needs of the world: its engine process and the gateways.

Real ones: agent/runtime (processes) and agent/gateways.py (the IPC server). Tests of the task use fakes that record.
Every coroutine may be cancelled at any await; each leaves a state that `adopt` can read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.core.types import Category, Launch, Millis, Seconds


@dataclass(frozen=True, slots=True)
class Process:
    """A running (or just started) engine under its shim. Paths and pids are of this boot."""

    launch_id: str
    identity: str
    model: str
    preset: str | None
    engine: str
    started_at: Millis  # node time
    shim_pid: int
    engine_pid: int
    socket: str | None
    host: str
    port: int
    engine_key: str
    served_name: str  # the catalogue name as the engine can take it: what `model` must say upstream
    unique_name: str  # compared with /v1/models, so that an orphan can never pass as the new engine
    was_ready: bool = False  # adopted: it had been ready before


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a start failed, or a process died: fit for people. `detail` is the engine's own first error line."""

    category: Category
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody else's process on a GPU of the channel."""

    gpu: str
    pid: int
    user: str
    command: str
    memory_bytes: int


class EngineRuntime(Protocol):
    """Processes of one channel. One task calls it; it starts nothing by itself.

    After `adopt` said None, `died_unwatched` holds an engine that had ended by itself while no agent ran, and why.
    """

    died_unwatched: tuple[Process, Trouble] | None

    def adopt(self) -> Process | None:
        """The engine that runs from before this agent's start, by its run record; leftovers of dead ones are killed."""

    async def preflight(self, launch: Launch) -> Trouble | None:
        """What can be known without stopping anything: file missing or incomplete, no such engine, unknown argument."""

    async def gpu_holders(self) -> list[Holder]:
        """Foreign processes on the channel's GPUs now; empty where there are none or no GPUs."""

    async def start(self, launch: Launch, reservation_id: str, now: Millis) -> Process:
        """Starts shim and engine. Raises StartFailed where they could not be started at all."""

    async def probe(self, process: Process) -> bool:
        """One look: True once the engine answers /health and /v1/models with our unique name. Quick (2 s at most)."""

    def gpu_memory(self, process: Process) -> int:
        """Bytes that it had taken on the channel's GPUs when it became ready; 0: unknown."""

    async def wait_exit(self, process: Process) -> Trouble:
        """Returns when the engine has exited by itself, with the reason from its output (also when it died at once)."""

    async def stop(self, process: Process, stop_timeout: Seconds) -> bool:
        """SIGTERM to the whole tree at once, SIGKILL after `stop_timeout`; True when all are gone, False when not 30 s later."""

    async def leftovers(self) -> list[int]:
        """The pids of this channel's processes that still run: after a `stop` that said False, what could not be ended."""

    async def wait_memory_free(self) -> str:
        """After a stop: waits for GPU memory, 10 s at most. "" = free; else a sentence saying what is held."""

    def why_died(self, process: Process) -> Trouble:
        """The verdict on a process that has ended or is to be given up (load time-out), from its output."""


class StartFailed(Exception):
    """The engine's program could not be started; `trouble` says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.reason)
        self.trouble = trouble


class GatewayDoor(Protocol):
    """The gateways of this node, as one channel's task sees them (agent/gateways.py)."""

    async def close(self, channel: str) -> int:
        """Closes the channel to new requests in every gateway process; returns the requests still running once all have
        acknowledged (only then zero means zero). Gateways that are gone count as acknowledged with nothing."""

    async def wait_drained(self, channel: str) -> None:
        """Returns when no request runs on the channel any more (call after `close`)."""

    def in_flight(self, channel: str) -> int:
        """Requests running now, as last reported."""

    def cut(self, channel: str, retry_after: int) -> None:
        """Ends what still runs: error event at an event boundary, or 503 model_switching."""

    def publish(self, channel: str, entry: Mapping[str, Any]) -> None:
        """Puts a channel's entry (agent/gateway/ipc.py CHANNEL) into the table and sends it; same entry: nothing."""

"""What the connected nodes last said of themselves: kept in memory, never in the database (heartbeats are not history).

Written by the gRPC side only, read by everybody; a reader gets immutable snapshots. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from controller.fleet.gpu_history import GpuHistory


@dataclass(frozen=True, slots=True)
class LiveFailure:
    """A failure as the node tells it; instants in ms, `retry_at` None while not known."""

    identity: str
    model: str
    preset: str | None
    category: str
    reason: str
    count: int
    since: int
    last: int
    retry_at: int | None
    episode: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LiveChannel:
    """One channel's report. `running` is the identity of what is loaded or loading ("" = nothing)."""

    phase: str
    running: str = ""
    running_model: str | None = None
    running_preset: str | None = None
    fallback: bool = False
    failure: LiveFailure | None = None
    in_flight: int = 0
    load_started_at: int | None = None
    load_estimated_seconds: float | None = None
    phase_since: int = 0
    detail: str = ""
    engine_pid: int = 0
    launch_id: str = ""
    drain_deadline: int | None = None
    switching_to: str = ""


@dataclass(frozen=True, slots=True)
class LiveGpuProcess:
    """`channel`: whose engine it is, None = somebody else's. Memory 0 = unknown."""

    pid: int
    user: str
    command: str
    memory_bytes: int
    channel: str | None


@dataclass(frozen=True, slots=True)
class LiveGpu:
    """None (memory: 0) = unknown; `problem`: why nothing can be seen of it."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation_percent: int | None
    temperature_c: int | None = None
    power_watts: int | None = None
    processes: tuple[LiveGpuProcess, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node's connection: plan_* are of the newest answer; `refusal` is empty when the plan was accepted."""

    online: bool = False
    silent: bool = False  # not online for want of any word: the machine or its line is gone, not just the agent
    heard: bool = True  # False from a connection to its first status: what stands here is from before
    version: str = ""
    since: int = 0  # connected or lost since
    clock_skew_seconds: float | None = None
    plan_epoch: int = 0
    plan_generation: int = 0
    refusal: str = ""
    turned_away: str = ""  # why it may not connect though its certificate is good (its version), in words
    gateway_urls: tuple[str, ...] = ()
    relay_address: str = ""  # what other nodes' gateways dial; empty: it takes no relays
    channels: dict[str, LiveChannel] = field(default_factory=dict)  # by name; replaced, never changed in place
    gpus: tuple[LiveGpu, ...] = ()
    gpu_problem: str = ""  # why declared GPUs cannot be seen


class Live:
    """The registry. `revision` grows whenever something that a page shows has changed."""

    def __init__(self) -> None:
        self._nodes: dict[str, LiveNode] = {}
        self._lock = threading.Lock()
        self._listeners: list[Callable[[str, frozenset[str]], None]] = []
        self.revision = 0
        self.gpu_history = GpuHistory()

    def on_change(self, listener: Callable[[str, frozenset[str]], None]) -> None:
        """`listener(node, channel names)`: what runs or how it is going has changed there (not mere counters)."""
        self._listeners.append(listener)

    def node(self, name: str) -> LiveNode:
        """The node's last word; an unknown one is offline."""
        return self._nodes.get(name) or LiveNode()

    def channel(self, node: str, name: str) -> LiveChannel:
        """The channel's last word; phase `unknown` while the node is away, or connected but has not said anything yet."""
        known = self.node(node)
        channel = known.channels.get(name)
        if channel is None:
            return LiveChannel("unknown")
        return channel if known.online and known.heard else replace(channel, phase="unknown")

    def snapshot(self) -> dict[str, LiveNode]:
        """Every node's last word, by name; records are replaced, never changed in place."""
        with self._lock:
            return dict(self._nodes)

    def put(self, name: str, node: LiveNode) -> None:
        """A node's record as another controller has it."""
        self._set(name, lambda _: node, node.online)

    def update(self, name: str, **changes: object) -> None:
        """Replaces fields of a node's record. Listeners hear of channels whose record changed in more than in_flight."""
        self._set(name, lambda old: replace(old, **changes), "gpus" in changes)  # type: ignore[arg-type]

    def _set(self, name: str, make: Callable[[LiveNode], LiveNode], measured: bool) -> None:
        with self._lock:
            old = self._nodes.get(name) or LiveNode()
            new = make(old)
            if measured:
                self.gpu_history.note(new.gpus)
            if new == old:
                return
            self._nodes[name] = new
            self.revision += 1
            changed = frozenset(
                c
                for c in old.channels.keys() | new.channels.keys()
                if _essence(old.channels.get(c)) != _essence(new.channels.get(c))
                or (old.online, old.heard) != (new.online, new.heard)
            )
        if changed:
            for listener in self._listeners:
                listener(name, changed)


def _essence(channel: LiveChannel | None) -> LiveChannel | None:
    return replace(channel, in_flight=0) if channel else None

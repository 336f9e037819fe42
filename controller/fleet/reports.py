"""What nodes say, from the wire into our own types (protobuf classes stop here)."""

from __future__ import annotations

from sys import intern
from typing import Any

from controller.fleet.live import LiveChannel, LiveFailure, LiveGpu, LiveGpuProcess
from controller.store.channel_states import Doing
from protos import fleet_pb2, types_pb2

OWN_SETTINGS = (
    "stop_timeout_seconds",
    "drain_seconds",
    "load_timeout_seconds",
    "disk_read_mbps",
    "gateway_linger_seconds",
)


def live_channels(status: fleet_pb2.Status) -> dict[str, LiveChannel]:
    """A status' channels by name. What the whole fleet says alike is kept once."""
    return {intern(c.channel): _channel(c) for c in status.channels}


def doing(channel: LiveChannel) -> Doing:
    """What of a report is history. Why a channel failed is told while it waits, is blocked, or serves its fallback."""
    failed = channel.phase in ("retry_wait", "blocked") or channel.fallback
    reason = (channel.failure.reason if channel.failure else "") or (
        channel.detail if channel.phase == "blocked" else ""
    )
    return Doing(
        phase=channel.phase,
        model=channel.running_model,
        preset=channel.running_preset,
        fallback=channel.fallback,
        reason=reason if failed else "",
        since=channel.phase_since,
    )


def live_gpus(status: fleet_pb2.Status) -> tuple[LiveGpu, ...]:
    """A status' GPUs in its order."""
    return tuple(_gpu(g) for g in status.gpus)


def own_settings(settings: types_pb2.Settings) -> dict[str, Any]:
    """The settings that a node's file sets for itself; a duration of 0 counts."""
    return {name: getattr(settings, name) for name in OWN_SETTINGS if settings.HasField(name)}


def failure(said: types_pb2.Failure) -> LiveFailure:
    """A failure as the node tells it."""
    return LiveFailure(
        identity=said.target,
        model=said.model,
        preset=said.preset if said.HasField("preset") else None,
        category=said.category,
        reason=said.reason,
        count=said.count,
        since=said.since_ms,
        last=said.last_ms,
        retry_at=said.retry_at_ms or None,
        episode=said.episode,
        detail=said.detail,
    )


def _gpu(g: types_pb2.Gpu) -> LiveGpu:
    return LiveGpu(
        index=g.index,
        uuid=g.uuid,
        name=g.name,
        memory_total_bytes=g.memory_total_bytes,
        memory_used_bytes=g.memory_used_bytes,
        utilisation_percent=g.utilisation_percent if g.HasField("utilisation_percent") else None,
        temperature_c=g.temperature_c if g.HasField("temperature_c") else None,
        power_watts=g.power_watts if g.HasField("power_watts") else None,
        processes=tuple(
            LiveGpuProcess(p.pid, p.user, p.command, p.memory_bytes, p.channel or None) for p in g.processes
        ),
        problem=g.problem,
    )


def _channel(c: types_pb2.ChannelStatus) -> LiveChannel:
    return LiveChannel(
        phase=intern(c.phase),
        running=intern(c.running),
        running_model=intern(c.running_model) or None,
        running_preset=intern(c.running_preset) if c.HasField("running_preset") else None,
        fallback=c.fallback,
        failure=failure(c.failure) if c.HasField("failure") else None,
        in_flight=c.in_flight,
        load_started_at=c.load_started_at_ms or None,
        load_estimated_seconds=c.load_estimated_seconds if c.load_started_at_ms else None,
        phase_since=c.phase_since_ms,
        detail=c.detail,
        engine_pid=c.engine_pid,
        launch_id=c.launch_id,
        drain_deadline=c.drain_deadline_ms or None,
        switching_to=c.switching_to,
    )

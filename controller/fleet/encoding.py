"""A node's plan as bytes: the same plan gives the same bytes, so that nothing is sent to a node that changes nothing.

Each channel is serialised by itself and the pieces are joined (protobuf: a repeated message field is its elements, each
with tag and length), so that one changed channel does not cost the serialisation of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controller.scheduling.types import Millis, PlanStep, Reservation
from controller.settings import Settings
from controller.store.launches import Launch
from protos import types_pb2

OWN = ("stop_timeout_seconds", "drain_seconds", "load_timeout_seconds", "disk_read_mbps", "gateway_linger_seconds")
_CHANNELS_TAG = types_pb2.Plan.DESCRIPTOR.fields_by_name["channels"].number << 3 | 2


def channel_plan(
    channel: str,
    steps: Sequence[PlanStep],
    since: Millis,
    launches: Mapping[str, Launch],
    names: bool,
    limits: tuple[int, int] = (0, 0),
) -> bytes:
    """A channel's steps, the first of them since `since`, and every launch that they name. `names`: whether holders'
    names may go to the node; `limits`: of requests at once, all together and with one key (0: none)."""
    named: dict[str, None] = {}
    out = types_pb2.ChannelPlan(channel=channel, max_concurrent=limits[0], max_concurrent_per_key=limits[1])
    add = out.steps.add
    for at, target, why, fallback, reservation, running in steps:
        wanted = instead = ""
        if target is not None:
            named[wanted := target.identity] = None
            if fallback is not None:
                named[instead := fallback.identity] = None
        if reservation is None:
            add(at_ms=at, target=wanted, why=why, fallback=instead)
        elif running is None:
            start = reservation.start
            add(
                at_ms=at, target=wanted, why=why, fallback=instead, reservation_id=reservation.id, prepares_for_ms=start
            )
        else:
            step = add(at_ms=at, target=wanted, why=why, fallback=instead, reservation_id=reservation.id)
            _fill(step.access, running, names)
    out.steps[0].at_ms = since
    out.launches.extend(_launch(launches[identity]) for identity in named)
    return out.SerializeToString(deterministic=True)


def node_plan(node: str, channels: Iterable[bytes], settings: Settings, own: Mapping[str, Any]) -> bytes:
    """The whole plan of a node out of its channels' (by name); its own settings win."""
    parts = [types_pb2.Plan(node=node).SerializeToString()]
    for channel in channels:
        parts += (bytes((_CHANNELS_TAG,)), _varint(len(channel)), channel)
    parts.append(types_pb2.Plan(settings=node_settings(settings, own)).SerializeToString())
    return b"".join(parts)


def node_settings(settings: Settings, own: Mapping[str, Any]) -> types_pb2.Settings:
    """The settings in force on a node."""
    values = {
        "stop_timeout_seconds": settings.stop_timeout_seconds,
        "drain_seconds": settings.drain_seconds,
        "load_timeout_seconds": settings.load_timeout_seconds,
        "disk_read_mbps": settings.disk_read_mbps,
        "retry_min_seconds": settings.retry_min_seconds,
        "retry_max_seconds": settings.retry_max_seconds,
        "switch_buffer_seconds": settings.switch_buffer_seconds,
        "gateway_linger_seconds": settings.gateway_linger_seconds,
    }
    values.update({name: own[name] for name in OWN if own.get(name) is not None})
    return types_pb2.Settings(**values, show_holders=settings.show_holders)


def step_key(step: PlanStep) -> str:
    """What tells a step from the next: two steps with the same key are one."""
    running = step.running
    parts = (
        step.target.identity if step.target else "",
        step.why,
        step.fallback.identity if step.fallback else "",
        step.reservation.id if step.reservation else "",
        *((running.kind, running.holder_id, *sorted(running.participant_ids)) if running else ()),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fill(access: types_pb2.Access, reservation: Reservation, names: bool) -> None:
    access.reservation_id = reservation.id
    access.kind = reservation.kind
    access.holder_id = reservation.holder_id
    access.starts_at_ms = reservation.start
    access.ends_at_ms = reservation.end
    if reservation.participant_ids:
        access.participant_ids.extend(reservation.participant_ids)
    if names:
        access.holder_name = reservation.holder_name


def _launch(launch: Launch) -> types_pb2.Launch:
    return types_pb2.Launch(
        identity=launch["identity"],
        model=launch["model"],
        preset=launch["preset"],
        engine=launch["engine"],
        args=launch["args"],
        env=launch["env"],
        load_timeout_seconds=launch["load_timeout_seconds"],
        load_seconds=launch["load_seconds"],
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)

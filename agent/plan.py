"""A pushed plan, from the wire into the types of agent/core: all of it, or a reason in words why none of it.

The edge where protobuf ends. The node's own settings win over those that came with the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from agent.core.types import Access, Launch, Step, Timing
from agent.errors import PlanRefused
from protos import types_pb2

WHYS = frozenset(("reserved", "exclusive", "preload", "clearing", "short_gap", "override", "default", "idle"))
KINDS = ("model", "exclusive")
TIMING = {  # field of Timing: field of Settings
    "stop_timeout": "stop_timeout_seconds",
    "drain": "drain_seconds",
    "load_timeout": "load_timeout_seconds",
    "retry_min": "retry_min_seconds",
    "retry_max": "retry_max_seconds",
    "buffer": "switch_buffer_seconds",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What is carried out. `channels` has every declared channel that the plan speaks of."""

    channels: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    show_holders: str = "users"
    gateway_linger: float = 3600.0
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # requests at once: all together, with one key


def parse(
    data: bytes, node: str, channels: Iterable[str], own: Mapping[str, float], *, lenient: bool = False
) -> NodePlan:
    """The plan of `data` (a serialised Plan) for `node` with the declared `channels`.

    `own`: settings of the node itself by their names in Settings. Raises PlanRefused; `lenient` passes over channels
    that are not declared (a saved plan, after the node's file has changed).
    """
    plan = types_pb2.Plan()
    try:
        plan.ParseFromString(data)
    except DecodeError:
        raise PlanRefused("the plan is cut off or is no plan: it cannot be decoded") from None
    if plan.node != node:
        raise PlanRefused(f"the plan is for node {plan.node!r}, this is {node!r}")
    declared, found = set(channels), {}
    for said in plan.channels:
        if said.channel not in declared:
            if lenient:
                continue
            raise PlanRefused(f"channel {said.channel!r} is not declared on this node")
        if said.channel in found:
            raise PlanRefused(f"channel {said.channel!r} is there twice")
        found[said.channel] = _steps(said)
    settings = plan.settings
    return NodePlan(
        channels=found,
        timing=_timing(settings, own),
        show_holders=settings.show_holders or "users",
        gateway_linger=_value(settings, "gateway_linger_seconds", own, 3600.0),
        limits={
            said.channel: (said.max_concurrent, said.max_concurrent_per_key)
            for said in plan.channels
            if said.max_concurrent or said.max_concurrent_per_key
        },
    )


def _steps(said: types_pb2.ChannelPlan) -> tuple[Step, ...]:
    where = f"channel {said.channel!r}"
    if not said.steps:
        raise PlanRefused(f"{where} has no step")
    launches = {}
    for launch in said.launches:
        if not launch.identity or not launch.model or not launch.engine:
            raise PlanRefused(f"{where}: a launch without identity, model or engine")
        launches[launch.identity] = _launch(launch)
    steps: list[Step] = []
    for step in said.steps:
        if steps and step.at_ms <= steps[-1].at:
            raise PlanRefused(f"{where}: its steps are not in the order of time")
        if step.why not in WHYS:
            raise PlanRefused(f"{where}: a step says {step.why!r} where a reason is expected")
        for identity in (step.target, step.fallback):
            if identity and identity not in launches:
                raise PlanRefused(f"{where}: a step names {identity!r}, and no launch is that")
        steps.append(
            Step(
                at=step.at_ms,
                target=launches[step.target] if step.target else None,
                why=step.why,
                fallback=launches[step.fallback] if step.fallback else None,
                reservation_id=step.reservation_id,
                access=_access(step.access, where) if step.HasField("access") else None,
                prepares_for=step.prepares_for_ms or None,
            )
        )
    return tuple(steps)


def _launch(said: types_pb2.Launch) -> Launch:
    return Launch(
        identity=said.identity,
        model=said.model,
        preset=said.preset if said.HasField("preset") else None,
        engine=said.engine,
        args=tuple(said.args),
        env=dict(said.env),
        load_timeout=said.load_timeout_seconds if said.HasField("load_timeout_seconds") else None,
        load_seconds=said.load_seconds,
    )


def _access(said: types_pb2.Access, where: str) -> Access:
    if said.kind not in KINDS:
        raise PlanRefused(f"{where}: a reservation of kind {said.kind!r}")
    if said.starts_at_ms >= said.ends_at_ms:
        raise PlanRefused(f"{where}: a reservation that ends before it starts")
    return Access(
        reservation_id=said.reservation_id,
        kind="model" if said.kind == "model" else "exclusive",
        holder_id=said.holder_id,
        participant_ids=frozenset(said.participant_ids),
        holder_name=said.holder_name,
        start=said.starts_at_ms,
        end=said.ends_at_ms,
    )


def _timing(settings: types_pb2.Settings, own: Mapping[str, float]) -> Timing:
    default = Timing()
    return Timing(**{k: _value(settings, name, own, getattr(default, k)) for k, name in TIMING.items()})


def _value(settings: Any, name: str, own: Mapping[str, float], default: float) -> float:
    if name in own:
        return own[name]
    return getattr(settings, name) if settings.HasField(name) else default

"""What a node has seen, as the protocol's messages: GPUs and what runs on them, models and what their files say."""

from __future__ import annotations

from collections.abc import Mapping

from agent.runtime import proc
from agent.runtime.facts import Facts
from agent.runtime.gpu import Gpu, GpuProcess
from agent.runtime.models import FoundModel
from protos import types_pb2


def gpu(seen: Gpu, engines: Mapping[int, str]) -> types_pb2.Gpu:
    """`engines`: channels by the pids of their engines and shims. Reads /proc: not for the event loop."""
    return types_pb2.Gpu(
        index=seen.index,
        uuid=seen.uuid,
        name=seen.name,
        memory_total_bytes=seen.memory_total_bytes,
        memory_used_bytes=seen.memory_used_bytes,
        utilisation_percent=seen.utilisation_percent,
        temperature_c=seen.temperature_c,
        power_watts=seen.power_watts,
        processes=[_process(p, engines) for p in seen.processes],
        problem=seen.problem,
    )


def model(found: FoundModel, facts: Facts) -> types_pb2.Model:
    return types_pb2.Model(
        name=found.name,
        path=found.path,
        size_bytes=found.size_bytes,
        format=found.format,
        incomplete=found.incomplete,
        detail=found.detail,
        channels=found.channels,
        architecture=facts.architecture,
        context_length=facts.context_length,
        quantisation=facts.quantisation,
        parameters=facts.parameters,
        projector=found.projector,
        rotating_disk=found.rotating_disk,
    )


def _process(p: GpuProcess, engines: Mapping[int, str]) -> types_pb2.GpuProcess:
    channel = next((engines[pid] for pid in proc.ancestors(p.pid) if pid in engines), "")
    found = proc.stat(p.pid) if channel else None
    return types_pb2.GpuProcess(
        pid=p.pid,
        user=proc.user(p.pid),
        command=found.comm if found else proc.command(p.pid),  # a command line of ours may hold the engine's key
        memory_bytes=p.memory_bytes,
        channel=channel,
    )

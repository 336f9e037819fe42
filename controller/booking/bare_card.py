"""The bare card: what its holder needs to use it, and whose processes are still there when the time is over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from controller.booking.view import Place
from controller.fleet import addresses
from controller.fleet.live import Live, LiveGpu, LiveGpuProcess, LiveNode

NOTHING_LOADED = "No model runs in this time: the card is yours, on the node itself."


def card(live: Live, place: Place) -> dict[str, Any]:
    """{node, host, gpu_uuids[], cuda_visible_devices, message, processes[], in_use} of an exclusive booking's page."""
    node, uuids = place.node, list(place.channel.gpu_uuids)
    said = live.node(node.name)
    url = addresses.gateway(said, node)
    return {
        "node": node.name,
        "host": (urlsplit(url).hostname if url else None) or node.name,
        "gpu_uuids": uuids,
        "cuda_visible_devices": f"CUDA_VISIBLE_DEVICES={','.join(uuids)}" if uuids else None,
        "message": NOTHING_LOADED,
        "processes": [process_shape(p) for p in processes(said, uuids)],
        "in_use": in_use(gpus(said, uuids)),
    }


def gpus(said: LiveNode, uuids: Collection[str]) -> list[LiveGpu]:
    """A channel's, as far as they can be seen."""
    return [gpu for gpu in said.gpus if gpu.uuid in uuids and not gpu.problem]


def in_use(cards: list[LiveGpu]) -> dict[str, int] | None:
    """What is on the card at the hand-over, our engine included: how many processes, how much of its memory. None:
    unknown."""
    if not cards or not all(gpu.memory_total_bytes for gpu in cards):
        return None
    return {
        "processes": len({p.pid for gpu in cards for p in gpu.processes}),
        "memory_used_bytes": sum(gpu.memory_used_bytes for gpu in cards),
        "memory_total_bytes": sum(gpu.memory_total_bytes for gpu in cards),
    }


def processes(said: LiveNode, uuids: Collection[str]) -> list[LiveGpuProcess]:
    """Processes on a channel's GPUs that are no engine of ours, by pid, each once."""
    found = {p.pid: p for gpu in gpus(said, uuids) for p in gpu.processes if p.channel is None}
    return [found[pid] for pid in sorted(found)]


def process_shape(process: LiveGpuProcess) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "user": process.user or None,
        "command": process.command or None,
        "memory_bytes": process.memory_bytes or None,
    }

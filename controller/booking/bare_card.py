"""The bare card: what its holder needs to use it, and whose processes are still there when the time is over."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from controller.booking.view import Place
from controller.fleet.live import Live, LiveGpuProcess

NOTHING_LOADED = "No model runs in this time: the card is yours, on the node itself."


def card(live: Live, place: Place) -> dict[str, Any]:
    """{node, host, gpu_uuids[], cuda_visible_devices, message, processes[]} of an exclusive booking's page."""
    node, channel = place.node, place.channel
    url = next(iter(live.node(node.name).gateway_urls or node.gateway_urls), None)
    uuids = list(channel.gpu_uuids)
    return {
        "node": node.name,
        "host": (urlsplit(url).hostname if url else None) or node.name,
        "gpu_uuids": uuids,
        "cuda_visible_devices": f"CUDA_VISIBLE_DEVICES={','.join(uuids)}" if uuids else None,
        "message": NOTHING_LOADED,
        "processes": [process_shape(p) for p in processes(live, place)],
    }


def processes(live: Live, place: Place) -> list[LiveGpuProcess]:
    """Processes on the channel's GPUs that are no engine of ours, by pid, each once."""
    mine = set(place.channel.gpu_uuids)
    found = {
        p.pid: p
        for gpu in live.node(place.node.name).gpus
        if gpu.uuid in mine
        for p in gpu.processes
        if p.channel is None
    }
    return [found[pid] for pid in sorted(found)]


def process_shape(process: LiveGpuProcess) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "user": process.user or None,
        "command": process.command or None,
        "memory_bytes": process.memory_bytes or None,
    }

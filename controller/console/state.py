"""One channel's state as pages show it: the pill, the model, the progress of a load or drain, its GPUs. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from controller.console import show
from controller.context import Context
from controller.fleet import snapshot
from controller.fleet.live import LiveChannel, LiveGpu
from controller.scheduling.types import Decision
from controller.store.tables import Channel
from controller.words import EXCLUSIVE, FALLBACK, PHASES

SWITCHING = ("draining", "stopping", "freeing")


@dataclass(frozen=True, slots=True)
class Progress:
    """A bar that the browser moves: from `since`, over `seconds` (0: no estimate), `limit_at` = when it is given up."""

    kind: str  # loading, draining
    since: int
    seconds: float
    limit_at: int | None = None
    requests: int = 0
    model: str = ""


def shown_model(said: LiveChannel, decision: Decision) -> tuple[str | None, str | None, bool]:
    """What runs, else what is wanted (third: not there yet)."""
    if said.running_model:
        return said.running_model, said.running_preset, False
    if decision.target is not None:
        return decision.target.model, decision.target.preset, True
    return None, None, False


def pill(said: LiveChannel, exclusive: bool) -> tuple[str, str, str]:
    if said.fallback:
        return FALLBACK
    if exclusive and said.phase == "off":
        return EXCLUSIVE
    return PHASES.get(said.phase, PHASES["unknown"])


def gpu_label(channel: Channel, gpus: tuple[LiveGpu, ...]) -> str:
    """GPU 0–3, by the indices that the node reports; nothing for a channel without GPUs."""
    wanted = {str(u) for u in channel.gpu_uuids}
    indices = sorted(g.index for g in gpus if g.uuid in wanted)
    if not indices:
        return f"{len(wanted)} GPU" if wanted else ""
    if len(indices) > 1 and indices[-1] - indices[0] == len(indices) - 1:
        return f"GPU {indices[0]}–{indices[-1]}"
    return "GPU " + ", ".join(map(str, indices))


def gpu_kinds(gpus: tuple[LiveGpu, ...]) -> str:
    """8 × H200 141 GB."""
    kinds: dict[tuple[str, int], int] = {}
    for gpu in gpus:
        kinds[gpu.name, gpu.memory_total_bytes] = kinds.get((gpu.name, gpu.memory_total_bytes), 0) + 1
    return ", ".join(f"{n} × {name} {show.gigabytes(size)} GB" for (name, size), n in kinds.items())


def memory(channel: Channel, gpus: tuple[LiveGpu, ...]) -> tuple[int, int] | None:
    ours = [g for g in gpus if g.uuid in channel.gpu_uuids and g.memory_total_bytes > 0]
    return (sum(g.memory_used_bytes for g in ours), sum(g.memory_total_bytes for g in ours)) if ours else None


def use(channel: Channel, gpus: tuple[LiveGpu, ...]) -> int | None:
    ours = [u for g in gpus if g.uuid in channel.gpu_uuids and (u := g.utilisation_percent) is not None]
    return round(sum(ours) / len(ours)) if ours else None


def progress(
    said: LiveChannel, decision: Decision, state: snapshot.ChannelState | None, ctx: Context
) -> Progress | None:
    if said.phase == "loading" and said.load_started_at:
        estimate = said.load_estimated_seconds or (decision.target.load_seconds if decision.target else 0.0)
        launch = state.launches.get(said.running) if state else None
        limit = (launch["load_timeout_seconds"] if launch else None) or ctx.settings.load_timeout_seconds
        return Progress("loading", said.load_started_at, estimate, said.load_started_at + round(limit * 1000))
    if said.phase == "draining" and said.drain_deadline:
        seconds = ctx.settings.drain_seconds
        since = said.phase_since or said.drain_deadline - round(seconds * 1000)
        model = decision.target.model if decision.target else ""
        return Progress(
            "draining", since, max((said.drain_deadline - since) / 1000, 1), said.drain_deadline, said.in_flight, model
        )
    return None

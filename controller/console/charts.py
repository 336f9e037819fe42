"""The figures of GPUs for the small charts: memory in use, use now and in the last minutes, heat. Asked for by themselves,
every 5 s, and only for nodes in view: they change all the time, and nothing else of a page should be made anew for them."""

from __future__ import annotations

from typing import Any

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue

from controller.console import live, show
from controller.console.facts import ChannelFacts
from controller.console.fleet_facts import fleet
from controller.console.signed_in import person
from controller.context import Context
from controller.fleet.live import LiveGpu, LiveNode

MOST_NODES = 60
POINTS = 30


def register(app: Flask, ctx: Context) -> None:
    """/overview/gpus?nodes=a,b"""

    @app.get("/overview/gpus")
    def gpu_figures() -> ResponseReturnValue:
        if person() is None:
            return live.signed_out()
        wanted = set(request.args.get("nodes", "")[:5000].split(",")[:MOST_NODES])
        channels: dict[str, Any] = {}
        heat: dict[str, str] = {}
        for node in fleet(ctx, ctx.clock()).nodes:
            if node.name not in wanted:
                continue
            said = ctx.live.node(node.name)
            if not said.online:
                continue
            heat[show.anchor(node.name)] = hottest(said.gpus)
            for c in node.channels:
                if c.gpu_uuids and c.said.phase not in ("unknown", "gone"):
                    channels[c.anchor] = figures(ctx, c, said)
        answer = jsonify({"channels": channels, "heat": heat})
        answer.headers["Cache-Control"] = "private, no-store"
        return answer


def figures(ctx: Context, c: ChannelFacts, said: LiveNode) -> dict[str, Any]:
    """{memory: [used, total] in GB as shown, share, use, line[]}; what is not known is null."""
    ours = [g for g in said.gpus if g.uuid in c.gpu_uuids]
    total = sum(g.memory_total_bytes for g in ours)
    used = sum(g.memory_used_bytes for g in ours if g.memory_total_bytes > 0)
    uses = [g.utilisation_percent for g in ours if g.utilisation_percent is not None]
    return {
        "memory": [show.gigabytes(used), show.gigabytes(total)] if total else None,
        "share": round(100 * used / total) if total else None,
        "use": round(sum(uses) / len(uses)) if uses else None,
        "line": line([ctx.live.gpu_history.use(g.uuid) for g in ours]),
    }


def line(series: list[list[int]]) -> list[int]:
    """The mean of several series that end at the same moment, at most POINTS values of it."""
    known = [s for s in series if s]
    length = min((len(s) for s in known), default=0)
    mean = [sum(s[i - length] for s in known) / len(known) for i in range(length)]
    step = max(1, -(-length // POINTS))
    return [round(sum(chunk) / len(chunk)) for i in range(0, length, step) if (chunk := mean[i : i + step])]


def hottest(gpus: tuple[LiveGpu, ...]) -> str:
    """The hottest card and what all of them draw, as far as they say."""
    degrees = [g.temperature_c for g in gpus if g.temperature_c is not None]
    watts = [g.power_watts for g in gpus if g.power_watts is not None]
    return ", ".join((*([f"{max(degrees)} °C"] if degrees else []), *([f"{sum(watts)} W"] if watts else [])))

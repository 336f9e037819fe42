"""Models and presets: what there is, what fits where, how long it loads; and the editor of a preset's arguments."""

from __future__ import annotations

from typing import Any

from flask import Flask, redirect, render_template, request
from flask.typing import ResponseReturnValue

from controller.api import models as models_api
from controller.api import presets as presets_api
from controller.api.route import Page
from controller.console.asking import ask, everything, page
from controller.context import Context
from controller.errors import NotFound
from controller.rights import Actor, Owned, may
from controller.said import say
from controller.store import load_history, presets
from controller.times import parse

ENGINES = ("llama.cpp", "vllm", "sglang")


def register(app: Flask, ctx: Context) -> None:
    """/models, /models/<name>, /presets, /presets/<id>, /presets/new"""

    @page(app, ctx, "/models")
    def models(actor: Actor) -> ResponseReturnValue:
        found = everything(ctx, actor, models_api.list_models, Page)
        counts: dict[str, int] = {}
        for preset in everything(ctx, actor, presets_api.list_presets, presets_api.PresetPage):
            counts[preset["model"]] = counts.get(preset["model"], 0) + 1
        return render_template("console/models.html", models=found, preset_counts=counts, spread=_spread)

    @page(app, ctx, "/models/<path:name>")
    def model(actor: Actor, name: str) -> ResponseReturnValue:
        found = ask(ctx, actor, models_api.one_model, name=name)
        with ctx.store.read() as db:
            loads = load_history.newest(db, [name])
        rows = everything(ctx, actor, presets_api.list_presets, presets_api.PresetPage, model=name)
        return render_template(
            "console/model.html", m=found, presets=rows, loads={node: past for (_, node), past in loads.items()}
        )

    @page(app, ctx, "/presets")
    def all_presets(actor: Actor) -> ResponseReturnValue:
        rows = everything(ctx, actor, presets_api.list_presets, presets_api.PresetPage)
        if not rows:
            return render_template("console/presets.html", rows=[], p=None, grouped={}, editing=False)
        return redirect(f"/presets/{rows[0]['id']}")

    @page(app, ctx, "/presets/new")
    def new_preset(actor: Actor) -> ResponseReturnValue:
        return _editor(ctx, actor, None, request.args.get("model", "")[:512])

    @page(app, ctx, "/presets/<preset_id>")
    def one_preset(actor: Actor, preset_id: str) -> ResponseReturnValue:
        return _editor(ctx, actor, ask(ctx, actor, presets_api.one_preset, id=preset_id))


def _editor(ctx: Context, actor: Actor, preset: dict[str, Any] | None, model: str = "") -> ResponseReturnValue:
    rows = everything(ctx, actor, presets_api.list_presets, presets_api.PresetPage)
    models = everything(ctx, actor, models_api.list_models, Page)
    if model and not any(m["name"] == model for m in models):
        raise NotFound(say("there is no model %(model)s", model=model))
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row["model"], []).append(row)
    uses: list[str] = []
    mine = True
    if preset is not None:
        mine = bool(may(actor, "preset.change", Owned(preset["owner_id"])))
        with ctx.store.read() as db:
            if (found := presets.get(db, preset["id"])) is not None:
                uses = presets.uses(db, found, ctx.clock())
    chosen = preset["model"] if preset else model or (models[0]["name"] if models else "")
    entry = next((m for m in models if m["name"] == chosen), None)
    return render_template(
        "console/presets.html",
        rows=rows,
        grouped=grouped,
        p=preset,
        models=models,
        model=chosen,
        channels=entry["channels"] if entry else [],
        channels_of={m["name"]: m["channels"] for m in models},
        engines_of={m["name"]: m["engines"] for m in models},
        engines=[*ENGINES, *(["simulated"] if any("simulated" in m["engines"] for m in models) else [])],
        mine=mine,
        uses=uses,
        editing=True,
        lines=_lines(preset["args"]) if preset else "",
        updated=parse(preset["updated_at"]) if preset else 0,
    )


def _lines(args: list[str]) -> str:
    """Arguments as one types them: an option and its value a line, quoted where a shell would split them."""
    import shlex

    lines: list[list[str]] = []
    for token in args:
        quoted = shlex.quote(token) if token != shlex.quote(token) else token
        if (token.startswith("-") and not token[1:2].isdigit()) or not lines or len(lines[-1]) > 1:
            lines.append([quoted])
        else:
            lines[-1].append(quoted)
    return "\n".join(" ".join(line) for line in lines)


def _spread(seconds: dict[str, float]) -> tuple[float, float] | None:
    """The shortest and the longest of a model's estimates."""
    return (min(seconds.values()), max(seconds.values())) if seconds else None

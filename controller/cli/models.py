"""`slotserve models`, `presets` and `preset …`."""

from __future__ import annotations

from typing import Any

import click

from agent.engines import ENGINES
from controller.cli.app import App
from controller.cli.client import Client, Refused, path_of
from controller.cli.complete import MODEL, PRESET
from controller.cli.options import Group, command, split_model
from controller.cli.times import show_duration


@click.command()
@click.argument("name", required=False, type=MODEL)
@command
def models(app: App, name: str | None) -> None:
    """Models and the nodes that hold them; with NAME everything about one."""
    with app.client() as client:
        if name is not None:
            answer = client.get(path_of("models", name))
            app.out(answer, lambda: _show_model(app, answer))
            return
        items = list(client.items("/models"))
    heads = ["model", "size", "format", "nodes", ""]
    app.out(
        {"items": items},
        lambda: app.table(
            heads, [_model_row(m) for m in items], "No models: no node has found one in its model folders."
        ),
    )


@click.command()
@click.option("--model", type=MODEL, help="Only those of one model.")
@command
def presets(app: App, model: str | None) -> None:
    """Named engine parameters."""
    with app.client() as client:
        items = [p for p in client.items("/presets", model=model) if model in (None, p["model"])]
    rows = [[f"{p['model']}:{p['name']}", p["engine"], " ".join(p.get("args") or []), p["id"]] for p in items]
    app.out(
        {"items": items},
        lambda: app.table(
            ["preset", "engine", "arguments", "id"], rows, "No presets; a model runs without arguments of its own."
        ),
    )


@click.group(cls=Group)
def preset() -> None:
    """Add, edit or remove a preset (named MODEL:PRESET, or by its id)."""


_FIELDS = [
    click.option(
        "--engine", type=click.Choice(["llama.cpp", "vllm", "sglang", "simulated"]), help="Which engine it is for."
    ),
    click.option("--args", "args", help="As on a command line: --args '-ngl 99 -c 16384'."),
    click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment; may be repeated."),
    click.option("--load-timeout", help="Longest load, for example 20m."),
]


def _fields(function: Any) -> Any:
    for option in reversed(_FIELDS):
        function = option(function)
    return function


@preset.command("add")
@click.argument("name", metavar="MODEL:PRESET", type=MODEL)
@_fields
@command
def add(app: App, name: str, **fields: Any) -> None:
    """Add a preset. What SlotServe owns is taken out of its arguments, and said."""
    with app.client() as client:
        model, label = _named(name)
        body = {"model": model, "name": label, **_body(app, fields)}
        if "engine" not in body:
            raise click.UsageError("Missing option '--engine'.")
        answer = client.post("/presets", body)
    app.out(answer, lambda: _say(answer, f"{name} is there."))


@preset.command("edit")
@click.argument("name", metavar="MODEL:PRESET", type=PRESET)
@_fields
@click.option("--rename", help="A new name.")
@command
def edit(app: App, name: str, rename: str | None, **fields: Any) -> None:
    """Change a preset. It acts at once, but a running booking keeps what it was started with."""
    body = _body(app, fields) | ({"name": rename} if rename else {})
    if not body:
        raise click.UsageError("Nothing to change; name at least one option.")
    with app.client() as client:
        answer = client.patch(path_of("presets", _id(client, name)), body)
    app.out(answer, lambda: _say(answer, f"{name} is changed."))


@preset.command("remove")
@click.argument("name", metavar="MODEL:PRESET", type=PRESET)
@command
def remove(app: App, name: str) -> None:
    """Remove a preset."""
    with app.client() as client:
        answer = client.delete(path_of("presets", _id(client, name)))
    app.out(answer, lambda: click.echo(f"{name} is removed."))


def _body(app: App, fields: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {k: fields[k] for k in ("engine", "args") if fields[k] is not None}
    if fields["env"]:
        wrong = next((e for e in fields["env"] if "=" not in e or e.startswith("=")), None)
        if wrong:
            raise click.BadParameter(f"{wrong!r}: write NAME=VALUE", param_hint="--env")
        body["env"] = dict(e.split("=", 1) for e in fields["env"])
    if fields["load_timeout"]:
        body["load_timeout_seconds"] = app.duration(fields["load_timeout"], "--load-timeout")
    return body


def _named(name: str) -> tuple[str, str]:
    model, label = split_model(name, set())
    if label is None:
        raise click.UsageError(f"{name!r}: write MODEL:PRESET")
    return model, label


def _id(client: Client, name: str) -> str:
    for item in client.items("/presets"):
        if name in (item["id"], f"{item['model']}:{item['name']}"):
            return str(item["id"])
    raise Refused(f"no preset {name}; slotserve presets lists them")


def _say(answer: dict[str, Any], line: str) -> None:
    click.echo(line)
    for dropped in answer.get("dropped") or []:
        click.echo(f"Dropped {dropped['argument']}: {dropped['why']}")
    engine = ENGINES.get(str(answer.get("engine")))
    for unknown in answer.get("unknown") or []:
        meant = engine.suggest(unknown) if engine else None
        click.echo(f"Unknown to the engine: {unknown}" + (f" (did you mean {meant}?)" if meant else ""))
    for hint in answer.get("hints") or []:
        click.echo(f"Note: {hint['message']}")


def _model_row(model: dict[str, Any]) -> list[Any]:
    held = [n["name"] if isinstance(n, dict) else str(n) for n in model.get("nodes") or []]
    over = model.get("exceeds_gpu_memory") or {}
    too_big = (
        over.values()
        if isinstance(over, dict)
        else [c.get("exceeds_gpu_memory", True) for c in over if isinstance(c, dict)]
        if isinstance(over, list)
        else [over]
    )
    return [
        model["name"],
        size(model.get("size_bytes") or 0),
        model.get("format", ""),
        ", ".join(held),
        "incomplete" if model.get("incomplete") else "exceeds GPU memory" if any(too_big) else "",
    ]


def _show_model(app: App, model: dict[str, Any]) -> None:
    click.echo(f"{model['name']}  {size(model.get('size_bytes') or 0)}  {model.get('format') or ''}".rstrip())
    if model.get("detail"):
        click.echo(model["detail"])
    if facts := _facts(model):
        click.echo(facts)
    click.echo(f"engines  {', '.join(model.get('engines') or []) or 'none of the channels here can load it'}\n")
    loads, over = model.get("load_seconds") or {}, model.get("exceeds_gpu_memory") or {}
    rows = [
        [
            channel,
            f"about {show_duration(loads[channel])}" if loads.get(channel) is not None else "",
            "exceeds GPU memory" if over.get(channel) else "",
        ]
        for channel in model.get("channels") or []
    ]
    app.table(["channel", "loads in", ""], rows, "No channel has it in its model folders.")


def _facts(model: dict[str, Any]) -> str:
    """What its file says of itself, as far as it is known."""
    count, context, projector = model.get("parameters"), model.get("context_length"), model.get("projector")
    return ", ".join(
        (
            *([model["architecture"]] if model.get("architecture") else []),
            *(
                [f"{count / 1e9:.1f} B parameters" if count >= 1e9 else f"{count / 1e6:.0f} M parameters"]
                if count
                else []
            ),
            *([model["quantisation"]] if model.get("quantisation") else []),
            *([f"context {context}"] if context else []),
            *([f"with {projector}"] if projector else []),
        )
    )


def size(count: float) -> str:
    """Bytes for people, in powers of 1000 as disks and the estimates count."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError

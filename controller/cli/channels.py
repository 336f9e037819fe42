"""`slotserve channels`, `channel …` and `plan`."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import click

from controller.cli import sentence, times
from controller.cli.app import App
from controller.cli.client import Refused, path_of
from controller.cli.complete import MODEL
from controller.cli.options import CHANNEL, Group, command, name_of, split_model
from controller.words import PHASES


@click.command()
@command
def channels(app: App) -> None:
    """Channels: what they run and why."""
    with app.client() as client:
        items = list(client.items("/channels"))
    app.out({"items": items}, lambda: show_channels(app, items))


@click.group(cls=Group)
def channel() -> None:
    """One channel: show, set, override, reload, retry."""


@channel.command("show")
@click.argument("name", type=CHANNEL)
@command
def show(app: App, name: str) -> None:
    """Everything about one channel."""
    with app.client() as client:
        item = client.get(path_of("channels", name))
    app.out(item, lambda: _show(app, item))


@channel.command("set")
@click.argument("name", type=CHANNEL)
@click.option(
    "--default", "default", metavar="MODEL[:PRESET]", type=MODEL, help="What it serves outside bookings; '' = nothing."
)
@click.option("--lead", help="Minimum preload lead, for example 3m.")
@click.option(
    "--policy",
    multiple=True,
    metavar="NAME=VALUE",
    help="Booking rules: max_hours=8, allowed_users=ann,lee, max_days_ahead=null; requests at once: max_concurrent=8, "
    "max_concurrent_per_key=2.",
)
@command
def set_(app: App, name: str, default: str | None, lead: str | None, policy: tuple[str, ...]) -> None:
    """Set the default model, the preload lead or booking rules (administrators)."""
    with app.client() as client:
        body: dict[str, Any] = {}
        if default is not None:
            model, preset = split_model(default, _models(client)) if default else (None, None)
            body |= {"default_model": model, "default_preset": preset}
        if lead:
            body["preload_lead_seconds"] = app.duration(lead, "--lead")
        if policy:
            body["policy"] = dict(_pair(p) for p in policy)
        if not body:
            raise click.UsageError("Nothing to set; name at least one option.")
        item = client.patch(path_of("channels", name), body)
    app.out(item, lambda: _show(app, item))


@channel.command("override")
@click.argument("name", type=CHANNEL)
@click.argument("model", required=False, metavar="[MODEL[:PRESET]]", type=MODEL)
@click.option("--unload", is_flag=True, help="Load nothing.")
@click.option("--clear", is_flag=True, help="End the override.")
@click.option("--until", help="When it ends by itself; a booking that begins ends it too.")
@click.option("--for", "duration", help="The same as a duration: 2h.")
@command
def override(
    app: App, name: str, model: str | None, unload: bool, clear: bool, until: str | None, duration: str | None
) -> None:
    """Choose by hand what a channel runs (administrators)."""
    if sum((bool(model), unload, clear)) != 1:
        raise click.UsageError("Name a model, or --unload, or --clear.")
    if until and duration:
        raise click.UsageError("--until and --for exclude each other.")
    end = app.instant(until, app.clock(), "--until") if until else None
    if duration:
        end = app.clock() + round(app.duration(duration, "--for") * 1000)
    with app.client() as client:
        where = path_of("channels", name) + "/override"
        if clear:
            item = client.delete(where)
        else:
            body: dict[str, Any] = {"until": times.rfc3339(end) if end else None}
            if model:
                body["model"], body["preset"] = split_model(model, _models(client))
            else:
                body["unload"] = True
            item = client.put(where, body)

    def people() -> None:
        click.echo(f"{name}: the override is {'ended' if clear else 'set'}.")
        for hint in item.get("hints") or []:
            click.echo(hint.get("message", "") if isinstance(hint, dict) else hint)

    app.out(item, people)


@channel.command("reload")
@click.argument("name", type=CHANNEL)
@click.option("--reason", help="For the audit.")
@command
def reload(app: App, name: str, reason: str | None) -> None:
    """Start the engine anew, without waiting for running requests."""
    _post(app, name, "reload", reason, "is told to reload")


@channel.command("retry")
@click.argument("name", type=CHANNEL)
@click.option("--reason", help="For the audit.")
@command
def retry(app: App, name: str, reason: str | None) -> None:
    """Try a failed model again now."""
    _post(app, name, "retry", reason, "is told to try again")


@click.command()
@click.argument("name", type=CHANNEL, metavar="CHANNEL")
@click.option("--hours", type=click.IntRange(1, 48), default=24, show_default=True, help="How far ahead.")
@command
def plan(app: App, name: str, hours: int) -> None:
    """A channel's timetable: what it will run, from when, and why."""
    with app.client() as client:
        answer = client.get(path_of("channels", name) + "/plan", hours=hours)
        wanted = not app.as_json and any(s.get("reservation") for s in answer["steps"])
        item = client.get(path_of("channels", name)) if not app.as_json else {}
        span = {"from": answer["steps"][0]["at"], "to": answer["to"]} if wanted else {}
        booked = {r["id"]: r for r in client.items("/reservations", channel=name, **span)} if wanted else {}

    def people() -> None:
        if not answer["steps"]:
            click.echo("No plan yet.")
        for step in answer["steps"]:
            click.echo(f"{app.when(step['at']):>17}  {name_of(step['target'])}")
            click.echo(click.wrap_text(sentence.step(app, step, item, booked), _columns(), " " * 19, " " * 19))

    app.out(answer, people)


def show_channels(app: App, items: list[dict[str, Any]]) -> None:
    """Two lines a channel, readable at 80 columns: what runs, and why; a third for what is wrong."""
    if not items:
        click.echo("No channels; a node brings them with its file.")
        return
    width = max(len(channel_name(c)) for c in items)
    for item in items:
        model = name_of(item.get("running") or item.get("target"))
        click.echo(f"{channel_name(item):{width}}  {click.style(f'{phase(item):22}', **_style(item))}  {model}")
        indent = " " * (width + 2)
        told = sentence.failure(app, item) or (item.get("detail") if item["phase"] == "blocked" else "")
        for text in filter(None, (sentence.why(app, item), told)):
            click.echo(click.wrap_text(text, _columns(), indent, indent))


def _columns() -> int:
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80


def channel_name(item: dict[str, Any]) -> str:
    """node/name of an answer."""
    name = str(item.get("name", ""))
    return name if "/" in name or not item.get("node") else f"{item['node']}/{name}"


def phase(item: dict[str, Any]) -> str:
    """The phase in a word or two, with the load's progress."""
    load = item.get("load")
    if item.get("fallback"):
        return "fallback"
    if item["phase"] == "loading" and load:
        estimate = f" of ~{load['estimated_seconds']:.0f}" if load.get("estimated_seconds") else ""
        return f"loading {load['elapsed_seconds']:.0f}{estimate} s"
    return str(PHASES[item["phase"]][0]).lower() if item["phase"] in PHASES else str(item["phase"])


def _style(item: dict[str, Any]) -> dict[str, Any]:
    colours = {"ready": "green", "loading": "blue", "retry_wait": "red", "blocked": "red"}
    return {"fg": "yellow" if item.get("fallback") else colours.get(item["phase"])}


def _show(app: App, item: dict[str, Any]) -> None:
    lines = [
        ("channel", channel_name(item)),
        ("state", phase(item)),
        ("target", name_of(item.get("target"))),
        ("running", name_of(item.get("running"))),
        ("why", sentence.why(app, item)),
        ("default", name_of({"model": item.get("default_model"), "preset": item.get("default_preset")})),
        ("preload lead", times.show_duration(item.get("preload_lead_seconds") or 0)),
        ("rules", _rules(item.get("policy") or {})),
        ("in flight", item.get("in_flight")),
        ("at most", _at_once(item.get("policy") or {})),
        ("call it at", item.get("base_url") or item.get("gateway_url")),
    ]
    for head, text in lines:
        click.echo(f"{head:13} {text if text is not None else '-'}")
    if item.get("failure"):
        click.echo(f"{'failure':13} {sentence.failure(app, item)}")


def _rules(policy: dict[str, Any]) -> str:
    """The booking rules in words; imported here, for nothing else of the command line needs them."""
    from controller.scheduling.policies import policy_of, sentences

    said = [str(hint) for hint in sentences(policy_of(policy, None, None))]
    who = [*(policy.get("allowed_users") or ()), *(f"every {role}" for role in policy.get("allowed_roles") or ())]
    return ", ".join([*said, *([f"only for {', '.join(who)}"] if who else [])]) or "no limits"


def _at_once(policy: dict[str, Any]) -> str:
    """What the node's gateway keeps to."""
    most, with_key = policy.get("max_concurrent"), policy.get("max_concurrent_per_key")
    said = [f"{most} at once"] if most else []
    return ", ".join([*said, *([f"{with_key} at once with one key"] if with_key else [])]) or "no limit"


def _post(app: App, name: str, what: str, reason: str | None, said: str) -> None:
    with app.client() as client:
        answer = client.post(f"{path_of('channels', name)}/{what}", {"reason": reason} if reason else {})
    app.out(answer, lambda: click.echo(f"{name} {said}."))


def _models(client: Any) -> set[str]:
    return {m["name"] for m in client.items("/models")}


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint="--policy")
    if name in ("allowed_users", "allowed_roles") and value[:1] != "[" and value != "null":
        return name, [one.strip() for one in value.split(",") if one.strip()]
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


__all__ = ["Refused", "channel", "channels", "plan"]

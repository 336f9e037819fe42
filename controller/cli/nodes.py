"""`slotserve nodes` and `slotserve node …`."""

from __future__ import annotations

from typing import Any

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.client import path_of
from controller.cli.complete import NODE
from controller.cli.options import Group, command
from protos.shared import clocks


@click.command()
@command
def nodes(app: App) -> None:
    """GPU machines: online or not, version, clock, GPUs, channels."""
    with app.client() as client:
        items = list(client.items("/nodes"))
    heads = ["node", "state", "version", "clock", "gpus", "channels"]

    def people() -> None:
        app.table(heads, [_row(n) for n in items], "No nodes yet; slotserve node add NAME makes one.")
        for node in items:
            if node.get("gpu_problem"):
                click.echo(f"{node['name']}: {node['gpu_problem']}")
            if resting := _resting(app, node):
                click.echo(app.told(f"{node['name']}: {resting}"))
            if node.get("turned_away"):
                click.echo(f"{node['name']}: {node['turned_away']}")

    app.out({"items": items}, people)


@click.group(cls=Group)
def node() -> None:
    """Add, cordon, drain, disable or remove a node."""


@node.command("add")
@click.argument("name")
@command
def add(app: App, name: str) -> None:
    """Make a node known; prints the join string for `slotserve-agent enrol` (15 minutes, once)."""
    with app.client() as client:
        answer = client.post("/nodes", {"name": name})

    def people() -> None:
        click.echo(f"{name} may join for 15 minutes, once. On that machine:", err=True)
        click.echo(f"slotserve-agent enrol '{answer['join']}'")

    app.out(answer, people)


@node.command("cordon")
@click.argument("name", type=NODE)
@click.option("--reason", help="Shown to people.")
@command
def cordon(app: App, name: str, reason: str | None) -> None:
    """Take no new bookings on a node; what is booked stays."""
    _patch(app, name, True, reason)


@node.command("drain")
@click.argument("name", type=NODE)
@click.option("--until", required=True, help="When the maintenance is over: +2h, 18:00, 'tomorrow 9:00', RFC 3339.")
@click.option("--reason", help="Told to the holders of bookings that would begin before then.")
@click.option("--preview", is_flag=True, help="Only list the bookings that it touches.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def drain(app: App, name: str, until: str, reason: str | None, preview: bool, yes: bool) -> None:
    """Maintenance: no booking begins on a node before then; what runs finishes.

    Holders of bookings that would begin before the end are told, with other channels that fit; nothing is moved or
    cancelled by itself. At the end the node takes bookings again by itself; slotserve node uncordon ends it sooner."""
    end = times.rfc3339(app.instant(until, app.clock(), "--until"))
    with app.client() as client:
        touched = client.get(path_of("nodes", name) + "/drain-preview", until=end)
        if preview:
            app.out(touched, lambda: _say_touched(app, touched))
            return
        if not yes:
            _say_touched(app, touched, err=True)
            click.confirm(f"Drain {name} until {app.when(end)}?", abort=True, err=True)
        body = {"drain_until": end, **({"reason": reason} if reason else {})}
        answer = client.patch(path_of("nodes", name), body)
    app.out(
        answer,
        lambda: click.echo(
            f"{name} is in maintenance until {app.when(end)}; what runs is over at {app.when(touched['idle_at'])}."
        ),
    )


@node.command("uncordon")
@click.argument("name", type=NODE)
@command
def uncordon(app: App, name: str) -> None:
    """Take bookings on a node again."""
    _patch(app, name, False)


@node.command("disable")
@click.argument("name", type=NODE)
@command
def disable(app: App, name: str) -> None:
    """Cut a node off until it is enabled again: its stream ends now, and its certificate opens nothing. Its engines go on."""
    with app.client() as client:
        answer = client.patch(path_of("nodes", name), {"disabled": True})
    app.out(answer, lambda: click.echo(f"{name} is cut off; slotserve node enable {name} lets it in again."))


@node.command("enable")
@click.argument("name", type=NODE)
@command
def enable(app: App, name: str) -> None:
    """Let a disabled node in again."""
    with app.client() as client:
        answer = client.patch(path_of("nodes", name), {"disabled": False})
    app.out(answer, lambda: click.echo(f"{name} may connect."))


@node.command("remove")
@click.argument("name", type=NODE)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", help="Told to the holders of bookings there.")
@command
def remove(app: App, name: str, yes: bool, reason: str | None) -> None:
    """Remove a node; its certificate is no longer accepted."""
    if not yes:
        click.confirm(f"Remove {name}? Its engines go on by the plan it has until it is shut down.", abort=True)
    with app.client() as client:
        answer = client.delete(path_of("nodes", name), {"reason": reason} if reason else None)
    app.out(answer, lambda: click.echo(f"{name} is removed."))


def _say_touched(app: App, touched: dict[str, Any], err: bool = False) -> None:
    """The bookings that maintenance touches."""
    lines = [f"finishes at {app.when(r['ends_at'])}: {r['channel']}, {r['holder'] or '-'}" for r in touched["running"]]
    for row in touched["touched"]:
        where = ", ".join(o["channel"] for o in row["offers"]) or "no other channel is free"
        window = app.window(row["starts_at"], row["ends_at"])
        lines.append(f"would begin in it: {row['channel']}, {row['holder'] or '-'}, {window} ({where})")
    for line in lines or ["No booking is touched."]:
        click.echo(app.told(line), err=err)


def _patch(app: App, name: str, cordoned: bool, reason: str | None = None) -> None:
    with app.client() as client:
        body = {"cordoned": cordoned, **({"reason": reason} if reason else {})}
        answer = client.patch(path_of("nodes", name), body)
    app.out(answer, lambda: click.echo(f"{name} {'takes no new bookings' if cordoned else 'takes bookings again'}."))


def _resting(app: App, node: dict[str, Any]) -> str:
    """Until when and why a node takes no bookings; empty where there is nothing to add."""
    if not node.get("cordoned"):
        return ""
    until, reason = node.get("drain_until"), node.get("cordon_reason")
    said = f"in maintenance until {app.when(until)}" if until else "takes no new bookings" if reason else ""
    return f"{said}: {reason}" if reason else said


def _clock(skew: float | None) -> str:
    if skew is None:
        return "-"
    return f"{round(skew, 1) + 0.0:+.1f} s" + (f", over {clocks.LIMIT_SECONDS:g} s" if clocks.wrong(skew) else "")


def _row(node: dict[str, Any]) -> list[Any]:
    skew = node.get("clock_skew_seconds")
    state = "online" if node.get("online") else "offline"
    if node.get("gpu_problem"):
        state += ", GPU trouble"
    return [
        node["name"],
        state
        + (", draining" if node.get("drain_until") else ", cordoned" if node.get("cordoned") else "")
        + (", disabled" if node.get("disabled") else ""),
        node.get("version") or "-",
        _clock(skew),
        len(node.get("gpus") or []),
        len(node.get("channels") or []),
    ]

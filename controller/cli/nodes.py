"""`slotserve nodes` and `slotserve node …`."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import path_of
from controller.cli.options import command


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
            if node.get("turned_away"):
                click.echo(f"{node['name']}: {node['turned_away']}")

    app.out({"items": items}, people)


@click.group()
def node() -> None:
    """Add, cordon, disable or remove a node."""


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
@click.argument("name")
@command
def cordon(app: App, name: str) -> None:
    """Take no new bookings on a node; what is booked stays."""
    _patch(app, name, True)


@node.command("uncordon")
@click.argument("name")
@command
def uncordon(app: App, name: str) -> None:
    """Take bookings on a node again."""
    _patch(app, name, False)


@node.command("disable")
@click.argument("name")
@command
def disable(app: App, name: str) -> None:
    """Cut a node off until it is enabled again: its stream ends now, and its certificate opens nothing. Its engines go on."""
    with app.client() as client:
        answer = client.patch(path_of("nodes", name), {"disabled": True})
    app.out(answer, lambda: click.echo(f"{name} is cut off; slotserve node enable {name} lets it in again."))


@node.command("enable")
@click.argument("name")
@command
def enable(app: App, name: str) -> None:
    """Let a disabled node in again."""
    with app.client() as client:
        answer = client.patch(path_of("nodes", name), {"disabled": False})
    app.out(answer, lambda: click.echo(f"{name} may connect."))


@node.command("remove")
@click.argument("name")
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


def _patch(app: App, name: str, cordoned: bool) -> None:
    with app.client() as client:
        answer = client.patch(path_of("nodes", name), {"cordoned": cordoned})
    app.out(answer, lambda: click.echo(f"{name} {'takes no new bookings' if cordoned else 'takes bookings again'}."))


def _row(node: dict[str, Any]) -> list[Any]:
    skew = node.get("clock_skew_seconds")
    state = "online" if node.get("online") else "offline"
    if node.get("gpu_problem"):
        state += ", GPU trouble"
    return [
        node["name"],
        state + (", cordoned" if node.get("cordoned") else "") + (", disabled" if node.get("disabled") else ""),
        node.get("version") or "-",
        "-" if skew is None else f"{round(skew, 1) + 0.0:+.1f} s",
        len(node.get("gpus") or []),
        len(node.get("channels") or []),
    ]

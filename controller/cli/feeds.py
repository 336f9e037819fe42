"""`slotserve feeds` and `feed …`: secret calendar addresses."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import Refused, path_of
from controller.cli.options import CHANNEL, Group, command


@click.command()
@click.option("--user", help="Somebody else's (administrators); * = everybody's.")
@command
def feeds(app: App, user: str | None) -> None:
    """Calendar feeds: their beginning, last use and what they show (the address was shown once)."""
    _list(app, user)


@click.group(cls=Group)
def feed() -> None:
    """Create, list or revoke a calendar feed."""


@feed.command("list")
@click.option("--user", help="Somebody else's (administrators); * = everybody's.")
@command
def list_feeds(app: App, user: str | None) -> None:
    """The same as `slotserve feeds`."""
    _list(app, user)


@feed.command("create")
@click.argument("name", default="")
@click.option("--channel", type=CHANNEL, help="Everything on this channel; your own bookings when missing.")
@click.option("--for", "user", help="For somebody else (administrators).")
@command
def create(app: App, name: str, channel: str | None, user: str | None) -> None:
    """Make a feed for a calendar program; its address is printed once, on stdout alone. Who has it can read it."""
    body: dict[str, Any] = {"name": name, "channel": channel, **({"user": user} if user else {})}
    with app.client() as client:
        answer = client.post("/feeds", body)

    def people() -> None:
        click.echo("Shown this once; whoever has it sees what you may see:", err=True)
        click.echo(answer["url"])

    app.out(answer, people)


@feed.command("revoke")
@click.argument("feed_id", metavar="ID-OR-NAME")
@command
def revoke(app: App, feed_id: str) -> None:
    """Revoke a feed: its address answers nothing any more, at once."""
    with app.client() as client:
        found = [f for f in client.items("/feeds") if f["active"] and feed_id in (f["id"], f["prefix"], f["name"])]
        if len(found) > 1:
            raise Refused(f"{feed_id} names {len(found)} feeds; use the id of one")
        answer = client.delete(path_of("feeds", found[0]["id"] if found else feed_id))
    app.out(answer, lambda: click.echo(f"{feed_id} is revoked."))


def _list(app: App, user: str | None) -> None:
    with app.client() as client:
        items = list(client.items("/feeds", user=user))
    rows = [
        [
            f["name"] or "-",
            f["channel"] or ("wall display" if f["kind"] == "wall" else "own bookings"),
            f["user"],
            f["prefix"] + "…",
            app.when(f["last_used_at"]) or "never",
            "" if f["active"] else "revoked",
            f["id"],
        ]
        for f in items
    ]
    heads = ["name", "shows", "of", "address", "last used", "", "id"]
    app.out({"items": items}, lambda: app.table(heads, rows, "No feeds; slotserve feed create NAME makes one."))

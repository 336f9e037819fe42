"""`slotserve status [--watch]`: your bookings, then all channels."""

from __future__ import annotations

import time
from typing import Any

import click

from controller.cli.app import App
from controller.cli.channels import show_channels
from controller.cli.client import Client
from controller.cli.options import command, name_of, until_interrupted
from controller.cli.times import rfc3339, zone_name


@click.command()
@click.option("--watch", is_flag=True, help="Again every 2 seconds, until Ctrl-C.")
@command
def status(app: App, watch: bool) -> None:
    """What every channel does now, and your bookings."""
    with app.client() as client, until_interrupted():
        while True:
            answer = _look(app, client)
            if watch and not app.as_json:
                click.clear()
            app.out(answer, lambda answer=answer: _show(app, answer))  # type: ignore[misc]
            if not watch:
                return
            time.sleep(2)


def _look(app: App, client: Client) -> dict[str, Any]:
    me = client.get("/me")
    mine = list(client.items("/reservations", most=20, holder=me["id"], **{"from": rfc3339(app.clock())}))
    return {
        "me": me,
        "bookings": [r for r in mine if r["status"] in ("pending", "approved")],
        "channels": list(client.items("/channels")),
    }


def _show(app: App, answer: dict[str, Any]) -> None:
    click.echo(f"{answer['me']['name']} ({answer['me']['role']}), times in {zone_name(app.zone)}")
    if answer["bookings"]:
        rows = [
            [
                r["channel"],
                "exclusive" if r["kind"] == "exclusive" else name_of(r),
                app.window(r["starts_at"], r["ends_at"]),
                "running" if r.get("running") else r["status"],
                r["id"],
            ]
            for r in answer["bookings"]
        ]
        click.echo()
        app.table(["your booking", "model", "time", "status", "id"], rows)
    click.echo()
    show_channels(app, answer["channels"])

"""`slotserve notifications`, `audit` and `usage`."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.options import command

LIMIT = click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="How many, newest first.")


@click.command()
@LIMIT
@command
def notifications(app: App, limit: int) -> None:
    """What you have been told."""
    with app.client() as client:
        items = list(client.items("/notifications", limit_of(limit)))
    rows = [[app.when(n["at"]), n.get("kind", ""), n.get("subject", ""), n.get("text", "")] for n in items]
    app.out({"items": items}, lambda: app.table(["at", "kind", "about", "text"], rows, "Nothing new."))


@click.command()
@LIMIT
@click.option("--since", help="From when: a time, or a duration back such as 24h.")
@command
def audit(app: App, limit: int, since: str | None) -> None:
    """Who did what, and when."""
    with app.client() as client:
        items = list(client.items("/audit", limit_of(limit), **_since(app, since)))
    rows = [[app.when(a["at"]), _who(a), a.get("action", ""), a.get("subject", ""), a.get("reason", "")] for a in items]
    app.out({"items": items}, lambda: app.table(["at", "who", "did", "to", "reason"], rows))


@click.command()
@LIMIT
@click.option("--since", help="From when: a time, or a duration back such as 24h.")
@command
def usage(app: App, limit: int, since: str | None) -> None:
    """Requests: who, which model, how long."""
    with app.client() as client:
        items = list(client.items("/usage", limit_of(limit), **_since(app, since)))
    heads = list(items[0]) if items else []
    app.out({"items": items}, lambda: app.table(heads, [[u.get(h) for h in heads] for u in items], "No requests."))


def limit_of(limit: int) -> int:
    return limit


def _since(app: App, text: str | None) -> dict[str, Any]:
    from controller.cli import times

    if not text:
        return {}
    try:
        return {"from": times.rfc3339(app.clock() - round(times.parse_duration(text) * 1000))}
    except times.TimeError:
        return {"from": times.rfc3339(app.instant(text, what="--since"))}


def _who(row: dict[str, Any]) -> str:
    actor = row.get("actor")
    return str(actor.get("name") if isinstance(actor, dict) else actor or row.get("actor_id") or "SlotServe")

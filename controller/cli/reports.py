"""`slotserve audit` and `usage`."""

from __future__ import annotations

import itertools
from typing import Any

import click

from controller.cli.app import App
from controller.cli.options import command
from controller.cli.times import from_api

LIMIT = click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="How many, newest first.")


@click.command()
@LIMIT
@click.option("--since", help="From when: a time, or a duration back such as 24h.")
@command
def audit(app: App, limit: int, since: str | None) -> None:
    """Who did what, and when."""
    with app.client() as client:
        first = _since(app, since).get("from", "")
        newest = client.items("/audit", limit)  # newest first, so the first older one ends it
        items = list(itertools.takewhile(lambda a: not first or from_api(a["at"]) >= from_api(first), newest))
    rows = [[app.when(a["at"]), _who(a), a.get("action", ""), _subject(a), a.get("reason", "")] for a in items]
    app.out({"items": items}, lambda: app.table(["at", "who", "did", "to", "reason"], rows))


@click.command()
@click.option("--since", help="From when: a time, or a duration back such as 24h; a month when missing.")
@click.option("--user", help="Of somebody else (administrators).")
@click.option("--all", "everybody", is_flag=True, help="Everybody's (administrators).")
@command
def usage(app: App, since: str | None, user: str | None, everybody: bool) -> None:
    """Requests, their time and tokens, by person, channel and model: yours, unless another is named."""
    if user and everybody:
        raise click.UsageError("--user and --all exclude each other.")
    with app.client() as client:
        items = list(client.items("/usage", user="*" if everybody else user, **_since(app, since)))
    heads = ["user", "channel", "model", "requests", "failed", "seconds", "tokens in", "tokens out"]
    rows = [
        [u["user"], u["channel"], u["model"], u["requests"], u["failed"], f"{u['seconds']:.1f}"]
        + ["-" if u.get(name) is None else u[name] for name in ("prompt_tokens", "completion_tokens")]
        for u in items
    ]
    app.out({"items": items}, lambda: app.table(heads, rows, "No requests."))


def _since(app: App, text: str | None) -> dict[str, Any]:
    from controller.cli import times

    if not text:
        return {}
    try:
        return {"from": times.rfc3339(app.clock() - round(times.parse_duration(text) * 1000))}
    except times.TimeError:
        return {"from": times.rfc3339(app.instant(text, what="--since"))}


def _subject(row: dict[str, Any]) -> str:
    """What it was done to: its name or channel where the row tells one, for an id says nothing to a person."""
    facts = {**(row.get("before") or {}), **(row.get("after") or {})}
    subject = str(row.get("subject") or "")
    name = facts.get("name") or facts.get("channel")
    return f"{name} ({subject})" if name and name != subject and "/" not in subject else subject


def _who(row: dict[str, Any]) -> str:
    actor = row.get("actor")
    return str(actor.get("name") if isinstance(actor, dict) else actor or row.get("actor_id") or "SlotServe")

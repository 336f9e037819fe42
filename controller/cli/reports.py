"""`slotserve audit` and `usage`."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.options import command

LIMIT = click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="How many, newest first.")


@click.command()
@LIMIT
@click.option("--since", help="From when: a time, or a duration back such as 24h.")
@click.option("--who", help="Whose acts: a name, or `system` for what SlotServe did by itself.")
@click.option("--action", help="Such as reservation.create, or reservation.* for all of them.")
@click.option("--about", help="What it was done to: an id, node/channel, or a node.")
@command
def audit(app: App, limit: int, since: str | None, who: str | None, action: str | None, about: str | None) -> None:
    """Who did what, when, why, and what it changed: the newest first."""
    with app.client() as client:
        items = list(client.items("/audit", limit, actor=who, action=action, subject=about, **_since(app, since)))
    rows = [[app.when(a["at"]), app.told(a["text"]), app.told(_changed(a["changes"]))] for a in items]
    app.out({"items": items}, lambda: app.table(["at", "what", "changed"], rows, "Nothing."))


@click.command()
@click.option("--since", help="From when: a time, or a duration back such as 24h; a month when missing.")
@click.option("--user", help="Of somebody else (administrators).")
@click.option("--all", "everybody", is_flag=True, help="Everybody's (administrators).")
@click.option(
    "--by",
    type=click.Choice(["person", "model", "channel", "day"]),
    help="In sums; channel and day have the hours by what channels did.",
)
@click.option("--csv", "as_csv", is_flag=True, help="As CSV, for a spreadsheet.")
@command
def usage(app: App, since: str | None, user: str | None, everybody: bool, by: str | None, as_csv: bool) -> None:
    """Requests, their time and tokens, by person, channel and model, or in sums: yours, unless another is named."""
    if user and everybody:
        raise click.UsageError("--user and --all exclude each other.")
    whose = {"user": "*" if everybody else user, **_since(app, since)}
    with app.client() as client:
        if as_csv:
            table = {"table": _TABLES[by], "zone": _zone(app)} if by else {}
            click.echo(client.text("/usage/summary" if by else "/usage", format="csv", **table, **whose), nl=False)
            return
        sums = client.get("/usage/summary", zone=_zone(app), **whose) if by else None
        answer = sums or {"items": list(client.items("/usage", **whose))}
    heads, rows = _sums(by, answer) if by else _requests(answer["items"])
    app.out(answer, lambda: app.table(heads, rows, "Nothing in this time." if by else "No requests."))


_TABLES = {"person": "people", "model": "models", "channel": "channels", "day": "hours"}
_HOURS = ("reserved", "loading", "served", "failed", "idle", "unknown")


def _requests(items: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    heads = ["user", "channel", "model", "requests", "failed", "seconds", "tokens in", "tokens out"]
    return heads, [
        [u["user"], u["channel"], u["model"], u["requests"], u["failed"], f"{u['seconds']:.1f}", *_tokens(u)]
        for u in items
    ]


def _sums(by: str, answer: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    rows = answer[_TABLES[by]]
    if by == "day":
        return ["channel", "day", *_HOURS], [[r["channel"], r["day"], *_hours(r)] for r in rows]
    if by == "channel":
        heads = ["channel", *(f"h {name}" for name in _HOURS), "requests", "tokens in", "tokens out"]
        return heads, [[r["channel"], *_hours(r), r["requests"], *_tokens(r)] for r in rows]
    name = "user" if by == "person" else "model"
    heads = [
        name,
        *(["h reserved"] if by == "person" else []),
        "requests",
        "failed",
        "tokens in",
        "tokens out",
        "first byte",
    ]
    return heads, [
        [
            r[name] or r.get("user_id"),
            *([f"{r['reserved']:.1f}"] if by == "person" else []),
            r["requests"],
            r["failed"],
            *_tokens(r),
            "-" if r["first_byte_seconds"] is None else f"{r['first_byte_seconds']:.2f} s",
        ]
        for r in rows
    ]


def _hours(row: dict[str, Any]) -> list[str]:
    return [f"{row[name]:.1f}" if row[name] else "-" for name in _HOURS]


def _tokens(row: dict[str, Any]) -> list[Any]:
    return ["-" if row.get(name) is None else row[name] for name in ("prompt_tokens", "completion_tokens")]


def _zone(app: App) -> str:
    """The person's zone by its name, where it has one."""
    return str(getattr(app.zone, "key", "UTC"))


def _since(app: App, text: str | None) -> dict[str, Any]:
    from controller.cli import times

    if not text:
        return {}
    try:
        return {"from": times.rfc3339(app.clock() - round(times.parse_duration(text) * 1000))}
    except times.TimeError:
        return {"from": times.rfc3339(app.instant(text, what="--since"))}


def _changed(changes: list[dict[str, Any]]) -> str:
    """role: user → admin; email: - → a@b.c"""
    told = [c for c in changes if c["field"] != "version"]
    shown = [f"{c['field']}: {c['before'] or '-'} → {c['after'] or '-'}" for c in told[:6]]
    return "; ".join([*shown, *(["…"] if len(told) > 6 else [])])

"""What the shell offers after Tab: names and ids that the controller knows, asked for with a short timeout.

Somebody who presses Tab wants no sentence: where nothing can be asked, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from controller.cli import times
from controller.cli.app import App

if TYPE_CHECKING:
    from controller.cli.client import Client

SECONDS = 2.0
MOST = 200
Offers = Iterable[tuple[str, str]]  # (what to write, what it is)


def offered(ctx: click.Context, incomplete: str, ask: Callable[[Client], Offers]) -> list[CompletionItem]:
    """Of what `ask` finds, what begins with what is typed already."""
    app = ctx.find_object(App) or App()
    try:
        with app.client(SECONDS) as client:
            found = [CompletionItem(value, help=words) for value, words in ask(client) if value.startswith(incomplete)]
    except (click.ClickException, KeyError, TypeError):
        return []
    return found[:MOST]


def channels(client: Client) -> Offers:
    return [
        (c["id"], str((c.get("running") or c.get("target") or {}).get("model", ""))) for c in client.items("/channels")
    ]


def models(client: Client) -> Offers:
    """Models, and each of their presets as MODEL:PRESET."""
    plain = [(m["name"], ", ".join(m["nodes"])) for m in client.items("/models")]
    return [*plain, *presets(client)]


def presets(client: Client) -> Offers:
    return [(f"{p['model']}:{p['name']}", p["engine"]) for p in client.items("/presets")]


def bookings(app: App) -> Callable[[Client], Offers]:
    """Coming and running ones: one's own, or for who decides everybody's."""

    def ask(client: Client) -> Offers:
        me = client.get("/me")
        holder = me["id"] if me["role"] == "user" else None
        rows = client.items("/reservations", MOST, holder=holder, **{"from": times.rfc3339(app.clock())})
        holding = (r for r in rows if r["status"] in ("pending", "approved"))
        return [(r["id"], f"{r['channel']} {app.window(r['starts_at'], r['ends_at'])}") for r in holding]

    return ask


def named(path: str) -> Callable[[Client], Offers]:
    """The names of a list: nodes, people, keys."""
    return lambda client: [(str(row["name"]), str(row.get("role") or "")) for row in client.items(path, MOST)]


class Named(click.ParamType[str]):
    """A text that Tab completes."""

    def __init__(self, name: str, ask: Callable[[Client], Offers]) -> None:
        self.name, self._ask = name, ask

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return offered(ctx, incomplete, self._ask)


class Booking(Named):
    """A booking's id."""

    def __init__(self) -> None:
        super().__init__("id", lambda client: ())

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return offered(ctx, incomplete, bookings(ctx.find_object(App) or App()))


MODEL = Named("model", models)
PRESET = Named("preset", presets)
NODE = Named("node", named("/nodes"))
PERSON = Named("name", named("/users"))
KEY = Named("key", named("/keys"))
BOOKING = Booking()

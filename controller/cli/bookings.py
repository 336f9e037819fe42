"""`slotserve bookings` and `booking …`: what is booked, and changing it."""

from __future__ import annotations

from typing import Any

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.booking_words import holder_of, model_of, people_of, say_booked, status, what, with_call
from controller.cli.complete import BOOKING, MODEL, PERSON
from controller.cli.ids import booking_id, booking_path
from controller.cli.options import CHANNEL, Group, command

STATES = ("pending", "approved", "running", "rejected", "expired", "cancelled", "ended_early", "finished")


@click.command()
@click.option("--all", "everybody", is_flag=True, help="Everybody's.")
@click.option("--channel", type=CHANNEL, help="Only that one.")
@click.option("--from", "begin", default="now", show_default=True, help="Those that end after this.")
@click.option("--to", "end", help="Those that begin before this.")
@click.option("--status", "state", type=click.Choice(STATES), help="Only those of it, past ones too.")
@command
def bookings(app: App, everybody: bool, channel: str | None, begin: str, end: str | None, state: str | None) -> None:
    """Bookings: yours, or everybody's. Coming and running ones, unless a status is named."""
    span: dict[str, Any] = {"from": times.rfc3339(app.instant(begin, what="--from"))}
    if end:
        span["to"] = times.rfc3339(app.instant(end, app.clock(), "--to"))
    with app.client() as client:
        mine = None if everybody else client.get("/me")["id"]
        found = list(client.items("/reservations", channel=channel, holder=mine, status=state, **span))
    items = found if state else [r for r in found if r["status"] in ("pending", "approved")]
    rows = [
        [r["id"], r["channel"], what(r), app.window(r["starts_at"], r["ends_at"]), status(r), holder_of(r)]
        for r in items
    ]
    nothing = "No bookings" if everybody else "No bookings of yours (--all: everybody's)"
    app.out({"items": items}, lambda: _list(app, rows, items, f"{nothing}; slotserve slots shows what is free."))


def _list(app: App, rows: list[list[Any]], items: list[dict[str, Any]], nothing: str) -> None:
    app.table(["id", "channel", "what", "time", "status", "holder"], rows, nothing)
    for item in items:
        if item.get("problem"):
            click.echo(app.told(f"{item['id']}: {item['problem']}; slotserve booking show {item['id']}"))


@click.group(cls=Group)
def booking() -> None:
    """One booking: show, edit, extend, move, end, cancel, uncancel, approve, reject.

    ID may be its last few characters, where no other booking ends with them."""


@booking.command("show")
@click.argument("booking_id", metavar="ID", type=BOOKING)
@command
def show(app: App, booking_id: str) -> None:
    """Everything about a booking, and how to call it."""
    with app.client() as client:
        item = with_call(client, client.get(booking_path(client, booking_id)))
    app.out(item, lambda: say_booked(app, item))


@booking.command("edit")
@click.argument("booking_id", metavar="ID", type=BOOKING)
@click.option("--model", metavar="MODEL[:PRESET]", type=MODEL, help="Another model.")
@click.option("--at", help="A new start.")
@click.option("--until", help="A new end.")
@click.option("--for", "duration", help="A new length.")
@click.option("--channel", type=CHANNEL, help="Another channel.")
@click.option("--note", help="A new note.")
@click.option(
    "--participant", "participants", multiple=True, metavar="NAME", type=PERSON, help="All of them; replaces the list."
)
@click.option("--reason", help="For administrators who change somebody else's.")
@command
def edit(app: App, booking_id: str, **given: Any) -> None:
    """Change a booking; what grows is checked as a new one would be."""
    if given["until"] and given["duration"]:
        raise click.UsageError("--for and --until exclude each other.")
    with app.client() as client:
        where = booking_path(client, booking_id)
        old = client.get(where)
        body: dict[str, Any] = {k: given[k] for k in ("channel", "note", "reason") if given[k] is not None}
        if given["model"]:
            body["model"], body["preset"] = model_of(client, given["model"])
        start, end = times.from_api(old["starts_at"]), times.from_api(old["ends_at"])
        if given["at"]:
            length = end - start
            start = app.instant(given["at"], what="--at")
            end = start + length  # moved whole, unless an end or length is named as well
            at = "now" if given["at"].strip().lower() == "now" else times.rfc3339(start)
            body |= {"starts_at": at, "ends_at": times.rfc3339(end)}
        if given["duration"]:
            body["ends_at"] = times.rfc3339(start + round(app.duration(given["duration"], "--for") * 1000))
        elif given["until"]:
            body["ends_at"] = times.rfc3339(app.instant(given["until"], start, "--until"))
        if given["participants"]:
            body["participants"] = people_of(client, given["participants"])
        if not body:
            raise click.UsageError("Nothing to change; name at least one option.")
        item = client.patch(where, {"version": old["version"], **body})
    app.out(item, lambda: say_booked(app, item))


@booking.command("extend")
@click.argument("booking_id", metavar="ID", type=BOOKING)
@click.option("--by", "duration", help="How much longer: 30m.")
@click.option("--until", help="A new end.")
@click.option("--reason", help="For administrators who act on somebody else's.")
@command
def extend(app: App, booking_id: str, duration: str | None, until: str | None, reason: str | None) -> None:
    """Make a booking longer."""
    if bool(duration) == bool(until):
        raise click.UsageError("Say --by 30m, or --until 18:00.")
    with app.client() as client:
        where = booking_path(client, booking_id)
        old = client.get(where)
        end = times.from_api(old["ends_at"])
        new = (
            end + round(app.duration(duration, "--by") * 1000) if duration else app.instant(until or "", end, "--until")
        )
        body = {"ends_at": times.rfc3339(new), **({"reason": reason} if reason else {})}
        item = client.post(f"{where}/extend", body)
    app.out(
        item,
        lambda: click.echo(
            f"{item['channel']} is yours until {app.when(item['ends_at'])}."
            if not reason
            else f"Extended to {app.when(item['ends_at'])}."
        ),
    )


@booking.command("move")
@click.argument("booking_id", metavar="ID", type=BOOKING)
@click.option("--channel", type=CHANNEL, help="Where to; without it the best that fits.")
@click.option("--reason", help="For administrators who move somebody else's.")
@command
def move(app: App, booking_id: str, channel: str | None, reason: str | None) -> None:
    """Take a booking to another channel, such as when its node is lost.

    One that is still to come keeps its id. A running one is ended, and what is left of it begins on the other channel."""
    body = {name: value for name, value in (("channel", channel), ("reason", reason)) if value}
    with app.client() as client:
        item = with_call(client, client.post(booking_path(client, booking_id) + "/move", body))
    app.out(item, lambda: say_booked(app, item))


def _ending(name: str, text: str) -> None:
    @booking.command(name, help=text)
    @click.argument("booking_id", metavar="ID", type=BOOKING)
    @click.option("--reason", help="Told to the holder.")
    @click.option("--series", is_flag=True, help="Of a repeated booking: all that are still to come.")
    @click.option("--following", is_flag=True, help="Of a repeated booking: this one and those after it.")
    @command
    def ending(app: App, booking_id: str, reason: str | None, series: bool, following: bool) -> None:
        if series and following:
            raise click.UsageError("--series and --following exclude each other.")
        body: dict[str, Any] = {"reason": reason} if reason else {}
        if series or following:
            body["scope"] = "all" if series else "following"
        with app.client() as client:
            item = client.post(f"{booking_path(client, booking_id)}/{name}", body)
        rows = item.get("changed") or [item]
        app.out(item, lambda: click.echo("\n".join(f"{r['id']} is {status(r)}." for r in rows)))


@booking.command("uncancel")
@click.argument("booking_id", metavar="ID", type=BOOKING)
@click.option("--reason", help="For administrators who act on somebody else's.")
@command
def uncancel(app: App, booking_id: str, reason: str | None) -> None:
    """Take a cancellation back: the same booking, where its time is still free."""
    with app.client() as client:
        item = client.post(f"{booking_path(client, booking_id)}/uncancel", {"reason": reason} if reason else {})
    app.out(item, lambda: say_booked(app, item))


def _decision(name: str, text: str, needs_reason: bool = False) -> None:
    @booking.command(name, help=text)
    @click.argument("booking_ids", metavar="ID...", nargs=-1, required=True, type=BOOKING)
    @click.option("--reason", required=needs_reason, help="Told to the holder.")
    @command
    def decide(app: App, booking_ids: tuple[str, ...], reason: str | None) -> None:
        said = {"reason": reason} if reason else {}
        with app.client() as client:
            if len(booking_ids) == 1:
                item = client.post(f"{booking_path(client, booking_ids[0])}/{name}", said)
                app.out(item, lambda: click.echo(f"{item['id']} is {status(item)}."))
                return
            body = {"ids": [booking_id(client, one) for one in booking_ids], "approve": name == "approve", **said}
            answer = client.post("/reservations/decide", body)
        app.out(answer, lambda: _say_decided(answer))
        if answer["decided"] < len(answer["items"]):
            raise click.exceptions.Exit(1)


def _say_decided(answer: dict[str, Any]) -> None:
    for item in answer["items"]:
        if item["error"]:
            click.echo(f"{item['id']}: {item['error']['message']}", err=True)
        else:
            click.echo(f"{item['id']} is {status(item)}.")


_ending("end", "End a running booking now (before its start: cancel it).")
_ending("cancel", "Cancel a coming booking (a running one: end it).")
_decision("approve", "Approve requests.")
_decision("reject", "Reject requests, with a reason.", needs_reason=True)

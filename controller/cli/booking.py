"""`slotserve book`, `bookings`, `booking …` and `slots`."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.channels import channel_name
from controller.cli.client import Client, Refused, path_of, ways_out
from controller.cli.options import CHANNEL, command, name_of, split_model
from controller.words import STATUSES

COUNTS_AS_NOW = 60_000  # the controller takes a start up to a minute ago as now; so is one that is a minute ahead


@click.command()
@click.argument("model", metavar="MODEL[:PRESET]", required=False)
@click.option("--channel", type=CHANNEL, help="node/name; without it the best one is picked.")
@click.option("--for", "duration", default="1h", show_default=True, help="How long: 90m, 1h30m, 2h.")
@click.option("--at", default="now", show_default=True, help="When: now, 14:00, 'tomorrow 9:00', +2h, RFC 3339.")
@click.option("--until", help="The end, instead of --for.")
@click.option("--exclusive", is_flag=True, help="The whole card: nothing is loaded.")
@click.option("--note", help="Seen by you, participants, approvers and administrators.")
@click.option(
    "--participant", "participants", multiple=True, metavar="NAME", help="May call as you do; may be repeated."
)
@click.option("--holder", metavar="NAME", help="Book for somebody else (administrators).")
@click.option("--check", is_flag=True, help="Only say what would happen.")
@command
def book(app: App, **given: Any) -> None:
    """Book a channel for a model, and print when it is ready and how to call it.

    \b
    slotserve book Qwen3-32B:chat --for 2h
    slotserve book Qwen3-32B --channel gpu-a01/main --at 'tomorrow 9:00' --for 90m
    slotserve book --exclusive --channel gpu-a01/main --for 1h
    """
    if bool(given["model"]) == given["exclusive"]:
        raise click.UsageError("Name a model, or --exclusive.")
    with app.client() as client:
        body = _wanted(app, client, given)
        if given["check"]:
            place = given["channel"] or _best(app, client, body)[0]
            answer = {"channel": place, **client.post("/reservations/check", {**body, "channel": place})}
            app.out(answer, lambda: _say_check(app, answer))
            if answer.get("problems"):
                raise click.exceptions.Exit(1)
            return
        made = _book(client, body, [given["channel"]] if given["channel"] else _best(app, client, body))
        answer = _with_call(client, made)
    app.out(answer, lambda: _say_booked(app, answer))


@click.command()
@click.option("--all", "everybody", is_flag=True, help="Everybody's.")
@click.option("--channel", type=CHANNEL)
@click.option("--from", "begin", default="now", show_default=True, help="Those that end after this.")
@click.option("--to", "end", help="Those that begin before this.")
@click.option("--status", "state", help="pending, approved, rejected, expired, cancelled, ended_early or finished.")
@command
def bookings(app: App, everybody: bool, channel: str | None, begin: str, end: str | None, state: str | None) -> None:
    """Bookings: yours, or everybody's. Coming and running ones, unless a status is named."""
    span: dict[str, Any] = {"from": times.rfc3339(app.instant(begin, what="--from"))}
    if end:
        span["to"] = times.rfc3339(app.instant(end, app.clock(), "--to"))
    with app.client() as client:
        holder = None if everybody else client.get("/me")["id"]
        found = list(client.items("/reservations", channel=channel, holder=holder, status=state, **span))
    items = found if state else [r for r in found if r["status"] in ("pending", "approved")]
    rows = [
        [r["id"], r["channel"], _what(r), app.window(r["starts_at"], r["ends_at"]), _status(r), _holder(r)]
        for r in items
    ]
    app.out(
        {"items": items},
        lambda: app.table(
            ["id", "channel", "what", "time", "status", "holder"],
            rows,
            "No bookings; slotserve slots shows what is free.",
        ),
    )


@click.group()
def booking() -> None:
    """One booking: show, edit, extend, end, cancel, approve, reject."""


@booking.command("show")
@click.argument("booking_id", metavar="ID")
@command
def show(app: App, booking_id: str) -> None:
    """Everything about a booking, and how to call it."""
    with app.client() as client:
        item = _with_call(client, client.get(path_of("reservations", booking_id)))
    app.out(item, lambda: _say_booked(app, item))


@booking.command("edit")
@click.argument("booking_id", metavar="ID")
@click.option("--model", metavar="MODEL[:PRESET]")
@click.option("--at", help="A new start.")
@click.option("--until", help="A new end.")
@click.option("--for", "duration", help="A new length.")
@click.option("--channel", type=CHANNEL)
@click.option("--note")
@click.option("--participant", "participants", multiple=True, metavar="NAME", help="All of them; replaces the list.")
@click.option("--reason", help="For administrators who change somebody else's.")
@command
def edit(app: App, booking_id: str, **given: Any) -> None:
    """Change a booking; what grows is checked as a new one would be."""
    if given["until"] and given["duration"]:
        raise click.UsageError("--for and --until exclude each other.")
    with app.client() as client:
        old = client.get(path_of("reservations", booking_id))
        body: dict[str, Any] = {k: given[k] for k in ("channel", "note", "reason") if given[k] is not None}
        if given["model"]:
            body["model"], body["preset"] = _model(client, given["model"])
        start, end = times.from_api(old["starts_at"]), times.from_api(old["ends_at"])
        if given["at"]:
            length = end - start
            start = app.instant(given["at"], what="--at")
            end = start + length  # moved whole, unless an end or length is named as well
            body |= {"starts_at": times.rfc3339(start), "ends_at": times.rfc3339(end)}
        if given["duration"]:
            body["ends_at"] = times.rfc3339(start + round(app.duration(given["duration"], "--for") * 1000))
        elif given["until"]:
            body["ends_at"] = times.rfc3339(app.instant(given["until"], start, "--until"))
        if given["participants"]:
            body["participants"] = _people(client, given["participants"])
        if not body:
            raise click.UsageError("Nothing to change; name at least one option.")
        item = client.patch(path_of("reservations", booking_id), {"version": old["version"], **body})
    app.out(item, lambda: _say_booked(app, item))


@booking.command("extend")
@click.argument("booking_id", metavar="ID")
@click.option("--by", "duration", help="How much longer: 30m.")
@click.option("--until", help="A new end.")
@click.option("--reason", help="For administrators who act on somebody else's.")
@command
def extend(app: App, booking_id: str, duration: str | None, until: str | None, reason: str | None) -> None:
    """Make a booking longer."""
    if bool(duration) == bool(until):
        raise click.UsageError("Say --by 30m, or --until 18:00.")
    with app.client() as client:
        old = client.get(path_of("reservations", booking_id))
        end = times.from_api(old["ends_at"])
        new = (
            end + round(app.duration(duration, "--by") * 1000) if duration else app.instant(until or "", end, "--until")
        )
        body = {"ends_at": times.rfc3339(new), **({"reason": reason} if reason else {})}
        item = client.post(path_of("reservations", booking_id) + "/extend", body)
    app.out(
        item,
        lambda: click.echo(
            f"{item['channel']} is yours until {app.when(item['ends_at'])}."
            if not reason
            else f"Extended to {app.when(item['ends_at'])}."
        ),
    )


def _decision(name: str, text: str, needs_reason: bool = False) -> None:
    @booking.command(name, help=text)
    @click.argument("booking_id", metavar="ID")
    @click.option("--reason", required=needs_reason, help="Told to the holder.")
    @command
    def decide(app: App, booking_id: str, reason: str | None) -> None:
        with app.client() as client:
            item = client.post(f"{path_of('reservations', booking_id)}/{name}", {"reason": reason} if reason else {})
        app.out(item, lambda: click.echo(f"{booking_id} is {_status(item)}."))


_decision("end", "End a running booking now (before its start: cancel it).")
_decision("cancel", "Cancel a coming booking (a running one: end it).")
_decision("approve", "Approve a request.")
_decision("reject", "Reject a request, with a reason.", needs_reason=True)


@click.command()
@click.argument("model", metavar="[MODEL[:PRESET]]", required=False)
@click.option("--for", "duration", default="1h", show_default=True)
@click.option("--after", default="now", show_default=True)
@click.option("--exclusive", is_flag=True)
@command
def slots(app: App, model: str | None, duration: str, after: str, exclusive: bool) -> None:
    """The nearest free windows across all channels, best first, and why."""
    if bool(model) == exclusive:
        raise click.UsageError("Name a model, or --exclusive.")
    with app.client() as client:
        name, preset = _model(client, model) if model else (None, None)
        minutes = app.duration(duration, "--for") / 60
        answer = client.get(
            "/slots",
            model=name,
            preset=preset,
            minutes=_number(minutes),
            after=times.rfc3339(app.instant(after, what="--after")),
            kind="exclusive" if exclusive else "model",
        )
    rows = [
        [s["channel"], app.window(s["starts_at"], s["ends_at"]), app.told(s.get("why", ""))] for s in answer["items"]
    ]
    app.out(answer, lambda: app.table(["channel", "free", "why"], rows, "Nothing free."))


def _wanted(app: App, client: Client, given: dict[str, Any]) -> dict[str, Any]:
    """The body of the request, without its channel."""
    start = app.instant(given["at"], what="--at")
    if given["until"]:
        end = app.instant(given["until"], start, "--until")
    else:
        end = start + round(app.duration(given["duration"], "--for") * 1000)
    body: dict[str, Any] = {
        "kind": "exclusive" if given["exclusive"] else "model",
        "starts_at": "now" if given["at"].strip().lower() == "now" else times.rfc3339(start),
        "ends_at": times.rfc3339(end),
    }
    if given["model"]:
        body["model"], body["preset"] = _model(client, given["model"])
    if given["note"]:
        body["note"] = given["note"]
    if given["participants"]:
        body["participants"] = _people(client, given["participants"])
    if given["holder"]:
        body["holder"] = _people(client, [given["holder"]])[0]
    return body


def _best(app: App, client: Client, body: dict[str, Any]) -> list[str]:
    """Channels that are free as it is wished, in the controller's order (best first); the nearest others where none is."""
    start = app.clock() if body["starts_at"] == "now" else times.from_api(body["starts_at"])
    wish = {"model": body.get("model"), "preset": body.get("preset"), "kind": body["kind"]}
    minutes = _number(
        round((times.from_api(body["ends_at"]) - start) / 1000) / 60
    )  # looking the model up took a moment
    found = client.get("/slots", **wish, minutes=minutes, after=body["starts_at"], limit=100)["items"]
    places = [s["channel"] for s in found if times.from_api(s["starts_at"]) <= start + COUNTS_AS_NOW]
    if places:
        there = _serving(client, {"model": wish["model"], "preset": wish["preset"]}) if len(places) > 1 else set()
        return sorted(places, key=lambda place: place not in there)
    first = f"no channel is free for that at {app.when(times.rfc3339(start))}"
    raise Refused("\n".join([first, *ways_out({"suggestions": found}, app)]))


def _serving(client: Client, target: dict[str, Any]) -> set[str]:
    """Channels that serve the target already: no time goes to loading."""
    return {
        channel_name(c)
        for c in client.items("/channels")
        if c["phase"] == "ready" and not c["fallback"] and c["running"] == target
    }


def _book(client: Client, body: dict[str, Any], places: list[str]) -> dict[str, Any]:
    """Books the first of the channels that still can: another person may be faster, a policy may be against it."""
    for place in places[:-1]:
        try:
            return dict(client.post("/reservations", {**body, "channel": place}))
        except Refused as err:
            if err.status not in (409, 422):
                raise
    return dict(client.post("/reservations", {**body, "channel": places[-1]}))


def _with_call(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    """The booking with `ready_at` (where the answer lacks it) and a curl line that works as it stands."""
    if made["kind"] != "model" or made["status"] not in ("approved", "pending"):
        return made
    item = client.get(path_of("channels", made["channel"]))
    if item.get("gateway_url"):
        made["curl"] = curl_line(item["gateway_url"], made["channel"], client.key, made["model"], made.get("preset"))
    return made


def curl_line(gateway_url: str, channel: str, key: str, model: str, preset: str | None = None) -> str:
    """One line for a shell that asks the channel's model a question."""
    body = {
        "model": f"{model}:{preset}" if preset else model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 32,
    }
    base = gateway_url.rstrip("/").removesuffix("/v1")
    if channel and "/channels/" not in base:
        base += f"/channels/{channel.partition('/')[2]}"
    words = [
        "curl",
        "-sS",
        base + "/v1/chat/completions",
        "-H",
        f"Authorization: Bearer {key}",
        "-H",
        "Content-Type: application/json",
        "-d",
        json.dumps(body, ensure_ascii=False),
    ]
    return shlex.join(words)


def _say_booked(app: App, item: dict[str, Any]) -> None:
    click.echo(
        f"{item['channel']}  {_what(item)}  {app.window(item['starts_at'], item['ends_at'])} ({times.zone_name(app.zone)})  {_status(item)}"
    )
    click.echo(f"booking  {item['id']}")
    if item.get("note"):
        click.echo(f"note     {item['note']}")
    if item.get("ready_at"):
        click.echo(
            f"ready    at about {app.when(item['ready_at'])}"
            + (f" (loads in about {item['load_seconds']:.0f} s)" if item.get("load_seconds") else "")
        )
    for hint in item.get("hints") or []:
        click.echo(app.told(f"hint     {_problem(hint)}"))
    if item.get("exceeds_gpu_memory"):
        click.echo("hint     exceeds GPU memory")
    if item.get("curl"):
        click.echo(item["curl"])


def _say_check(app: App, answer: dict[str, Any]) -> None:
    for problem in answer.get("problems") or []:
        click.echo(app.told(f"{answer['channel']}: {_problem(problem)}"))
    for line in ways_out(answer, app):
        click.echo(line)
    if not answer.get("problems"):
        ready = f"; ready at about {app.when(answer['ready_at'])}" if answer.get("ready_at") else ""
        click.echo(f"{answer['channel']}: free{ready}")
    for hint in answer.get("hints") or []:
        click.echo(app.told(f"hint: {_problem(hint)}"))


def _problem(problem: Any) -> str:
    return str(problem.get("message") or problem.get("code")) if isinstance(problem, dict) else str(problem)


def _what(item: dict[str, Any]) -> str:
    return "exclusive" if item["kind"] == "exclusive" else name_of(item)


def _status(item: dict[str, Any]) -> str:
    return STATUSES["running"] if item.get("running") else STATUSES.get(item["status"], str(item["status"]))


def _holder(item: dict[str, Any]) -> str:
    holder = item.get("holder")
    return str((holder.get("name") if isinstance(holder, dict) else holder) or item.get("holder_name") or "")


def _model(client: Client, text: str) -> tuple[str, str | None]:
    return split_model(text, {m["name"] for m in client.items("/models")})


def _people(client: Client, names: tuple[str, ...] | list[str]) -> list[str]:
    """Ids of people by name or id."""
    known = {u["name"]: u["id"] for u in client.items("/users")}
    missing = [n for n in names if n not in known and n not in known.values()]
    if missing:
        raise Refused(f"nobody is called {', '.join(missing)}")
    return [known.get(n, n) for n in names]


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value

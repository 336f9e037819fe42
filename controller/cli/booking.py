"""`slotserve book` and `slots`."""

from __future__ import annotations

from typing import Any

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.booking_words import model_of, people_of, say_booked, say_check, with_call
from controller.cli.channels import channel_name
from controller.cli.client import Client, Refused, ways_out
from controller.cli.complete import MODEL, PERSON
from controller.cli.options import CHANNEL, command

DAY = 86_400_000
WEEK = 7 * DAY
COUNTS_AS_NOW = 60_000  # the controller takes a start up to a minute ago as now; so is one that is a minute ahead


@click.command()
@click.argument("model", metavar="MODEL[:PRESET]", required=False, type=MODEL)
@click.option("--channel", type=CHANNEL, help="node/name; without it the best one is picked.")
@click.option("--for", "duration", default="1h", show_default=True, help="How long: 90m, 1h30m, 2h.")
@click.option("--at", default="now", show_default=True, help="When: now, 14:00, 'tomorrow 9:00', +2h, RFC 3339.")
@click.option("--until", help="The end, instead of --for; with --repeat the last day, such as 2030-03-31.")
@click.option("--exclusive", is_flag=True, help="The whole card: nothing is loaded.")
@click.option("--note", help="Seen by you, participants, approvers and administrators.")
@click.option(
    "--participant",
    "participants",
    multiple=True,
    metavar="NAME",
    type=PERSON,
    help="May call as you do; may be repeated.",
)
@click.option("--holder", metavar="NAME", type=PERSON, help="Book for somebody else (administrators).")
@click.option(
    "--repeat", type=click.Choice(("daily", "weekly")), help="Again, by wall clock; --until or --times ends it."
)
@click.option("--days", metavar="MON,WED", help="With --repeat: on these weekdays only.")
@click.option("--times", "count", type=click.IntRange(1, 366), help="With --repeat: how often.")
@click.option("--skip", is_flag=True, help="With --repeat: leave out what clashes, instead of booking nothing.")
@click.option("--maintenance", is_flag=True, help="Take the channel for maintenance (administrators).")
@click.option("--clear", is_flag=True, help="With --maintenance: bookings in the way make room and are told --reason.")
@click.option("--reason", help="Told to holders whose bookings make way.")
@click.option("--check", is_flag=True, help="Only say what would happen.")
@command
def book(app: App, **given: Any) -> None:
    """Book a channel for a model, and print when it is ready and how to call it.

    \b
    slotserve book Qwen3-32B:chat --for 2h
    slotserve book Qwen3-32B --channel gpu-a01/main --at 'tomorrow 9:00' --for 90m
    slotserve book --exclusive --channel gpu-a01/main --for 1h
    slotserve book Qwen3-32B --at 'mon 9:00' --for 2h --repeat weekly --until 2030-03-31
    slotserve book --maintenance --channel gpu-a01/main --at 'sat 8:00' --for 4h --clear --reason 'new driver'
    """
    _usage(given)
    with app.client() as client:
        body = _wanted(app, client, given)
        if given["check"]:
            place = given["channel"] or _best(app, client, body)[0]
            answer = {"channel": place, **client.post("/reservations/check", {**body, "channel": place})}
            app.out(answer, lambda: say_check(app, answer))
            if answer.get("problems"):
                raise click.exceptions.Exit(1)
            return
        made = _book(client, body, [given["channel"]] if given["channel"] else _best(app, client, body))
        answer = with_call(client, made)
    app.out(answer, lambda: say_booked(app, answer))


@click.command()
@click.argument("model", metavar="[MODEL[:PRESET]]", required=False, type=MODEL)
@click.option("--for", "duration", default="1h", show_default=True, help="How long: 90m, 1h30m, 2h.")
@click.option("--after", default="now", show_default=True, help="Near to when: 14:00, 'tomorrow 9:00', +2h, RFC 3339.")
@click.option("--exclusive", is_flag=True, help="The whole card instead of a model.")
@click.option("--channel", type=CHANNEL, help="With --tell-me: only there.")
@click.option("--before", help="With --tell-me: the slot ends by then; a week from --after when missing.")
@click.option("--tell-me", is_flag=True, help="Tell me once when such a slot gets free, instead of listing.")
@command
def slots(
    app: App,
    model: str | None,
    duration: str,
    after: str,
    exclusive: bool,
    channel: str | None,
    before: str | None,
    tell_me: bool,
) -> None:
    """The nearest free windows across all channels, best first, and why.

    \b
    slotserve slots Qwen3-32B --for 2h
    slotserve slots Qwen3-32B --for 2h --before 'tomorrow 18:00' --tell-me
    """
    if (channel or before) and not tell_me:
        raise click.UsageError("--channel and --before go with --tell-me.")
    if bool(model) == exclusive:
        raise click.UsageError("Name a model, or --exclusive.")
    with app.client() as client:
        name, preset = model_of(client, model) if model else (None, None)
        minutes = app.duration(duration, "--for") / 60
        if tell_me:
            _tell_me(app, client, name, preset, minutes, after, before, channel)
            return
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


def _tell_me(
    app: App,
    client: Client,
    model: str | None,
    preset: str | None,
    minutes: float,
    after: str,
    before: str | None,
    channel: str | None,
) -> None:
    """Waits for a slot; where one is free already, the refusal shows it."""
    start = app.instant(after, what="--after")
    body: dict[str, Any] = {
        "kind": "model" if model else "exclusive",
        "minutes": max(1, round(minutes)),
        "not_before": "now" if after.strip().lower() == "now" else times.rfc3339(start),
        "not_after": times.rfc3339(app.instant(before, start, "--before") if before else start + WEEK),
    }
    body |= {name: value for name, value in (("model", model), ("preset", preset), ("channel", channel)) if value}
    made = client.post("/watches", body)
    app.out(
        made,
        lambda: click.echo(
            f"You are told once when {made['minutes']} min get free before {app.when(made['not_after'])} ({made['id']})."
        ),
    )


def _usage(given: dict[str, Any]) -> None:
    if bool(given["model"]) + given["exclusive"] + given["maintenance"] != 1:
        raise click.UsageError("Name a model, or --exclusive, or --maintenance.")
    if given["maintenance"] and not given["channel"]:
        raise click.UsageError("--maintenance needs --channel.")
    if given["clear"] and not (given["maintenance"] and given["reason"]):
        raise click.UsageError("--clear goes with --maintenance and a --reason.")
    for option in ("days", "count", "skip"):
        if given[option] and not given["repeat"]:
            raise click.UsageError(f"--{'times' if option == 'count' else option} needs --repeat.")
    if given["repeat"] and bool(given["count"]) == bool(given["until"]):
        raise click.UsageError("--repeat needs --until DAY or --times N.")


def _wanted(app: App, client: Client, given: dict[str, Any]) -> dict[str, Any]:
    """The body of the request, without its channel."""
    start = app.instant(given["at"], what="--at")
    if given["until"] and not given["repeat"]:
        end = app.instant(given["until"], start, "--until")
        if times.is_clock(given["until"]) and end - start == DAY:
            words = "is the start itself; say --for 1d for a whole day, or name the day as 'tomorrow 14:00'"
            raise click.BadParameter(words, param_hint="--until")
        if end <= start:
            raise click.BadParameter("lies before the start, or is the start", param_hint="--until")
    else:
        end = start + round(app.duration(given["duration"], "--for") * 1000)
    body: dict[str, Any] = {
        "kind": "model" if given["model"] else "exclusive",
        "starts_at": "now" if given["at"].strip().lower() == "now" else times.rfc3339(start),
        "ends_at": times.rfc3339(end),
    }
    if given["model"]:
        body["model"], body["preset"] = model_of(client, given["model"])
    if given["repeat"]:
        body["repeat"] = _repeat(app, given)
    if given["maintenance"]:
        body |= {"maintenance": True, "clear_conflicts": given["clear"]}
    if given["reason"]:
        body["reason"] = given["reason"]
    if given["note"]:
        body["note"] = given["note"]
    if given["participants"]:
        body["participants"] = people_of(client, given["participants"])
    if given["holder"]:
        body["holder"] = people_of(client, [given["holder"]])[0]
    return body


def _repeat(app: App, given: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "every": {"daily": "day", "weekly": "week"}[given["repeat"]],
        "zone": times.zone_name(app.zone),
        "on_conflict": "skip" if given["skip"] else "refuse",
    }
    if given["days"]:
        rule["days"] = [day.strip().lower()[:3] for day in given["days"].split(",")]
    return rule | ({"count": given["count"]} if given["count"] else {"until": given["until"].strip()})


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


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else value

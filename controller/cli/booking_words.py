"""How bookings are told to people: in a line, in full, as a check; and the curl line that calls what is booked."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.client import Client, Refused, path_of, ways_out
from controller.cli.options import name_of, split_model
from controller.words import STATUSES


def with_call(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    """The booking with `ready_at` (where the answer lacks it) and a curl line that works as it stands."""
    if made["kind"] != "model" or made["status"] not in ("approved", "pending") or not _may_call(client, made):
        return made
    try:
        item = client.get(path_of("channels", made["channel"]))
    except Refused as err:
        if err.status == 404:  # its node was removed: its hints say so
            return made
        raise
    if item.get("gateway_url"):
        made["curl"] = curl_line(item["gateway_url"], made["channel"], client.key, made["model"], made.get("preset"))
    return made


def _may_call(client: Client, made: dict[str, Any]) -> bool:
    """The holder and the participants; approvers and administrators look at bookings that are closed to them."""
    return bool(made["mine"]) or client.get("/me")["id"] in (made.get("participants") or ())


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


def say_booked(app: App, item: dict[str, Any]) -> None:
    click.echo(
        f"{item['channel']}  {what(item)}  {app.window(item['starts_at'], item['ends_at'])} ({times.zone_name(app.zone)})  {status(item)}"
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
        click.echo(app.told(f"hint     {problem_text(hint)}"))
    if item.get("exceeds_gpu_memory"):
        click.echo("hint     exceeds GPU memory")
    _say_lost(item, app)
    _say_more(item, app)
    if item.get("curl"):
        click.echo(item["curl"])


def _say_lost(item: dict[str, Any], app: App) -> None:
    """What is wrong with the place of a booking, and the way out of it."""
    if not item.get("problem"):
        return
    click.echo(app.told(f"problem  {item['problem']}"))
    for offer in item.get("offers") or []:
        waits = ", needs an approver" if offer["needs_approval"] else ""
        click.echo(app.told(f"free     {offer['channel']}: {offer['why']}{waits}"))
    if offers := item.get("offers"):
        click.echo(f"to move  slotserve booking move {item['id']} --channel {offers[0]['channel']}")
    elif item["mine"]:
        click.echo("to move  no other channel that fits is free for all of that time")


def _say_more(item: dict[str, Any], app: App) -> None:
    """A repeated booking's others, the bare card, and what an approver should know."""
    series = item.get("series") or {}
    for other in (series.get("made") or [])[1:]:
        click.echo(f"again    {app.window(other['starts_at'], other['ends_at'])}  {status(other)}  {other['id']}")
    for left_out in series.get("skipped") or []:
        click.echo(f"left out {app.window(left_out['starts_at'], left_out['ends_at'])}, which is taken")
    if card := item.get("bare_card"):
        click.echo(f"host     {card['host']}")
        if card["cuda_visible_devices"]:
            click.echo(card["cuda_visible_devices"])
        click.echo(card["message"])
        if used := card.get("in_use"):
            number = "1 process" if used["processes"] == 1 else f"{used['processes']} processes"
            click.echo(f"on it    {number}, {used['memory_used_bytes'] >> 20:,} MiB used")
        for p in card["processes"]:
            click.echo(f"process  {p['pid']} {p['user'] or ''} {p['command'] or ''}".rstrip())
    if (calls := item.get("calls")) and calls["requests"]:
        click.echo(f"calls    {calls['requests']:,}, the last {app.when(calls['last_at'])}")
    if request := item.get("request"):
        for text in request["over_limits"]:
            click.echo(f"beyond   {text}")
        click.echo(f"blocks   the time since {app.when(request['since'])}")
        for wish in request["turned_away"]:
            click.echo(
                f"turned away {wish['who'] or 'somebody'}, who wanted {app.window(wish['starts_at'], wish['ends_at'])}"
            )
        of = request["requester"]
        click.echo(f"requester has {of['bookings']} more to come, {of['hours_week']:g} h in that week")


def say_check(app: App, answer: dict[str, Any]) -> None:
    for problem in answer.get("problems") or []:
        click.echo(app.told(f"{answer['channel']}: {problem_text(problem)}"))
    for line in ways_out(answer, app):
        click.echo(line)
    for each in answer.get("occurrences") or []:
        click.echo(f"{answer['channel']}: {app.window(each['starts_at'], each['ends_at'])}  {each['status']}")
    if not answer.get("problems"):
        ready = f"; ready at about {app.when(answer['ready_at'])}" if answer.get("ready_at") else ""
        click.echo(f"{answer['channel']}: free{ready}")
    for hint in answer.get("hints") or []:
        click.echo(app.told(f"hint: {problem_text(hint)}"))
    if answer.get("policy"):
        click.echo("here: " + ", ".join(p["message"] for p in answer["policy"]))


def problem_text(problem: Any) -> str:
    return str(problem.get("message") or problem.get("code")) if isinstance(problem, dict) else str(problem)


def what(item: dict[str, Any]) -> str:
    """Model and preset, exclusive, or maintenance."""
    if item.get("maintenance"):
        return "maintenance"
    return "exclusive" if item["kind"] == "exclusive" else name_of(item)


def status(item: dict[str, Any]) -> str:
    return STATUSES["running"] if item.get("running") else STATUSES.get(item["status"], str(item["status"]))


def holder_of(item: dict[str, Any]) -> str:
    holder = item.get("holder")
    return str((holder.get("name") if isinstance(holder, dict) else holder) or item.get("holder_name") or "")


def model_of(client: Client, text: str) -> tuple[str, str | None]:
    return split_model(text, {m["name"] for m in client.items("/models")})


def people_of(client: Client, names: tuple[str, ...] | list[str]) -> list[str]:
    """Ids of people by name or id."""
    known = {u["name"]: u["id"] for u in client.items("/users")}
    missing = [n for n in names if n not in known and n not in known.values()]
    if missing:
        raise Refused(f"nobody is called {', '.join(missing)}")
    return [known.get(n, n) for n in names]

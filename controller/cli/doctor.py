"""`slotserve doctor`: what is wrong with this machine (doctor_here.py), and with the controller and its nodes.

A line a check: `ok`, `note` (allowed, perhaps not meant) or `WRONG`, with what to do. Exit status 1 where one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from controller.cli import doctor_here, sentence, times
from controller.cli.app import App
from controller.cli.doctor_here import Check
from controller.cli.options import command
from controller.cli.server import in_force
from protos.shared import clocks

NODE_CERTIFICATE_DAYS = 7  # renewed at two thirds of its life, long before


@click.command()
@command
def doctor(app: App) -> None:
    """Look for what is wrong: settings, database, ports and certificates of this machine, the controller, its nodes."""
    chosen, _ = in_force()
    checks = [Check("settings"), *doctor_here.checks(chosen), *_controller(app)]
    app.out(
        {"items": [{"check": c.what, "ok": c.ok, "note": c.note, "problem": c.problem} for c in checks]},
        lambda: _show(checks),
    )
    if not all(c.ok for c in checks):
        raise click.exceptions.Exit(1)


def _show(checks: list[Check]) -> None:
    for check in checks:
        word = "WRONG" if not check.ok else "note " if check.problem else "ok   "
        click.echo(f"{word}  {check.what}")
        if check.problem:
            click.echo(click.wrap_text(check.problem, 80, " " * 7, " " * 7))


def _controller(app: App) -> Iterator[Check]:
    from controller.cli.client import Refused

    try:
        with app.client(5) as client:
            ready = client.ready()
            for problem in ready["problems"]:
                yield Check("controller is not ready", problem)
            for warning in ready["warnings"]:
                yield Check("controller", warning, note=True)
            me = client.get("/me")
            yield Check(f"controller at {client.url}, as {me['name']}")
            yield from (_node(app, node) for node in client.items("/nodes"))
            for item in client.items("/channels"):
                told = sentence.failure(app, item) or (item.get("detail") or "" if item["phase"] == "blocked" else "")
                if told:
                    yield Check(f"channel {item['node']}/{item['name']}", told)
            yield from _slow_disks(client.items("/models"))
            if me["role"] == "admin":
                yield from _messages(client.get("/notifications/delivery"))
    except Refused as err:
        yield Check("controller", err.message)


def _slow_disks(models: Iterable[dict[str, Any]]) -> Iterator[Check]:
    """Nodes whose models lie on a disk that rotates."""
    found: dict[str, list[str]] = {}
    for model in models:
        for copy in model["copies"]:
            if copy.get("rotating_disk"):
                found.setdefault(copy["node"], []).append(model["name"])
    for node, names in sorted(found.items()):
        text = (
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''} on a rotating disk: it loads "
            "slowly; move it to an SSD (the page cache helps only while free memory exceeds the model)"
        )
        yield Check(f"models of node {node}", text, note=True)


def _messages(said: dict[str, Any]) -> Iterator[Check]:
    """Mail, webhooks and chat services that do not take what is sent."""
    if not said["problems"]:
        yield Check(f"messages: {said['waiting']} wait to be sent")
    for problem in said["problems"]:
        yield Check(f"messages by {problem['way']} to {problem['to'] or 'a target that is gone'}", problem["error"])


def _node(app: App, node: dict[str, Any]) -> Check:
    what, skew, plan = f"node {node['name']}", node.get("clock_skew_seconds"), node.get("plan") or {}
    if not node.get("enrolled") and not node.get("last_seen_at"):
        return Check(what, "has not joined yet; slotserve node add prints the command to run on it", note=True)
    if node.get("disabled"):
        return Check(what, f"is cut off; slotserve node enable {node['name']} lets it in", note=True)
    if node.get("turned_away"):
        return Check(what, f"may not connect: {node['turned_away']}")
    if not node.get("online"):
        since = app.when(node.get("last_seen_at") or node.get("since"))
        return Check(what, f"no contact{f' since {since}' if since else ''}; it goes on with the timetable it has")
    if plan.get("refusal"):
        return Check(what, f"refuses its plan: {plan['refusal']}")
    if skew is not None and clocks.wrong(skew):
        text = (
            f"its clock is {abs(skew):.0f} s {'fast' if skew > 0 else 'slow'}, more than {clocks.LIMIT_SECONDS:g} s: its "
            "certificate may count as not yet or no longer valid, and after a reboot without a controller it would switch "
            "at wrong times; start NTP there"
        )
        return Check(what, text)
    if until := node.get("certificate_until"):
        left = (times.from_api(until) - app.clock()) / 86_400_000
        if left < NODE_CERTIFICATE_DAYS:
            text = f"its certificate ends in {max(0, left):.0f} days and was not renewed; look at its agent's log"
            return Check(what, text)
    if node.get("cordoned"):
        end, why = node.get("drain_until"), node.get("cordon_reason")
        text = f"takes no new bookings{f' until {app.when(end)}' if end else ''}{f': {why}' if why else ''}"
        return Check(what, text if end else f"{text}; slotserve node uncordon {node['name']} ends that", note=True)
    if node.get("gpu_problem"):
        return Check(what, node["gpu_problem"])
    if skew is not None and clocks.shown(skew):
        text = (
            f"its clock is {abs(skew):.1f} s {'fast' if skew > 0 else 'slow'} (limit {clocks.LIMIT_SECONDS:g} s); bookings "
            "are corrected for it, logs are not"
        )
        return Check(what, text, note=True)
    return Check(what)

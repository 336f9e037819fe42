"""`slotserve notifications`: what you have been told, what you are told by which ways, and slots that you wait for."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import path_of
from controller.cli.options import Group, command

LIMIT = click.option("--limit", type=click.IntRange(1, 100_000), default=50, help="How many, newest first.")


@click.group(cls=Group, invoke_without_command=True)
@click.option("--unread", is_flag=True, help="Only those not read yet.")
@LIMIT
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON, for scripts.")
@click.pass_context
def notifications(ctx: click.Context, /, unread: bool, limit: int, as_json: bool) -> None:
    """What you have been told, newest first; and how you are told.

    \b
    slotserve notifications --unread
    slotserve notifications read
    slotserve notifications choose ready --by email --by in_app
    slotserve notifications add team 'dingtalk://…'
    """
    app = ctx.find_object(App) or App()
    ctx.obj = app
    app.as_json = app.as_json or as_json
    if ctx.invoked_subcommand is not None:
        return
    with app.client() as client:
        items = list(client.items("/notifications", limit, unread=1 if unread else None))
    app.out({"items": items}, lambda: _show(app, items))


@notifications.command()
@click.argument("ids", nargs=-1, metavar="[ID]…")
@command
def read(app: App, ids: tuple[str, ...]) -> None:
    """Mark notices as read: those named, or all."""
    with app.client() as client:
        answer = client.post("/notifications/read", {"ids": list(ids) or None})
    app.out(answer, lambda: click.echo(f"{answer['read']} marked as read."))


@notifications.command("settings")
@command
def settings_(app: App) -> None:
    """What you are told, and by which ways."""
    with app.client() as client:
        answer = client.get("/me/notifications")
    app.out(answer, lambda: _show_settings(app, answer))


@notifications.command()
@click.argument("kind")
@click.option("--by", "ways", multiple=True, metavar="WAY", help="in_app, email, webhook or chat; may be repeated.")
@click.option("--none", "nothing", is_flag=True, help="By no way at all.")
@click.option("--default", "back", is_flag=True, help="As it comes out of the box.")
@command
def choose(app: App, kind: str, ways: tuple[str, ...], nothing: bool, back: bool) -> None:
    """Choose by which ways you are told of a kind of notice (see settings)."""
    if bool(ways) + nothing + back != 1:
        raise click.UsageError("Say --by WAY (may be repeated), --none or --default.")
    with app.client() as client:
        answer = client.patch("/me/notifications", {"kinds": {kind: None if back else list(ways)}})
    app.out(answer, lambda: _show_settings(app, answer, kind))


@notifications.command()
@click.option("--shared", is_flag=True, help="Everybody's instead of your own (administrators).")
@command
def targets(app: App, shared: bool) -> None:
    """Your webhooks and chat services."""
    with app.client() as client:
        answer = client.get("/notification-targets", shared=1 if shared else None)
    rows = [
        [
            t["id"],
            t["name"],
            t["way"],
            t["url"] or "(key lost: add it anew)",
            ", ".join(t["kinds"]) or "all",
            _state(app, t),
        ]
        for t in answer["items"]
    ]
    app.out(answer, lambda: app.table(["id", "name", "way", "to", "kinds", "last"], rows, "None."))


@notifications.command()
@click.argument("name")
@click.argument("url")
@click.option("--way", type=click.Choice(("webhook", "chat")), help="Guessed from the address when missing.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these; may be repeated.")
@click.option("--shared", is_flag=True, help="Everybody's: failures of all channels and nodes (administrators).")
@click.option("--language", type=click.Choice(("en", "zh_Hans")), help="Of the messages; yours when missing.")
@click.option("--zone", metavar="ZONE", help="As Asia/Shanghai.")
@command
def add(app: App, name: str, url: str, way: str | None, kinds: tuple[str, ...], shared: bool, **more: Any) -> None:
    """Add a webhook (https://…) or a chat service (dingtalk://…, feishu://…, wecombot://…, slack://… or the address
    that the service itself shows), and send a test there."""
    body = {"name": name, "way": way or _guessed(url), "url": url, "shared": shared}
    body |= {"kinds": list(kinds)} if kinds else {}
    body |= {k: v for k, v in more.items() if v}
    with app.client() as client:
        made = client.post("/notification-targets", body)
        tried = client.post(path_of("notification-targets", made["id"], "test"))
    app.out({**made, "test": tried}, lambda: _show_added(made, tried))


@notifications.command()
@click.argument("target_id", metavar="ID")
@command
def remove(app: App, target_id: str) -> None:
    """Remove a webhook or a chat service."""
    with app.client() as client:
        client.delete(path_of("notification-targets", target_id))
    app.out({}, lambda: click.echo("Removed."))


@notifications.command()
@click.argument("target_id", metavar="[ID]", required=False)
@command
def test(app: App, target_id: str | None) -> None:
    """Send a test: to a target, or by mail to yourself. Exit status 1 where it does not get through."""
    with app.client() as client:
        path = path_of("notification-targets", target_id, "test") if target_id else "/me/notifications/test"
        answer = client.post(path)
    app.out(answer, lambda: click.echo("Sent.") if answer["ok"] else None)
    if not answer["ok"]:
        raise click.ClickException(answer["error"])


@notifications.command()
@command
def watches(app: App) -> None:
    """Free slots that you wait for (slotserve slots … --tell-me adds one)."""
    with app.client() as client:
        answer = client.get("/watches")
    rows = [
        [w["id"], _wanted(w), f"{w['minutes']} min", app.when(w["not_before"]), app.when(w["not_after"]), w["state"]]
        for w in answer["items"]
    ]
    app.out(answer, lambda: app.table(["id", "what", "length", "from", "until", "state"], rows, "None."))


@notifications.command()
@click.argument("watch_id", metavar="ID")
@command
def unwatch(app: App, watch_id: str) -> None:
    """Wait no longer for a slot."""
    with app.client() as client:
        client.delete(path_of("watches", watch_id))
    app.out({}, lambda: click.echo("You are not told of it any more."))


@notifications.command()
@command
def delivery(app: App) -> None:
    """Whether messages get through, and where they do not (administrators). Exit status 1 where one does not."""
    with app.client() as client:
        answer = client.get("/notifications/delivery")
    app.out(answer, lambda: _show_delivery(app, answer))
    if answer["problems"]:
        raise click.exceptions.Exit(1)


@notifications.command()
@click.option("--state", type=click.Choice(("waiting", "sent", "failed", "dropped")), help="Only those.")
@LIMIT
@command
def messages(app: App, state: str | None, limit: int) -> None:
    """Messages by mail, webhook and chat (administrators)."""
    with app.client() as client:
        items = list(client.items("/notifications/outbox", limit, state=state))
    rows = [
        [m["id"], app.when(m["created_at"]), m["way"], m["to"], m["kind"], m["state"], m["attempts"], m["error"]]
        for m in items
    ]
    heads = ["id", "at", "way", "to", "kind", "state", "tries", "error"]
    app.out({"items": items}, lambda: app.table(heads, rows, "None."))


@notifications.command()
@click.argument("message_id", metavar="ID")
@command
def retry(app: App, message_id: str) -> None:
    """Send a message again that did not get through (administrators)."""
    with app.client() as client:
        answer = client.post(path_of("notifications", "outbox", message_id, "retry"))
    app.out(answer, lambda: click.echo("It is sent again."))


def _show(app: App, items: list[dict[str, Any]]) -> None:
    if not items:
        click.echo("Nothing new.")
    for item in items:
        title = app.told(item["title"])
        rest = app.told(item["text"].removeprefix(item["title"]).removeprefix(". "))
        click.echo(f"{app.when(item['at'])}  {' ' if item['read_at'] else '*'} {title}")
        if rest and rest != title:
            click.echo(click.wrap_text(rest, 80, " " * 9, " " * 9))


def _show_settings(app: App, answer: dict[str, Any], only: str = "") -> None:
    ways = [w["way"] for w in answer["ways"]]
    shown = [k for k in answer["kinds"] if not only or k["kind"] == only]
    rows = [[k["kind"], *("yes" if w in k["ways"] else "-" for w in ways), k["title"]] for k in shown]
    app.table(["kind", *ways, "what"], rows)
    for way in answer["ways"]:
        if not way["available"] and not only:
            click.echo(f"{way['way']}: {way['why']}")


def _show_added(made: dict[str, Any], tried: dict[str, Any]) -> None:
    click.echo(f"{made['name']} added ({made['id']}).")
    if made.get("secret"):
        click.echo(f"Its secret, shown this once: {made['secret']}")
    click.echo("A test was sent there." if tried["ok"] else f"The test did not get through: {tried['error']}")


def _show_delivery(app: App, answer: dict[str, Any]) -> None:
    click.echo(f"{answer['waiting']} messages wait, {answer['failed']} were given up.")
    for problem in answer["problems"]:
        words = f"{problem['way']} to {problem['to'] or 'a target that is gone'} since {app.when(problem['since'])}"
        click.echo(f"{words}: {app.told(problem['error'])}")


def _wanted(watch: dict[str, Any]) -> str:
    what = watch["model"] or "the whole card"
    return f"{what}{':' + watch['preset'] if watch['preset'] else ''}{' on ' + watch['channel'] if watch['channel'] else ''}"


def _state(app: App, target: dict[str, Any]) -> str:
    if not target["enabled"]:
        return "off"
    last = target["last"]
    return f"{last['state']} {app.when(last['at'])}" if last else "-"


def _guessed(url: str) -> str:
    """A web address is a webhook, unless it is one that a chat service shows."""
    known = ("hooks.slack.com", "oapi.dingtalk.com", "open.feishu.cn", "open.larksuite.com", "qyapi.weixin.qq.com")
    host = url.partition("://")[2].partition("/")[0].lower()
    return "webhook" if url.lower().startswith(("http://", "https://")) and host not in known else "chat"

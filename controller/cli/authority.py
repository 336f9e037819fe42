"""`slotserve ca …`: changing the fleet's certificate authority, on the controller's own machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import Refused
from controller.cli.options import Group, command
from controller.cli.server import in_force


@click.group(cls=Group)
def ca() -> None:
    """The fleet's certificate authority: show it, or change it for a new one (prepare, switch, finish).

    Run it on the controller's machine, with its settings and as its user. A running controller follows by itself; with
    several controllers the folder ca of the state folder is copied to the others after each step.
    """


@ca.command("show")
@command
def show(app: App) -> None:
    """Where a change stands, and the nodes that the next step has to wait for."""
    _step(app, None)


@ca.command("prepare")
@command
def prepare(app: App) -> None:
    """Make a new authority and have every node trust it beside the old one."""
    from controller.fleet import ca_rotation

    _step(app, ca_rotation.prepare)


@ca.command("switch")
@click.option("--leave", multiple=True, metavar="NODE", help="Not wait for this node; it is to be enrolled anew.")
@command
def switch(app: App, leave: tuple[str, ...]) -> None:
    """Have the new one sign. Nodes renew their certificates at once."""
    from controller.fleet import ca_rotation

    _step(app, ca_rotation.switch, leave)


@ca.command("finish")
@click.option("--leave", multiple=True, metavar="NODE", help="Not wait for this node; it is to be enrolled anew.")
@command
def finish(app: App, leave: tuple[str, ...]) -> None:
    """Trust the old one no more."""
    from controller.fleet import ca_rotation

    _step(app, ca_rotation.finish, leave)


def _step(app: App, step: Callable[[Path], Any] | None, leave: tuple[str, ...] = ()) -> None:
    from controller.fleet import ca_rotation, shared_secrets
    from controller.store.nodes import certificates
    from controller.store.session import Store

    settings, _ = in_force()
    folder = settings.state_dir / "ca"
    store = Store(settings.database)
    try:
        now = ca_rotation.look(folder)
        with store.read() as session:
            nodes = certificates(session)
        if step is not None:
            late = [n for n in ca_rotation.waiting(now, nodes) if n not in leave]
            if late and step is not ca_rotation.prepare and now.step != "steady":
                raise Refused(
                    f"too early for {', '.join(late)}: connect them first, or leave them behind with --leave (they then need "
                    "a new join string)"
                )
            now = step(folder)
            shared_secrets.remember(store, settings)
    except ca_rotation.RotationRefused as err:
        raise Refused(str(err)) from None
    finally:
        store.close()
    waiting = ca_rotation.waiting(now, nodes)
    answer = {"step": now.step, "signs": now.signs, "new": now.new, "old": list(now.old), "waiting": waiting}

    def people() -> None:
        click.echo(WORDS[now.step])
        click.echo(f"signs: {now.signs[:16]}")
        if now.new:
            click.echo(f"new:   {now.new[:16]}")
        for old in now.old:
            click.echo(f"old:   {old[:16]}")
        if waiting:
            click.echo(f"waiting for: {', '.join(waiting)}")

    app.out(answer, people)


WORDS = {
    "steady": "One authority; no change is under way.",
    "prepared": "A new authority is trusted beside the one that signs; when nobody is waited for: slotserve ca switch",
    "switched": "The new authority signs, the old one is still trusted; when nobody is waited for: slotserve ca finish",
}

"""`slotserve serve`, `migrate`, `recount`, `settings` and `openapi`: on the controller's own machine."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import Refused
from controller.cli.options import command


def in_force() -> tuple[Any, list[Any]]:
    """(settings, where each comes from); a wrong one is an error that names it."""
    from controller.settings import SettingsError, load_settings

    try:
        return load_settings()
    except SettingsError as err:
        raise click.ClickException(str(err)) from None


class _Help(click.Command):
    """Help that ends with the settings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from controller.settings import load_settings

        with formatter.section("Settings (environment; each also as …_FILE)"):
            formatter.write_dl([(o.variable, f"{o.description} [{_text(o.value)}]") for o in load_settings({})[1]])


@click.command(cls=_Help)
@command
def serve(app: App) -> None:
    """Run the controller: console, REST, planner and the nodes' ports, until SIGTERM."""
    settings, _ = in_force()
    from controller.main import StartRefused
    from controller.main import serve as run

    try:
        status = run(settings)
    except StartRefused as err:
        raise click.ClickException(str(err)) from None
    raise click.exceptions.Exit(status)


@click.command()
@command
def migrate(app: App) -> None:
    """Bring the database to this version."""
    settings, _ = in_force()
    from controller.store import migrate as migrations
    from controller.store.session import Store

    settings.state_dir.mkdir(parents=True, exist_ok=True)
    try:
        store = Store(settings.database)
    except ValueError as err:
        raise click.ClickException(f"SLOTSERVE_DATABASE_URL: {err}") from None
    try:
        try:
            migrations.upgrade(store)
        except migrations.MigrationError as err:
            raise click.ClickException(str(err)) from None
        problems = migrations.check(store)
    finally:
        store.close()
    if problems:
        raise click.ClickException("; ".join(str(p) for p in problems))
    app.out(
        {"database": shown_url(settings.database), "problems": []},
        lambda: click.echo(f"{shown_url(settings.database)} is up to date."),
    )


@click.command()
@command
def recount(app: App) -> None:
    """Make the daily sums that usage is read from anew, from the single requests and changes, also while the controller runs.

    They are made by themselves every night and always say what the rows say; this is for a database that was changed by
    hand. Run it with the controller's settings, as its user.
    """
    settings, _ = in_force()
    from sqlalchemy.exc import SQLAlchemyError

    from controller import usage_days
    from controller.store import migrate as migrations
    from controller.store.session import Store

    store = Store(settings.database)
    try:
        if problems := migrations.check(store):
            raise Refused("; ".join(problems))
        steps = usage_days.recount(store, settings, app.clock())
    except SQLAlchemyError as err:
        raise Refused(str(err).splitlines()[0]) from None
    finally:
        store.close()
    app.out({"steps": steps}, lambda: click.echo(f"The sums are made anew, in {steps} steps."))


@click.command()
@click.option("--local", is_flag=True, help="What this shell's environment says, not the running controller's.")
@command
def settings(app: App, local: bool) -> None:
    """Settings in force and where each comes from: default, environment or a file. With an administrator's key those of
    the running controller, else those that one started from this shell would have."""
    asked = not local and bool(app.credentials()[1])
    if asked:
        with app.client() as client:
            items = client.get("/settings")["items"]
    else:
        from controller import settings_view

        items = settings_view.rows(*in_force())
    rows = [[i["variable"], _text(i["value"]), i["origin"]] for i in items]

    def people() -> None:
        app.table(["setting", "value", "from"], rows)
        if not asked and not local:
            click.echo("From this shell's environment; slotserve login shows the running controller's.", err=True)

    app.out({"items": items, "of": "controller" if asked else "environment"}, people)


@click.command()
@command
def openapi(app: App) -> None:
    """Print the description of the REST interface (OpenAPI 3.1); a running controller has it at /api/v1/openapi.json."""
    import json

    from controller.api import ROUTES
    from controller.api.openapi import document

    click.echo(json.dumps(document(ROUTES), ensure_ascii=False, indent=2))


def shown_url(url: Any) -> str:
    """A database URL without its password."""
    from sqlalchemy.engine import make_url

    return make_url(str(url)).render_as_string(hide_password=True) if url else ""


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)

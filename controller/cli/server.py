"""`slotserve serve`, `migrate` and `settings`: on the controller's own machine."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
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
def settings(app: App) -> None:
    """Settings in force and where each comes from: default, environment or a file."""
    chosen, origins = in_force()
    items = [
        {
            "variable": o.variable,
            "value": _shown(o.variable, o.value, chosen.database),
            "origin": o.origin,
            "description": o.description,
        }
        for o in origins
    ]
    rows = [[i["variable"], _text(i["value"]), i["origin"]] for i in items]
    app.out({"items": items}, lambda: app.table(["setting", "value", "from"], rows))


def shown_url(url: Any) -> str:
    """A database URL without its password."""
    from sqlalchemy.engine import make_url

    return make_url(str(url)).render_as_string(hide_password=True) if url else ""


def _shown(variable: str, value: Any, database: str) -> Any:
    """A setting as it may be seen: without the passwords in it."""
    if variable.endswith("DATABASE_URL"):
        return shown_url(database)
    if variable.endswith(("_PASSWORD", "_SECRET")) and value:
        return "(set)"
    return _plain(value)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)

"""`slotserve serve`, `migrate`, `doctor` and `settings`: on the controller's own machine."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.app import App
from controller.cli.options import command


def _settings() -> tuple[Any, list[Any]]:
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
    settings, _ = _settings()
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
    settings, _ = _settings()
    from controller.store import migrate as migrations
    from controller.store.session import Store

    settings.state_dir.mkdir(parents=True, exist_ok=True)
    store = Store(settings.database)
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
        {"database": _shown_url(settings.database), "problems": []},
        lambda: click.echo(f"{_shown_url(settings.database)} is up to date."),
    )


@click.command()
@command
def settings(app: App) -> None:
    """Settings in force and where each comes from: default, environment or a file."""
    _, origins = _settings()
    items = [
        {
            "variable": o.variable,
            "value": _shown_url(o.value) if o.variable.endswith("DATABASE_URL") else _plain(o.value),
            "origin": o.origin,
            "description": o.description,
        }
        for o in origins
    ]
    rows = [[i["variable"], _text(i["value"]), i["origin"]] for i in items]
    app.out({"items": items}, lambda: app.table(["setting", "value", "from"], rows))


@click.command()
@command
def doctor(app: App) -> None:
    """Look for what is wrong with settings and database on this machine, and with the controller and its nodes."""
    checks: list[dict[str, Any]] = []

    def add(what: str, problem: str = "") -> None:
        checks.append({"check": what, "ok": not problem, "problem": problem})

    chosen, _ = _settings()
    add("settings")
    if chosen.drain_seconds + chosen.stop_timeout_seconds > chosen.switch_buffer_seconds:
        add(
            "timing",
            "SLOTSERVE_DRAIN_SECONDS + SLOTSERVE_STOP_TIMEOUT_SECONDS exceed SLOTSERVE_SWITCH_BUFFER_SECONDS: "
            "a switch may reach into a booking",
        )
    if chosen.database_url or chosen.state_dir.exists():
        add("database", _database_problem(chosen))
    else:
        add(f"database: not on this machine ({chosen.state_dir} is not there)")
    _ask_controller(app, add)
    app.out(
        {"items": checks},
        lambda: app.table(
            ["check", "", "what is wrong"], [[c["check"], "ok" if c["ok"] else "WRONG", c["problem"]] for c in checks]
        ),
    )
    if not all(c["ok"] for c in checks):
        raise click.exceptions.Exit(1)


def _database_problem(chosen: Any) -> str:
    from sqlalchemy.exc import SQLAlchemyError

    from controller.store import migrate as migrations
    from controller.store.session import Store

    if not chosen.database_url and not (chosen.state_dir / "slotserve.db").exists():
        return (
            f"{chosen.state_dir / 'slotserve.db'} is not there; slotserve migrate makes it (or set SLOTSERVE_STATE_DIR)"
        )
    store = Store(chosen.database)
    try:
        return "; ".join(str(p) for p in migrations.check(store))
    except SQLAlchemyError as err:
        return str(err).splitlines()[0]
    finally:
        store.close()


def _ask_controller(app: App, add: Any) -> None:
    from controller.cli.client import Refused

    try:
        with app.client(5) as client:
            me = client.get("/me")
            add(f"controller at {client.url}, as {me['name']}")
            for node in client.items("/nodes"):
                skew = node.get("clock_skew_seconds")
                problem = "" if node.get("online") else "offline"
                if skew is not None and abs(skew) > 2:
                    problem = f"its clock is {abs(skew):.1f} s {'fast' if skew > 0 else 'slow'}; bookings are corrected for it"
                add(f"node {node['name']}", problem)
    except Refused as err:
        add("controller", err.message)


def _shown_url(url: Any) -> str:
    """A database URL without its password."""
    from sqlalchemy.engine import make_url

    return make_url(str(url)).render_as_string(hide_password=True) if url else ""


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)

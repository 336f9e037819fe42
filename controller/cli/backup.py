"""`slotserve backup FILE` and `restore FILE`, on the controller's own machine."""

from __future__ import annotations

from pathlib import Path

import click

from controller.cli import times
from controller.cli.app import App
from controller.cli.client import Refused
from controller.cli.options import command
from controller.cli.server import in_force

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=FILE)
@command
def backup(app: App, file: Path) -> None:
    """Save database, certificate authority and secrets to FILE (mode 0600), also while the controller runs.

    Whoever has the file can be any node and any person: keep it as a password. Engine logs are not in it. It reads
    SLOTSERVE_STATE_DIR and SLOTSERVE_DATABASE_URL, so run it with the controller's settings and as its user.
    """
    from controller import backup as backups

    settings, _ = in_force()
    try:
        contents = backups.backup(settings, file, app.clock())
    except backups.BackupError as err:
        raise Refused(str(err)) from None
    answer = {"file": str(file.absolute()), "bytes": file.stat().st_size, "revision": contents.revision or None}

    def people() -> None:
        click.echo(f"{file}: {answer['bytes']} bytes; slotserve restore {file} puts it back")
        if not contents.revision:
            click.echo("The database is not SQLite and not in the file: save it as well (pg_dump).", err=True)
        if settings.secrets_key:
            click.echo("SLOTSERVE_SECRETS_KEY is not in the file: keep it as well, what it sealed needs it.", err=True)

    app.out(answer, people)


@click.command()
@click.argument("file", type=FILE)
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def restore(app: App, file: Path, yes: bool) -> None:
    """Put a backup in place of what is there; the controller must be stopped.

    What is replaced is kept in a folder beside it. Nodes go on by their plan meanwhile and take the restored
    controller's at its next start (its plans carry a higher epoch). Bookings and keys made since the backup are gone.
    """
    from controller import backup as backups

    settings, _ = in_force()
    if not yes:
        click.confirm(f"Replace what is in {settings.state_dir} with {file}?", abort=True, err=True)
    try:
        contents, aside = backups.restore(settings, file, app.clock())
    except backups.BackupError as err:
        raise Refused(str(err)) from None
    answer = {
        "state_dir": str(settings.state_dir),
        "made_at": times.rfc3339(contents.made_at),
        "before": str(aside) if aside else None,
    }

    def people() -> None:
        made = times.show(contents.made_at, app.clock(), app.zone)
        click.echo(f"{settings.state_dir} is as it was at {made}; start the controller: slotserve serve")
        if aside:
            click.echo(f"What was there before is in {aside}.")

    app.out(answer, people)

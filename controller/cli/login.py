"""`slotserve login`: address and key in one private file."""

from __future__ import annotations

import click

from controller.cli.app import App, write_credentials
from controller.cli.options import command


@click.command()
@click.option(
    "--url",
    help="The console's address.",
    envvar="SLOTSERVE_URL",
    prompt="Address of the controller",
    default="http://127.0.0.1:8700",
)
@click.option(
    "--key",
    "key",
    help="Your API key; asked for when missing, so that it stays out of the shell's history.",
    envvar="SLOTSERVE_API_KEY",
)
@command
def login(app: App, url: str, key: str | None) -> None:
    """Store the controller's address and your API key (~/.config/slotserve/credentials, for you alone)."""
    from controller.cli.client import Client

    key = key or click.prompt("API key", hide_input=True)
    with Client(url, key, app.transport) as client:
        me = client.get("/me")
    path = write_credentials(client.url, key)
    app.out(
        {"user": me["name"], "role": me["role"], "url": client.url, "file": str(path)},
        lambda: click.echo(f"Signed in as {me['name']} ({me['role']}); stored in {path}."),
    )

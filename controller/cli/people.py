"""`slotserve keys`, `key …`, `users`, `user …`. The first administrator is made on the controller's own machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import Client, Refused, path_of
from controller.cli.complete import KEY, PERSON
from controller.cli.options import Group, command

ROLE = click.Choice(["user", "approver", "admin"])


@click.command()
@command
def keys(app: App) -> None:
    """API keys: their beginning, last use and end (the secret was shown once)."""
    with app.client() as client:
        items = list(client.items("/keys"))
    rows = [
        [
            k["name"],
            k["prefix"] + "…",
            _when(app, k.get("last_used_at"), "never"),
            _when(app, k.get("expires_at"), "never"),
            k["id"],
        ]
        for k in items
    ]
    app.out(
        {"items": items},
        lambda: app.table(
            ["name", "key", "last used", "ends", "id"], rows, "No keys; slotserve key create NAME makes one."
        ),
    )


@click.group(cls=Group)
def key() -> None:
    """Create or revoke an API key."""


@key.command("create")
@click.argument("name")
@click.option("--for", "user", type=PERSON, help="For somebody else (administrators).")
@click.option("--expires", help="When it ends: +30d, 2026-12-31T00:00Z; never when missing.")
@command
def create(app: App, name: str, user: str | None, expires: str | None) -> None:
    """Make a key; the secret is printed once, on stdout alone."""
    from controller.cli import times

    body: dict[str, Any] = {"name": name}
    if expires:
        body["expires_at"] = times.rfc3339(app.instant(expires, app.clock(), "--expires"))
    with app.client() as client:
        if user:
            body["user"] = _user_id(client, user)
        answer = client.post("/keys", body)

    def people() -> None:
        click.echo("Shown this once; it opens the REST API and the gateways:", err=True)
        click.echo(answer["secret"])

    app.out(answer, people)


@key.command("revoke")
@click.argument("key_id", metavar="NAME-OR-ID", type=KEY)
@command
def revoke(app: App, key_id: str) -> None:
    """Revoke a key: gateways that hear of it refuse it within 2 s, and end what runs with it."""
    with app.client() as client:
        found = [k for k in client.items("/keys") if key_id in (k["id"], k["prefix"], k["name"])]
        if len(found) > 1:
            raise Refused(f"{key_id} names {len(found)} keys; use the id of one")
        answer = client.delete(path_of("keys", found[0]["id"] if found else key_id))
    app.out(answer, lambda: click.echo(f"{key_id} is revoked."))


@click.command()
@command
def users(app: App) -> None:
    """People and their roles."""
    with app.client() as client:
        items = list(client.items("/users"))
    rows = [[u["name"], u.get("role", ""), "disabled" if _disabled(u) else "", u["id"]] for u in items]
    app.out({"items": items}, lambda: app.table(["name", "role", "", "id"], rows))


@click.group(cls=Group)
def user() -> None:
    """Add, edit or disable a person."""


@user.command("add")
@click.argument("name")
@click.option("--admin", is_flag=True, help="The same as --role admin.")
@click.option("--role", type=ROLE, default="user", show_default=True, help="approver: may approve; admin: everything.")
@click.option("--email", help="Where mails go.")
@click.option("--password", help="Visible to others on this machine while it runs; better --password-file.")
@click.option("--password-file", type=click.Path(path_type=Path), help="A file with the password.")
@click.option("--temporary", is_flag=True, help="The password must be changed at the first sign-in.")
@command
def add_user(
    app: App,
    name: str,
    admin: bool,
    role: str,
    email: str | None,
    password: str | None,
    password_file: Path | None,
    temporary: bool,
) -> None:
    """Add a person, with a password for the console and an API key. While there is no administrator yet, --admin works
    on the controller's own machine without a key: it writes to the database directly."""
    role = "admin" if admin else role
    if password and password_file:
        raise click.UsageError("--password and --password-file exclude each other.")
    if password_file:
        try:
            password = password_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as err:
            raise click.BadParameter(str(err), param_hint="--password-file") from None
    made = password is None
    if password is None:
        import secrets

        password = secrets.token_urlsafe(12)
    if role == "admin" and not _has_key(app):
        from controller.cli.first import first_administrator

        answer = first_administrator(name, password, email, app.clock())
    else:
        with app.client() as client:
            body: dict[str, Any] = {"name": name, "role": role, "password": password}
            body |= {"email": email} if email else {}
            body |= {"password_temporary": True} if temporary else {}
            answer = client.post("/users", body)
            answer["api_key"] = client.post("/keys", {"name": "first", "user": answer["id"]})["secret"]
    if made:
        answer["password"] = password

    def people() -> None:
        click.echo(f"{name} is there ({role}). Shown this once:", err=True)
        if made:
            click.echo(f"password  {password}")
        click.echo(f"API key   {answer['api_key']}")

    app.out(answer, people)


@user.command("edit")
@click.argument("name", type=PERSON)
@click.option("--role", type=ROLE, help="approver: may approve; admin: everything.")
@click.option("--email", help="Where mails go.")
@click.option("--rename", help="A new name.")
@click.option("--password", is_flag=True, help="Ask for a new password; somebody else's is to be changed at once.")
@click.option("--permanent", is_flag=True, help="With --password: it need not be changed.")
@click.option("--enable", is_flag=True, help="Let a disabled person in again.")
@command
def edit_user(
    app: App,
    name: str,
    role: str | None,
    email: str | None,
    rename: str | None,
    password: bool,
    permanent: bool,
    enable: bool,
) -> None:
    """Change a person."""
    body: dict[str, Any] = {k: v for k, v in (("role", role), ("email", email), ("name", rename)) if v is not None}
    if enable:
        body["disabled"] = False
    if not body and not password:
        raise click.UsageError("Nothing to change; name at least one option.")
    with app.client() as client:
        if password:
            me = client.get("/me")
            if name in (me["id"], me["name"]):
                body["current_password"] = click.prompt("Present password", hide_input=True, err=True)
            body["password"] = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
            if permanent:
                body["password_temporary"] = False
        answer = client.patch(path_of("users", _user_id(client, name)), body)
    app.out(answer, lambda: click.echo(f"{name} is changed."))


@user.command("disable")
@click.argument("name", type=PERSON)
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def disable(app: App, name: str, yes: bool) -> None:
    """Shut a person out: keys dead, coming bookings cancelled, the running one ended."""
    with app.client() as client:
        user_id = _user_id(client, name)
        if not yes:
            would = client.get(path_of("users", user_id, "disable-preview"))
            for what, bookings in (("ends", would["ends"]), ("is cancelled", would["cancels"])):
                for r in bookings:
                    click.echo(f"  {r['channel']}  {app.window(r['starts_at'], r['ends_at'])}  {what}", err=True)
            dead = (
                f"{would['keys']} keys, {would['feeds']} feeds and {would['sessions']} sessions open nothing any more"
            )
            click.echo(f"  {dead}", err=True)
            click.confirm(f"Disable {name}?", abort=True, err=True)
        answer = client.patch(path_of("users", user_id), {"disabled": True})
    app.out(answer, lambda: click.echo(f"{name} is disabled."))


def _has_key(app: App) -> bool:
    return bool(os.environ.get("SLOTSERVE_URL") or app.credentials()[1])


def _user_id(client: Client, name: str) -> str:
    for item in client.items("/users"):
        if name in (item["id"], item["name"]):
            return str(item["id"])
    raise Refused(f"nobody is called {name}; slotserve users lists people")


def _disabled(user: dict[str, Any]) -> bool:
    return bool(user.get("disabled") or user.get("disabled_at"))


def _when(app: App, text: str | None, none: str) -> str:
    return app.when(text) if text else none

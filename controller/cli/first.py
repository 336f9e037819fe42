"""The first administrator: written into the database on the controller's own machine, while there is none yet."""

from __future__ import annotations

from typing import Any

import click

from controller.cli.client import Refused
from controller.settings import SettingsError, load_settings


def first_administrator(name: str, password: str | None, email: str | None, now: int) -> dict[str, Any]:
    """{id, name, role, api_key} of the person made. Raises Refused where there is an administrator already, or no
    database that this version can use."""
    from controller.errors import ApiError
    from controller.store import audit, keys, migrate, users
    from controller.store.session import Store

    try:
        settings, _ = load_settings()
    except SettingsError as err:
        raise click.ClickException(str(err)) from None
    if not settings.database_url and not (settings.state_dir / "slotserve.db").exists():
        raise Refused(
            f"no database in {settings.state_dir}: run `slotserve migrate` first, or set SLOTSERVE_STATE_DIR; "
            "to use a controller elsewhere set SLOTSERVE_URL and SLOTSERVE_API_KEY"
        )
    store = Store(settings.database)
    try:
        if problems := migrate.check(store):
            raise Refused("; ".join(problems))
        with store.write() as session:
            if users.any_administrator(session):
                raise Refused(
                    "there is an administrator already; sign in with an API key (slotserve login) to add people"
                )
            row = users.create(session, name, password, "admin", now, email=email)
            key, secret = keys.create(session, row.id, "first", now)
            audit.add(
                session, None, "user.create", row.id, now, after={"name": row.name, "role": "admin"}, reason="first"
            )
            return {"id": row.id, "name": row.name, "role": row.role, "key_id": key.id, "api_key": secret}
    except ApiError as err:
        raise Refused(err.message) from None
    finally:
        store.close()

"""The settings in force as people may see them: with where each comes from, and secrets only as being set."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import make_url

from controller.settings import Origin, Settings, SettingsError, load_settings
from controller.store import audit
from controller.store.session import Store

SET = "(set)"


def rows(settings: Settings, origins: list[Origin] | None = None) -> list[dict[str, Any]]:
    """{variable, value, origin, description} in the order of the table. `origins`: as loaded; None = what this process'
    environment says of them."""
    if origins is None:
        try:
            origins = load_settings()[1]
        except SettingsError:  # the environment is not the one of the start any more
            origins = load_settings({})[1]
    came = {o.variable: o.origin for o in origins}
    made = []
    for name, field in Settings.model_fields.items():
        variable = f"SLOTSERVE_{name.upper()}"
        made.append(
            {
                "variable": variable,
                "value": _shown(settings, name, secret=field.repr is False),
                "origin": came.get(variable, "default"),
                "description": field.description or "",
            }
        )
    return made


def note_start(store: Store, settings: Settings, version: str, now: int) -> None:
    """Into the audit trail: that a controller starts, with the settings that are not the default."""
    chosen = {r["variable"]: r["value"] for r in rows(settings) if r["origin"] != "default"}
    with store.write() as session:
        audit.add(session, None, "controller.start", "", now, after={"version": version, **chosen})


def _shown(settings: Settings, name: str, *, secret: bool) -> Any:
    value = getattr(settings, name)
    if name == "database_url":
        return make_url(settings.database).render_as_string(hide_password=True)
    if secret or name.endswith(("_password", "_secret", "_token")):
        return SET if value else ""
    return value if isinstance(value, int | float | bool | str) else str(value)

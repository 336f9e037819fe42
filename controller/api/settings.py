"""The controller's settings in force, for administrators."""

from __future__ import annotations

from typing import Any

from controller import settings_view
from controller.api.route import Call, Route


def list_settings(call: Call) -> dict[str, Any]:
    return {"items": settings_view.rows(call.ctx.settings), "next": None}


ROUTES = (
    Route("GET", "/settings", list_settings, "Settings in force, and where each comes from", action="settings.see"),
)

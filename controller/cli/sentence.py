"""Why a channel does what it does, in words, from the API's answer: the same sentences as the console's, in English."""

from __future__ import annotations

from typing import Any

from controller.cli.app import App
from controller.words import CATEGORIES, FALLBACK_WHY, WHY


def why(app: App, item: dict[str, Any]) -> str:
    """One sentence for a channel of GET /channels."""
    key, booking = item.get("why") or "idle", _booking(item)
    facts: dict[str, Any] = {
        "holder": (booking or {}).get("holder") or "",
        "start": app.when((booking or {}).get("starts_at")),
        "until": app.when(item.get("until") if key in ("default", "short_gap") else (booking or {}).get("ends_at")),
        "model": (item.get("running") or {}).get("model") or "",
    }
    if item["phase"] in ("unknown", "gone"):
        return "No contact with its node" if item["phase"] == "unknown" else "No longer declared by its node"
    if item.get("fallback") and item.get("target"):
        return FALLBACK_WHY[_form(booking)] % {**facts, "model": item["target"]["model"]}
    if key == "override":
        override = item.get("override") or {}
        form = ("_by" if override.get("by") else "") + ("_until" if override.get("until") else "")
        return WHY[key + form] % {"by": override.get("by"), "until": app.when(override.get("until"))}
    if key == "default":
        waits = item["phase"] != "ready"
        return WHY["default_waits" if waits else "default_until" if facts["until"] else "default"] % facts
    if key == "idle" or booking is None:
        return WHY.get(key, WHY["idle"]) % facts if key == "idle" else key
    if key == "short_gap" and booking.get("kind") == "exclusive":
        key = "short_gap_exclusive"
    return WHY[key + _form(booking)] % facts


def step(app: App, step: dict[str, Any], channel: dict[str, Any], booked: dict[str, dict[str, Any]]) -> str:
    """One sentence for a step of a channel's plan; `booked` are the channel's bookings by id."""
    key, booking = step["why"], booked.get(step.get("reservation") or "")
    if key in ("override", "idle", "default") or booking is None:
        override = (channel.get("override") or {}) if key == "override" else {}
        form = ("_by" if override.get("by") else "") + ("_until" if override.get("until") else "")
        return WHY.get(key + form, key) % {"by": override.get("by"), "until": app.when(override.get("until"))}
    exclusive = "_exclusive" if key == "short_gap" and booking.get("kind") == "exclusive" else ""
    until = booking["starts_at"] if key == "short_gap" else booking["ends_at"]
    text = WHY[key + exclusive + _form(booking)] % {
        "holder": booking.get("holder"),
        "start": app.when(booking["starts_at"]),
        "until": app.when(until),
        "model": (step.get("target") or {}).get("model") or "",
    }
    instead = (step.get("fallback") or {}).get("model")
    return f"{text}; should it fail, {instead} answers meanwhile" if instead and key == "reserved" else text


def failure(app: App, item: dict[str, Any]) -> str:
    """A failure in words: cause, the engine's words, how often, the next try; empty where there is none."""
    told = item.get("failure")
    if not told:
        return ""
    cause, reason = CATEGORIES.get(told.get("category", ""), told.get("category", "")), told.get("reason") or ""
    text = reason if reason.lower().startswith(cause.lower()) else f"{cause}. {reason}".strip()
    count = told.get("count") or 1
    tries = f"Failed {count} times" if count > 1 else "Failed once"
    return f"{text.rstrip('.')}. {tries}" + (
        f"; next try at {app.when(told['retry_at'])}." if told.get("retry_at") else "."
    )


def _booking(item: dict[str, Any]) -> dict[str, Any] | None:
    """The booking that the reason is about."""
    wanted = item.get("reservation")
    known = [item.get("booking"), item.get("next"), *(item.get("upcoming") or [])]
    return next((b for b in known if b and b["id"] == wanted), None)


def _form(booking: dict[str, Any] | None) -> str:
    if booking and booking.get("mine"):
        return "_mine"
    return "" if booking and booking.get("holder") else "_unnamed"

"""Why a channel does what it does, in the viewer's language: picks the whole sentence and fills in names and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flask_babel import gettext as _
from markupsafe import Markup, escape

from controller.fleet.live import LiveChannel
from controller.scheduling.types import Decision, Reservation
from controller.words import FALLBACK_WHY, LAST_SEEN, PHASES, WHY

Clock = Callable[[int], Markup]


@dataclass(frozen=True, slots=True)
class Viewer:
    """What a sentence depends on: who reads it, whether they may know the holder, how they see times."""

    user_id: str
    names_shown: bool
    clock: Clock


def why(
    decision: Decision,
    viewer: Viewer,
    *,
    running_model: str = "",
    override_by: str | None = None,
    override_until: int | None = None,
    waits: bool = False,
) -> Markup:
    """The sentence of a decision; `waits` = its model is not ready yet."""
    booking = decision.reservation
    facts: dict[str, object] = {}
    if decision.why == "override":
        key = "override" + ("_by" if override_by else "") + ("_until" if override_until else "")
        facts = {"by": override_by, "until": viewer.clock(override_until) if override_until else ""}
    elif decision.why == "default":
        key = "default_waits" if waits else "default_until" if decision.until else "default"
        facts = {"until": viewer.clock(decision.until) if decision.until else ""}
    elif decision.why == "idle" or booking is None:
        key = "idle" if decision.why == "idle" else "default"
    else:
        key = decision.why
        if key == "short_gap" and booking.kind == "exclusive":
            key = "short_gap_exclusive"
        key += suffix(booking, viewer)
        until = decision.until if decision.why == "short_gap" else booking.end
        facts = {
            "holder": booking.holder_name,
            "start": viewer.clock(booking.start),
            "until": viewer.clock(until or booking.start),
            "model": running_model,
        }
    return filled(WHY[key], facts)


def fallback(booking: Reservation | None, model: str, viewer: Viewer) -> Markup:
    """The sentence while the default answers in a failed model's place."""
    key = "_unnamed" if booking is None else suffix(booking, viewer)
    return filled(FALLBACK_WHY[key], {"holder": booking.holder_name if booking else "", "model": model})


def suffix(booking: Reservation, viewer: Viewer) -> str:
    """Which form of a sentence: about the reader, about somebody they may know of, about somebody."""
    if booking.holder_id == viewer.user_id:
        return "_mine"
    return "" if viewer.names_shown and booking.holder_name else "_unnamed"


def filled(text: str, facts: dict[str, object]) -> Markup:
    """The translated sentence with everything escaped that is not a <time>."""
    return Markup(str(escape(_(text)))) % {
        name: value if isinstance(value, Markup) else escape(value) for name, value in facts.items()
    }


def gone() -> Markup:
    """A channel that its node no longer declares."""
    return Markup(escape(_("No longer declared by its node; its history stays")))


def last_seen(seen: LiveChannel, since: int, clock: Clock) -> Markup:
    """A channel of a node that is away."""
    if seen.phase in ("unknown", "") or not since:
        return Markup(escape(_("Not seen yet")))
    state = _(PHASES[seen.phase][0]) if seen.phase in PHASES else seen.phase
    return filled(LAST_SEEN, {"state": state, "at": clock(since)})

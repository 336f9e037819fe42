"""Instants and waits in words, for messages of the gateway; pure. Programs read the same instants as RFC 3339."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from agent.core.types import Millis

MINUTE, HOUR, DAY = 60, 3600, 86_400


def moment(at: Millis) -> str:
    """An instant for programs: RFC 3339, UTC, to the millisecond where it has any."""
    whole = at % 1000 == 0
    text = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds" if whole else "milliseconds")
    return text.replace("+00:00", "Z")


def when(at: Millis, now: Millis) -> str:
    """An instant for people: "03:59 UTC (in 9 min)"; with seconds where it is near, with the date where it is not today.
    Rounded up, as the wait is: who comes then does not come too early."""
    wait = at - now
    near = abs(wait) < 2 * MINUTE * 1000
    unit = 1 if near else MINUTE
    then = datetime.fromtimestamp(math.ceil(at / 1000 / unit) * unit, UTC)
    today = datetime.fromtimestamp(now / 1000, UTC)
    text = then.strftime("%H:%M:%S" if near else "%H:%M")
    if then.date() != today.date() and not near:
        text = f"{then:%Y-%m-%d} {text}"
    return f"{text} UTC (in {span(wait)})" if wait > 0 else f"{text} UTC"


def span(wait: Millis) -> str:
    """A wait in words, rounded up to what matters at its length."""
    seconds = max(1, math.ceil(wait / 1000))
    if seconds < 2 * MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{math.ceil(seconds / MINUTE)} min"
    hours, rest = divmod(math.ceil(seconds / MINUTE), 60)
    if seconds < DAY:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(math.ceil(seconds / HOUR), 24)
    unit = "day" if days == 1 else "days"
    return f"{days} {unit} {hours} h" if hours else f"{days} {unit}"

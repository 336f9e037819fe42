"""Ids that are too long to type: a beginning or an end that only one has will do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from controller.cli.client import Client, Refused, path_of

SHORTEST = 4
_PART = re.compile(rf"[0-9a-f]{{{SHORTEST},19}}")
_WHOLE = 20


def booking_path(client: Client, text: str) -> str:
    """Where the booking is whose id is, begins with or ends with `text`."""
    return path_of("reservations", booking_id(client, text))


def booking_id(client: Client, text: str) -> str:
    """The whole id. Raises Refused where several bookings have such an id."""
    if len(text) >= _WHOLE or not _PART.fullmatch(text):
        return text
    return one_of(client.items("/reservations"), text, "booking")


def one_of(rows: Iterable[Mapping[str, Any]], text: str, what: str) -> str:
    """The id of the only row that `text` is a part of; `text` itself where there is none (the controller says so)."""
    found = sorted({str(r["id"]) for r in rows if str(r["id"]).startswith(text) or str(r["id"]).endswith(text)})
    if len(found) > 1:
        shown = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
        raise Refused(f"{text} is a part of the ids of {len(found)} {what}s ({shown}); write more of it")
    return found[0] if found else text

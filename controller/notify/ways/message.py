"""One message as the ways outside take it, and the two ends a try can have beside success."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.notify.wording import Rendered


class NotDelivered(Exception):
    """The message did not get through; the text says why, for administrators."""


class TryAgain(NotDelivered):
    """It may get through later: no connection, a server that is busy, or one whose settings are to be mended."""


class Refused(NotDelivered):
    """It will never get through as it is: nobody there by this name, gone, not accepted."""


@dataclass(frozen=True, slots=True)
class Message:
    """`id` stays the same over all tries, so that a receiver can drop doubles. `url`: the page it is about, or ""."""

    id: str
    event_id: str
    kind: str
    at: int
    subject: str
    facts: Mapping[str, Any]
    said: Rendered
    language: str
    url: str
    settings_url: str

"""Where a body says its model: what the scanners of JSON and of forms have in common."""

from __future__ import annotations

from dataclasses import dataclass

from agent.gateway.errors import Refusal, bad_request

NAME_BYTES = 16 * 1024  # of a model's name as it is written


@dataclass(frozen=True, slots=True)
class Found:
    """The model as the client spelled it (None: absent or null), and where its value stands; `start` < 0: nowhere."""

    model: str | None
    start: int = -1
    end: int = -1


def said_twice() -> Refusal:
    """Of two models engines take the last, the gateway the first."""
    return bad_request("The body says 'model' more than once.", "model")

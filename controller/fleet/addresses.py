"""Where clients reach a node: its gateway, at the address that the node says now, or said last while it is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from controller.fleet.live import LiveNode


class Known(Protocol):
    """A node as the store has it (or what was read of it)."""

    @property
    def gateway_urls(self) -> Sequence[str]: ...


def gateway(said: LiveNode, node: Known) -> str | None:
    """The first of its gateway's addresses; None while none is known."""
    return next(iter(said.gateway_urls or node.gateway_urls or ()), None)


def base_url(said: LiveNode, node: Known, channel: str) -> str | None:
    """What an OpenAI client is given for one channel."""
    found = gateway(said, node)
    return f"{found.rstrip('/')}/channels/{channel}/v1" if found else None

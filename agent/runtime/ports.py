"""A free loopback port for engines that cannot listen on a Unix socket."""

from __future__ import annotations

import socket
from collections.abc import Iterable

TRIES = 50


def free_port(host: str = "127.0.0.1", beside: Iterable[int] = ()) -> int:
    """A port that nobody listened on a moment ago. Somebody may be faster: the engine then says so (port_taken).

    `beside`: how far from it the engine may open others; those are free too, where there are such ports at all."""
    beside = tuple(beside)
    port = 0
    for _ in range(TRIES):
        port = _bound(host, 0) or port
        if all(port + distance < 65_536 and _bound(host, port + distance) for distance in beside):
            break
    return port


def _bound(host: str, port: int) -> int | None:
    """The port that could be bound, or None."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as s:
        try:
            s.bind((host, port))
        except OSError:
            return None
        return int(s.getsockname()[1])

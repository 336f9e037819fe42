"""A free loopback port for engines that cannot listen on a Unix socket."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listened on a moment ago. Somebody may be faster: the engine then says so (port_taken)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])

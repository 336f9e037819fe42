"""The line to a client, whatever is spoken on it: held and read on, closed behind what is written, reset, given up."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
from typing import Any

log = logging.getLogger(__name__)
LINGER_SECONDS = 2.0  # for a client that still sends while its answer says "close"
UNREAD_SECONDS = 600.0  # for a client that takes nothing of what waits for it


class ClientLine(asyncio.Protocol):
    """One TCP or Unix connection. `deaf`: whatever comes on it is dropped."""

    __slots__ = ("_loop", "_unread", "deaf", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: Any = None
        self.deaf = False
        self._unread = (0, 0.0)  # bytes that waited for the client at an earlier look, and when it was

    def close(self, linger: bool = False) -> None:
        """Closes behind what is still to be written; with `linger` reads on for a while, so that no reset overtakes it."""
        self.deaf = True
        if not linger:
            self.transport.close()
            return
        self.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self.transport.close)

    def reset(self) -> None:
        """Ends the connection so that the client cannot take what it has for the whole."""
        self.deaf = True
        if self.transport.is_closing():
            return
        peer = self.transport.get_extra_info("socket")
        if peer is not None and peer.family != socket.AF_UNIX:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def pause_reading(self) -> None:
        if self.transport.is_reading():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()

    def given_up(self, now: float) -> bool:
        """Whether the client has taken nothing of what waits for it for too long (`now`: the loop's time); the line is
        ended then."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or waiting != self._unread[0]:
            self._unread = waiting, now
            return False
        if now - self._unread[1] <= UNREAD_SECONDS:
            return False
        log.warning("client takes nothing, given up on bytes=%s seconds=%d", waiting, now - self._unread[1])
        self.transport.abort()
        return True

    def has_gone(self) -> bool:
        """Whether the client has closed behind what is not read yet, for the engine takes no more of its body."""
        peer = self.transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(peer.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

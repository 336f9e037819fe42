"""The way of a request to the engine, or to another node's gateway: dialled, written, and given up with the request.

What the client sends while the engine is dialled waits here, so much of it at the most; then the client is not read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from agent.core.directory import Place
from agent.gateway import relay
from agent.gateway.reply import Reply
from agent.gateway.request import RequestHead
from agent.gateway.table import Endpoint
from agent.gateway.upstream import Upstream

if TYPE_CHECKING:
    from agent.gateway.connection import ClientConnection

log = logging.getLogger(__name__)
PENDING_BYTES = 256 * 1024  # of a body, while the engine is being dialled
CONNECT_SECONDS = 10.0


class Onward(Reply):
    """An exchange whose `endpoint` is known."""

    __slots__ = ("_connecting", "_pending", "_pending_bytes", "_up_length")

    def __init__(self, connection: ClientConnection, head: RequestHead) -> None:
        super().__init__(connection, head)
        self._pending: list[bytes] = []  # for the engine, until it is connected
        self._pending_bytes = 0
        self._up_length: int | None = None  # of the body that goes up; None: in chunks
        self._connecting: asyncio.Task[None] | None = None

    def goes_to(self, place: Place) -> None:
        """The node that is asked now. It is sent the model as the client has spelled it, and finds the channel itself."""
        self.channel, self.model = place.label, place.model
        self.endpoint = relay.endpoint(self, place)

    def _connect(self, data: bytes, length: int | None) -> None:
        endpoint = self.endpoint
        assert endpoint is not None
        assert self.head.route is not None
        self._up_length = length
        if length is None:
            framing = b"Transfer-Encoding: chunked\r\n"
            data = b"%x\r\n%b\r\n" % (len(data), data)
            if self.request_complete:
                data += b"0\r\n\r\n"
        else:
            framing = b"Content-Length: %d\r\n" % length
        self._dial_with(
            [
                b"".join(
                    (
                        b"POST ",
                        self.head.route.path,
                        self.head.query,
                        b" HTTP/1.1\r\n",
                        endpoint.request_head,
                        self.head.onward,
                        framing,
                        b"X-Request-Id: ",
                        self.id.encode(),
                        b"\r\n\r\n",
                        data,
                    )
                )
            ]
        )

    def _dial_with(self, pending: list[bytes]) -> None:
        assert self.endpoint is not None
        self._pending = pending
        if self.places:
            self._connecting = self.gateway.loop.create_task(self._dial_nodes())
            return
        self.upstream = Upstream(self)
        self._connecting = self.gateway.loop.create_task(self._dial(self.endpoint, self.upstream))

    async def _dial(self, endpoint: Endpoint, upstream: Upstream) -> None:
        loop, pause = self.gateway.loop, 0.002
        while True:
            try:
                if endpoint.socket:
                    await loop.create_unix_connection(lambda: upstream, endpoint.socket)
                else:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await loop.create_connection(lambda: upstream, endpoint.host, endpoint.port)
                return
            except (OSError, TimeoutError) as err:
                full = isinstance(err, BlockingIOError)  # a Unix socket's queue (llama-server's holds five)
                if not full or loop.time() - self.begun > CONNECT_SECONDS:
                    self._not_reached(err)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def _dial_nodes(self) -> None:
        relays = self.gateway.relays
        if relays is None or not await relay.dial(self, relays):
            self._connecting = None
            self.engine_unreachable(503)

    def _not_reached(self, err: Exception) -> None:
        self._connecting = None
        if not self.done:
            log.warning("engine not reached channel=%s id=%s error=%s", self.channel, self.id, err or "time-out")
            self.engine_unreachable(503)

    def engine_connected(self, transport: Any) -> None:
        self._connecting = None
        pending, self._pending = self._pending, []
        if len(pending) == 1:
            transport.write(pending[0])
        else:
            transport.writelines(pending)

    def _send(self, data: bytes) -> None:
        self._send_raw(data if self._up_length is not None else b"%x\r\n%b\r\n" % (len(data), data))

    def _send_raw(self, data: bytes) -> None:
        upstream = self.upstream
        if upstream is None or upstream.transport is None:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._pending_bytes > PENDING_BYTES:
                self.connection.pause_reading()
        elif not upstream.transport.is_closing():
            upstream.transport.write(data)

    def _release(self) -> None:
        self._pending = []
        if self._connecting is not None:
            self._connecting.cancel()

"""A client's connection: requests are parsed here one after another, each handed to an Exchange.

One request at a time: what a client sends before its answer is over (pipelining) is not answered; the connection is
closed behind the answer, and the client sends the rest again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httptools

from agent.gateway import known_head, relay, request
from agent.gateway.client_line import ClientLine
from agent.gateway.errors import Refusal, answer, bad_request
from agent.gateway.exchange import Exchange

if TYPE_CHECKING:
    from agent.gateway.server import Gateway

log = logging.getLogger(__name__)
WRITE_BUFFER = 64 * 1024
HEAD_SECONDS = 30.0  # from a head's first byte to its last
IDLE_SECONDS = 90.0  # between two requests


class ClientConnection(ClientLine):
    """The server side of one TCP or Unix connection."""

    __slots__ = (
        "_body_only",
        "_head_begun",
        "_head_size",
        "_headers",
        "_in_head",
        "_known",
        "_left",
        "_parsed",
        "_parser",
        "_served",
        "_url",
        "exchange",
        "for_metrics",
        "for_relay",
        "gateway",
        "last_read",
        "paused",
        "raw",
    )

    def __init__(self, gateway: Gateway, for_metrics: bool = False, for_relay: bool = False) -> None:
        super().__init__(gateway.loop)
        self.gateway = gateway
        self.for_metrics = for_metrics
        self.for_relay = for_relay  # another node's gateway is at the other end
        self.exchange: Exchange | None = None
        self.paused = False  # the client reads more slowly than the engine writes
        self.raw: Exchange | None = None  # a WebSocket: whatever comes is its
        self.last_read = 0.0
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._body_only = False  # the parser was begun anew behind a head (see _go_on_without_upgrade)
        self._head_begun = 0.0
        self._head_size = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._parsed: tuple[request.RequestHead, int] | None = None  # the first of the piece at hand, and its lines
        self._served = False  # a request before
        self._known: known_head.KnownHead | None = None
        self._left = 0  # of the body of a request with a known head

    # what asyncio calls

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.for_relay and (why := relay.refusal(transport, self.gateway.members)):
            log.warning("relay refused: %s peer=%s", why, transport.get_extra_info("peername"))
            self.deaf = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.last_read = self.gateway.loop.time()
        self.gateway.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.last_read = self.gateway.loop.time()
        if self.raw is not None:
            self.raw.from_client(data)
            return
        if self._left:
            self._known_goes_on(data)
        elif self._known is None or self.exchange is not None or self._head_size or not self._is_known(data):
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """What is not by the short way (see _is_known) goes through the parser."""
        learn = False
        if self.exchange is None:
            if self._head_size == 0:
                self._head_begun = self.last_read
                learn = self._served
                self._parsed = None
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            self._failed()
        except httptools.HttpParserError as err:
            self._refuse(bad_request(f"Malformed HTTP: {err}."))
        else:
            if self.exchange is None and self._head_size > request.HEAD_LIMIT:
                self._refuse(_TOO_LONG)
            elif learn and self._parsed is not None and not self.deaf and not self.for_relay:
                self._known = known_head.learn(data, *self._parsed) or self._known

    def eof_received(self) -> None:
        """The client has closed its side: it is gone, as every proxy takes it."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.gateway.connections.discard(self)
        self.deaf = True
        if self.exchange is not None:
            self.exchange.client_gone()

    def pause_writing(self) -> None:
        self.paused = True
        if self.exchange is not None:
            self.exchange.pause_engine()

    def resume_writing(self) -> None:
        self.paused = False
        if self.exchange is not None:
            self.exchange.resume_engine()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._body_only:
            return
        if self.exchange is not None:
            self.deaf = True
            self.exchange.last_of_connection()
            return
        self._in_head = True
        self._headers = []
        self._url = b""

    def on_url(self, url: bytes) -> None:
        if self._in_head:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.deaf or not self._in_head:
            return
        self._in_head = False
        parser = self._parser
        headers = self._headers
        size = len(self._url)
        for name, value in headers:
            size += len(name) + len(value) + 4
        head, refusal = request.read(
            parser.get_method(), self._url, parser.get_http_version(), parser.should_keep_alive(), headers
        )
        if size > request.HEAD_LIMIT:
            refusal = _TOO_LONG
        self._head_size = 0
        if self._parsed is None:
            self._parsed = head, len(headers) + 2
        self.exchange = Exchange(self, head)
        if self.for_relay:
            self.exchange.id = head.believe() or self.exchange.id
            self.exchange.last_of_connection()  # who comes in is looked at with each request
        if refusal is not None:
            self.deaf = True
            self.exchange.refuse(refusal, close=True)
        else:
            self.exchange.begin()

    def on_body(self, data: bytes) -> None:
        if not self.deaf and self.exchange is not None:
            self.exchange.body(data)

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if self.deaf or exchange is None or (self._parser.should_upgrade() and exchange.head.has_body):
            return
        self._body_only = False
        exchange.body_complete()

    # what the exchange and the gateway call

    def done(self, close: bool) -> None:
        """The exchange is over; `close`: so is the connection."""
        unread = self.exchange is not None and not self.exchange.request_complete
        self.exchange = None
        self._served = True
        if self.transport is None or self.transport.is_closing():
            return
        if close or self.deaf or self.gateway.refusing:
            self.close(linger=unread or self.deaf)
        else:
            self.last_read = self.gateway.loop.time()
            self.resume_reading()

    def check_idle(self, now: float) -> None:
        """Closes a connection whose client is waited for too long (never one that waits for us)."""
        if self.given_up(now) or self.transport.is_closing():
            return
        if not self.transport.is_reading() and self.has_gone():
            self.transport.abort()
        elif self.exchange is not None:
            self.exchange.check_client(now)
        elif self._head_size and now - self._head_begun > HEAD_SECONDS:
            self._refuse(Refusal(408, "request_timeout", "The request's head took too long."))
        elif not self._head_size and now - self.last_read > IDLE_SECONDS:
            self.close()

    def close_if_idle(self) -> None:
        """The gateway takes no more requests."""
        if self.exchange is None and not self._head_size:
            self.close()

    # below: how it is done

    def _is_known(self, data: bytes) -> bool:
        """Whether a known head begins here, which goes the short way: the parser, which stands between two requests,
        would make the same of the same bytes."""
        assert self._known is not None
        body_at = self._known.match(data)
        if body_at is None:
            return False
        head = self._known.head
        self._left = head.length or 0
        try:
            self.exchange = Exchange(self, head)
            self.exchange.begin()
        except Exception:  # noqa: BLE001 as the parser's callbacks: said, and answered
            self._failed()
        self._known_goes_on(data[body_at:])
        return True

    def _known_goes_on(self, data: bytes) -> None:
        """The body behind a known head."""
        left, exchange = self._left, self.exchange
        self._left = max(0, left - len(data))
        if exchange is not None and not self.deaf:
            try:
                if data and left:
                    exchange.body(data if len(data) <= left else data[:left])
                if not self._left and not self.deaf:
                    exchange.body_complete()
            except Exception:  # noqa: BLE001 likewise
                self._failed()
        if len(data) > left and not self.deaf:
            self._feed(data[left:])

    def _failed(self) -> None:
        log.exception("request failed inside the gateway")
        failed = Refusal(500, "internal_error", "The gateway failed to handle this request.")
        if self.exchange is not None and self.exchange.answer is None:
            self.exchange.refuse(failed, close=True)
        else:
            self._refuse(failed)

    def _refuse(self, refusal: Refusal) -> None:
        if self.deaf:
            return  # it has had its last answer; what follows in the same piece is for nobody
        self.deaf = True
        if self.exchange is not None:
            self.exchange.broken_request(refusal)
            return
        request_id = self.gateway.next_id()
        self.gateway.refused(refusal, request_id)
        self.transport.write(answer(refusal, request_id, close=True))
        self.close(linger=True)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """The client offered another protocol and is answered in this one; the parser, which has stopped behind the
        head, is begun anew with a head that says only how the body is framed."""
        exchange = self.exchange
        if self.deaf:
            return
        if exchange is None:  # answered already
            self._parser = httptools.HttpRequestParser(self)
            if rest:
                self.data_received(rest)
            return
        head = exchange.head
        if head.websocket and head.route is not None and head.route.kind == "realtime":
            self.raw = exchange
            if rest:
                exchange.from_client(rest)
            return
        if head.method == b"CONNECT" or exchange.request_complete:
            self.deaf = True
            return
        if not head.has_body:
            exchange.body_complete()
            self.deaf = True
            return
        self._body_only = True
        self._parser = httptools.HttpRequestParser(self)
        framing = b"Transfer-Encoding: chunked" if head.chunked else b"Content-Length: %d" % (head.length or 0)
        self.data_received(b"POST / HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n" + rest)


_TOO_LONG = Refusal(431, "head_too_long", f"The request's head is longer than {request.HEAD_LIMIT // 1024} KiB.")

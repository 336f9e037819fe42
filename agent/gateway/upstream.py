"""The engine's side of a request: one connection, its answer parsed as far as the splice needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from agent.gateway.framing import (
    EVENT_END,
    HEAD_LIMIT,
    ONE_CHUNK,
    SHORT,
    AnswerHead,
    Chunks,
    FramingError,
    gateways_own,
    parse_head,
)
from agent.gateway.tokens import LET, PIECES
from agent.gateway.websocket import Frames

if TYPE_CHECKING:
    from agent.gateway.onward import Onward

log = logging.getLogger(__name__)
WRITE_BUFFER = 256 * 1024
Mode = Literal["none", "length", "chunked", "close", "strip", "raw", "frames"]


_NO_CHUNKS = Chunks()  # of answers that have none


class Answer:
    """An answer's head and how its body goes to the client.

    none: no body. length: counted. chunked: as it came. close: the engine ends it by closing, the client gets chunks.
    strip: the engine's chunks without their framing, raw: until the close (both for HTTP/1.0 clients). frames: a
    WebSocket's.
    """

    __slots__ = ("_chunks", "_frames", "_tail", "head", "left", "mode", "over", "pieces")

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.left = head.length or 0
        self.pieces: list[bytes] = []  # its beginning and its end, for the tokens that it tells
        self.mode: Mode
        self._frames: Frames | None = None
        if head.status == 101:
            self.mode, self._frames = "frames", Frames()
        elif head.status in (204, 304):
            self.mode = "none"
        elif head.chunked:
            self.mode = "chunked"
        elif head.length is not None:
            self.mode = "length"
        else:
            self.mode = "close"
        self.over = self.mode == "none" or (self.mode == "length" and self.left == 0)
        self._chunks = Chunks() if head.chunked else _NO_CHUNKS
        self._tail = b"\n\n"

    @property
    def may_tell(self) -> bool:
        """Whether a last word of the gateway's own fits in here: between two events or two frames."""
        if self._frames is not None:
            return self._frames.boundary
        return self.head.sse and self.mode not in ("length", "none") and self.boundary

    @property
    def at_event(self) -> bool:
        """Whether whole events may go through as they come, without `feed`."""
        return self.mode == "chunked" and self._chunks.at_event()

    @property
    def boundary(self) -> bool:
        """Whether what went to the client so far ends at an event's end."""
        if self.mode in ("chunked", "strip"):
            return self._chunks.boundary
        return self._tail[-2:] == b"\n\n" or self._tail == b"\r\n\r\n"

    def feed(self, data: bytes, cut: bool) -> bytes:
        """What of `data` goes to the client, as it goes. With `cut`: up to the first event's end only."""
        mode = self.mode
        if mode == "chunked":
            chunks = self._chunks
            end = chunks.feed(data, cut)
            self.over = chunks.done
            return data if end == len(data) else data[:end]
        if mode == "length":
            data = data if len(data) <= self.left else data[: self.left]
            self.left -= len(data)
            self.over = self.left == 0
            return data
        if mode == "strip":
            data = self._chunks.strip(data, cut)
            self.over = self._chunks.done
            return data
        if mode == "none":
            return b""
        if self._frames is not None:
            return data[: self._frames.feed(data, cut)]
        if cut and (end := data.find(b"\n\n")) >= 0:
            data = data[: end + 2]
        self._tail = (self._tail + data)[-4:]
        return b"%x\r\n%b\r\n" % (len(data), data) if mode == "close" else data


class Upstream(asyncio.Protocol):
    """The connection to the engine, for one request."""

    __slots__ = ("_exchange", "_head", "_pieces", "_write", "straight", "transport")

    def __init__(self, exchange: Onward) -> None:
        self._exchange: Onward | None = exchange
        self._head = b""
        self._pieces: list[bytes] = []  # the answer's
        self._write: Callable[[bytes], None] = exchange.connection.transport.write
        self.straight = False  # events that are whole need no looking into: see `go_straight`
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        if self._exchange is None:
            transport.abort()
            return
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._exchange.connection.resume_reading()  # first: what is written next may ask to pause it again
        self._exchange.engine_connected(transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if (
            self.straight
            and (size := len(data)) < SHORT
            and data.startswith(ONE_CHUNK[size])
            and data.endswith(EVENT_END)
        ):
            pieces = self._pieces  # as tokens.keep
            pieces.append(data)
            if len(pieces) > LET:
                del pieces[1:-PIECES]
            exchange.bytes_out += size  # type: ignore[union-attr]
            self._write(data)
            return
        if exchange is None:
            return
        try:
            if exchange.answer is not None:
                exchange.answer_goes_on(data)
            else:
                self._read_head(exchange, data)
        except FramingError as err:
            log.warning("engine broke HTTP channel=%s id=%s error=%s", exchange.channel, exchange.id, err)
            exchange.engine_lost(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.engine_lost(exc is not None)

    def pause_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.connection.pause_reading()

    def resume_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.connection.resume_reading()

    def go_straight(self, answer: Answer) -> None:
        """From now on, and until `straight` is taken back, events that come as one whole chunk each go to the client by
        the shortest way: it is what nearly every token of a stream takes."""
        self._pieces = answer.pieces
        self.straight = True

    def drop(self) -> None:
        """The exchange is over: whatever the engine still says is for nobody."""
        self.straight = False
        self._exchange = None
        if self.transport is not None:
            self.transport.abort()

    def _read_head(self, exchange: Onward, data: bytes) -> None:
        data = self._head + data if self._head else data
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_LIMIT:
                    raise FramingError("the answer's head is too long")
                self._head = data
                return
            head = parse_head(data[:end])
            if exchange.places:  # the headers of another gateway are no engine's
                head.lines += gateways_own(data[:end])
            data = data[end + 4 :]
            if head.status == 101 and not exchange.head.websocket:
                raise FramingError("an upgrade that nobody asked for")
            if not 100 <= head.status < 200 or head.status == 101:
                break
        self._head = b""
        exchange.answer_begins(Answer(head), data)

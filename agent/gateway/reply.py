"""The answer's half of a request: refused, answered by the gateway itself, or spliced from the engine; and how it ends.

However a request ends, `_finish` runs once: the engine's connection is closed at once, the channel's count goes down, a
usage row is written. A cut is told at the end of the event under way; an engine that dies leaves no clean end.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from agent.core.admission import admit
from agent.core.directory import Place
from agent.gateway import answer_head, elsewhere, errors, own_answers
from agent.gateway.errors import Refusal
from agent.gateway.keys import Key
from agent.gateway.request import RequestHead
from agent.gateway.table import Endpoint
from agent.gateway.tokens import keep
from agent.gateway.upstream import Answer, Upstream
from agent.gateway.websocket import close_frame

if TYPE_CHECKING:
    from agent.gateway.connection import ClientConnection

log = logging.getLogger(__name__)
SWALLOW_BYTES = 1024 * 1024  # of a refused request's body, so that the connection can be used again
CUT_SECONDS = 1.0  # how long a cut waits for the end of the event that is under way


class Reply:
    """The answer's half of an exchange. `answer` is set once the engine's head has come and been passed on."""

    __slots__ = (
        "_heard",
        "_refusal",
        "answer",
        "begun",
        "bytes_in",
        "bytes_out",
        "channel",
        "closes",
        "connection",
        "cut_by",
        "done",
        "endpoint",
        "ends_in",
        "fallback",
        "first_byte",
        "gateway",
        "head",
        "id",
        "key",
        "model",
        "places",
        "request_complete",
        "status",
        "unheard",
        "upstream",
    )

    def __init__(self, connection: ClientConnection, head: RequestHead) -> None:
        gateway = connection.gateway
        self.connection: ClientConnection = connection
        self.gateway = gateway
        self.head = head
        self.id: str = gateway.next_id()
        self.begun = monotonic()  # the loop's own time is that of its last turn, in whole milliseconds
        self.key: Key | None = None
        self.channel = ""
        self.model = ""
        self.endpoint: Endpoint | None = None
        self.fallback = False
        self.places: tuple[Place, ...] = ()  # other nodes that it is relayed to, the one that is asked first
        self.ends_in: int | None = None
        self.upstream: Upstream | None = None
        self.answer: Answer | None = None
        self.cut_by: Refusal | None = None
        self.status = 0
        self.first_byte = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.request_complete = False
        self.done = False
        self.unheard = False  # the client has gone, and the engine goes on
        self._refusal: Refusal | None = None
        self._heard = (-1, self.begun)  # bytes of the answer at an earlier look at the engine, and when it was
        self.closes = not head.keep_alive or gateway.stopping  # the connection, with this answer

    @property
    def is_websocket(self) -> bool:
        """It was one from the answer's head on."""
        return self.answer is not None and self.answer.mode == "frames"

    # refusals and own answers

    def refuse(self, refusal: Refusal, close: bool = False) -> None:
        """Answers with `refusal`, once the body has come where it is small, so that the connection can be used again."""
        if self.done:
            return
        self._refusal = refusal
        waits = self.head.length is not None and self.head.length <= SWALLOW_BYTES and not self.head.expects_continue
        if self.request_complete or close or not waits:
            self._write_refusal(close=close)

    def _write_refusal(self, close: bool = False) -> None:
        refusal = self._refusal
        assert refusal is not None
        self.closes = self.closes or close or not self.request_complete
        self.status = refusal.status
        named = self.channel and not self.places
        extra = b"X-SlotServe-Channel: " + self.channel.encode() + b"\r\n" if named else b""
        extra += self.for_page()
        if refusal.status == 405 and self.head.route is not None:
            extra += own_answers.allow(self.head.route)
        self._finish(
            refusal.code,
            errors.answer(
                refusal,
                self.id,
                close=self.closes,
                head_only=self.head.method == b"HEAD",
                anthropic=self.head.route is not None and self.head.route.anthropic,
                extra=extra,
            ),
        )

    def _own(self, answer: tuple[int, bytes, bytes], extra: bytes | None = None) -> None:
        """An answer of the gateway's own (status, content type, body; `extra`: headers)."""
        status, content_type, data = answer
        self.closes = self.closes or not self.request_complete
        self.status = status
        lines = self.for_page() if extra is None else extra
        head = answer_head.own(status, content_type, len(data), self.id, lines, self.closes)
        self.bytes_out = len(data)
        self._finish("own", head if self.head.method == b"HEAD" else head + data)

    def for_page(self) -> bytes:
        """The headers that let a page of the client's read the answer."""
        head = self.head
        if head.origin is None or (head.route is not None and head.route.kind == "metrics"):
            return b""
        return self.gateway.cors.lines(head.origin)

    # the engine's answer

    def engine_unreachable(self, status: int) -> None:
        """Refused the connection, or closed it without an answer: the table says why, else that it does not answer."""
        if self.done:
            return
        if self.places:
            self.refuse(elsewhere.unreachable(self.places), close=True)
            return
        view = self.gateway.table.views.get(self.channel)
        if view is not None and self.key is not None:
            admission = admit(view, self.key.caller, self.gateway.clock.now_ms())
            if not admission.served:
                self.refuse(errors.of_admission(admission), close=True)
                return
        message = f"The engine of channel {self.channel} does not answer; it is being looked after."
        self.refuse(Refusal(status, "model_failed", message, retry_after=5), close=True)

    def answer_begins(self, answer: Answer, data: bytes) -> None:
        """The engine's head has come; `data` is what came of its body. Written to the client as one."""
        self.answer = answer
        self.status = answer.head.status
        self.first_byte = monotonic() - self.begun
        head = answer_head.of(self, answer)
        self._pass_on(answer, head + self._answer_bytes(answer, data) if data else head)

    def answer_goes_on(self, data: bytes) -> None:
        """More of the answer's body (where it is not a whole event, see Upstream.go_straight)."""
        answer = self.answer
        assert answer is not None
        self._pass_on(answer, self._answer_bytes(answer, data))

    def _answer_bytes(self, answer: Answer, data: bytes) -> bytes:
        """What of `data` goes to the client; after a cut only up to the event's end."""
        keep(answer.pieces, data)
        out = answer.feed(data, self.cut_by is not None)
        self.bytes_out += len(out)
        return out

    def _pass_on(self, answer: Answer, data: bytes) -> None:
        if answer.over:
            self._finish("ok" if self.status < 400 else "engine_error", data)
            return
        transport = self.connection.transport
        if data and not transport.is_closing():
            transport.write(data)
        if self.cut_by is not None and answer.may_tell:
            self._end_stream(self.cut_by)
        elif self.connection.paused:
            self.pause_engine()
        elif self.upstream is not None:
            if self.cut_by is None and not self.unheard and answer.at_event:
                self.upstream.go_straight(answer)
            else:
                self.upstream.straight = False

    def engine_lost(self, broken: bool) -> None:
        """The engine's connection has ended before its answer was over, as far as its framing tells."""
        if self.done:
            return
        answer = self.answer
        if answer is None:
            self.engine_unreachable(502)
        elif not broken and answer.mode in ("close", "raw", "frames"):
            last = b"0\r\n\r\n" if answer.mode == "close" else b""
            self._finish("ok" if self.status < 400 else "engine_error", last)
        else:
            log.warning("engine gone in mid-answer channel=%s id=%s", self.channel, self.id)
            if self.cut_by is not None:
                self._abort("cut")
            else:
                self._abort("engine_gone")

    def check_engine(self, now: float) -> None:
        """Gives the engine up when it has said nothing for too long (unless the client does not read, or still sends)."""
        waits = self.request_complete and not self.connection.paused and not self.is_websocket
        if self._heard[0] != self.bytes_out or not waits:
            self._heard = self.bytes_out, now
        elif now - self._heard[1] > self.gateway.idle_seconds:
            log.warning(
                "engine silent, given up on channel=%s id=%s seconds=%d", self.channel, self.id, now - self._heard[1]
            )
            message = f"The engine of channel {self.channel} has said nothing for {self.gateway.idle_seconds:g} s."
            refusal = Refusal(504, "engine_timeout", message)
            if self.answer is None:
                self.refuse(refusal, close=True)
            else:
                self.cut(refusal)

    # cuts

    def cut(self, refusal: Refusal) -> None:
        """Ends the request: refused where nothing was answered, else told at the end of the event under way."""
        if self.done or self.cut_by is not None:
            return
        answer = self.answer
        if answer is None:
            self.refuse(refusal, close=True)
            return
        self.cut_by = refusal
        if self.upstream is not None:
            self.upstream.straight = False
        if answer.may_tell:
            self._end_stream(refusal)
        else:
            self.gateway.loop.call_later(CUT_SECONDS, self._abort, "cut")

    def _end_stream(self, refusal: Refusal) -> None:
        answer = self.answer
        assert answer is not None
        anthropic = self.head.route is not None and self.head.route.anthropic
        event = close_frame(refusal) if answer.mode == "frames" else errors.event(refusal, self.id, anthropic)
        if answer.mode in ("chunked", "close"):
            event = b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)
        self.closes = True
        self._finish("cut", event)

    def _abort(self, outcome: str) -> None:
        """Ends the client's connection without a clean end: no last chunk, a reset where only the close would tell."""
        if self.done:
            return
        if self.answer is not None and self.answer.mode in ("raw", "strip"):
            self.connection.reset()
        self.closes = True
        self._finish(outcome)

    # flow

    def pause_engine(self) -> None:
        upstream = self.upstream
        if upstream is not None and upstream.transport is not None:
            upstream.straight = False
            if upstream.transport.is_reading():
                upstream.transport.pause_reading()

    def resume_engine(self) -> None:
        upstream = self.upstream
        if upstream is None or upstream.transport is None or upstream.transport.is_closing():
            return
        if not upstream.transport.is_reading():
            upstream.transport.resume_reading()

    def _release(self) -> None:
        """Gives up what the request's half holds."""

    def _finish(self, outcome: str, last: bytes = b"") -> None:
        """`last`: what the client still gets, once it is written down that it does."""
        if self.done:
            return
        self.done = True
        self._release()
        if self.upstream is not None:
            self.upstream.drop()
        self.gateway.finished(self, "client_gone" if self.unheard and outcome == "ok" else outcome)
        if last and not self.connection.transport.is_closing():
            self.connection.transport.write(last)
        self.connection.done(self.closes)

"""Runs one case and holds what came of it against the second opinion: the fuzzer's rules, each an assertion.

1. No exception escapes, and none is caught as a failure inside the gateway.
2. In the end no connection, no running request and no count is left; each request that was let in has one usage row.
3. The client has got well-formed answers, at most one for each request it sent, or a closed connection.
4. The engine has got, on each connection, one request by the strictest reading: one that the client sent, its body
   unchanged but for the model, without the client's key; never a second request inside.
5. An answer of the engine that ends cleanly at the client had ended cleanly at the engine, and says the same.
"""

from __future__ import annotations

import json
import logging
import re

from tests.fuzz import strict
from tests.fuzz.cases import Case, without_model
from tests.fuzz.world import Line, World

FORWARDED = re.compile(
    rb"/v1/(chat/completions|completions|responses|embeddings|rerank|score|messages(/count_tokens)?|(audio|images)/[a-z_-]+)"
    rb"|/(tokenize|detokenize|apply-template|infill|completion|embedding|pooling|classify)"
)


class Failures(logging.Handler):
    """Errors that the gateway logs: it caught something it should not have met."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Runner:
    """Runs cases one after another in one world, which each must leave as it found it."""

    def __init__(self) -> None:
        self.world = World()
        self.failures = Failures()
        logger = logging.getLogger("agent.gateway")
        logger.setLevel(logging.ERROR)
        logger.addHandler(self.failures)
        logger.propagate = False

    def close(self) -> None:
        self.world.loop.close()
        logger = logging.getLogger("agent.gateway")
        logger.removeHandler(self.failures)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True

    def check(self, case: Case) -> tuple[Line, list[Line]]:
        """Runs a case; AssertionError (or whatever escapes the gateway) where a rule is broken. The client's line and
        the engine's."""
        world = self.world
        loop, gateway = world.loop, world.gateway
        loop.dialled, world.rows, self.failures.records = [], [], []
        line = world.connect()
        play = _Play(world, line, case)
        try:
            for letter in case.plan:
                play.step(letter)
            play.finish()
            closed_by_us = (line.is_closing() or line.eof_written) and not play.left
            if not line.is_closing():
                line.goes()
            loop.advance(10.0)
        finally:
            world.set_keys(True)
            loop.refuses = False
        for record in self.failures.records:
            raise AssertionError(f"logged: {record.getMessage()}") from (
                record.exc_info[1] if record.exc_info else None
            )
        assert line.lost, "the client's connection is never closed"
        assert not gateway.connections
        assert not any(gateway.running.in_flight.values()), gateway.running.in_flight
        assert gateway.running.none()
        for up in loop.dialled:
            assert up.lost, "the engine's connection is never closed"
        _check_answers(play, line, closed_by_us)
        _check_forwarded(case, play, loop.dialled)
        assert len(gateway.usage) == 0
        assert len({row["id"] for row in world.rows}) == len(world.rows)
        assert len(world.rows) >= len(loop.dialled)
        return line, loop.dialled


class _Play:
    """The order of events. Letters: c the client's next piece, e the engine's, t what is due at once, p/r the client
    stops and goes on reading, u the engine's socket is full, d it has room again, x the client breaks off, E the engine,
    s a second passes, k the channel is cut, K the key is revoked."""

    def __init__(self, world: World, line: Line, case: Case) -> None:
        self.world, self.line, self.case = world, line, case
        self.pieces = [case.data[a:b] for a, b in zip((0, *case.cuts), (*case.cuts, len(case.data)), strict=True)]
        self.sent = b""
        self.left = self.disturbed = self.cut = False
        self.said: dict[Line, bytes] = {}
        self.ended: set[Line] = set()
        self._paused = False
        self._engine: dict[Line, list[bytes]] = {}

    def step(self, letter: str) -> None:
        loop, line = self.world.loop, self.line
        if letter == "c":
            self._client()
        elif letter == "e":
            self._engine_speaks()
        elif letter == "t":
            loop.run_soon()
        elif letter in "pr" and not line.is_closing():
            if self._paused != (letter == "p"):
                self._paused = letter == "p"
                line.protocol.pause_writing() if self._paused else line.protocol.resume_writing()
        elif letter in "ud":
            for up in loop.dialled[-1:]:
                if not up.is_closing() and (letter == "u") != getattr(up, "full", False):
                    up.full = letter == "u"  # type: ignore[attr-defined]
                    up.protocol.pause_writing() if letter == "u" else up.protocol.resume_writing()
        elif letter == "x":
            self.left = True
            line.goes(ConnectionResetError("gone"))
        elif letter == "E":
            for up in loop.dialled[-1:]:
                self.ended.add(up)
                self.disturbed = True
                up.goes()
        elif letter == "s":
            loop.advance(1.0)
        elif letter == "k":
            self.cut = True
            self.world.gateway.running.cut("main", 3)
        elif letter == "K":
            self.cut = True
            self.world.set_keys(False)

    def finish(self) -> None:
        """Everything goes on to its end, in turns."""
        loop = self.world.loop
        if self._paused:
            self.step("r")
        for up in loop.dialled[-1:]:
            if getattr(up, "full", False):
                self.step("d")
        for _ in range(100_000):
            moved = loop.run_soon()
            moved = self._client() or moved
            moved = self._engine_speaks() or moved
            if not moved:
                return
        raise AssertionError("it never ends")

    def _client(self) -> bool:
        if not self.pieces or self.line.is_closing() or not self.line.says(self.pieces[0]):
            return False
        self.sent += self.pieces.pop(0)
        return True

    def _engine_speaks(self) -> bool:
        """Answers, as engines do, once it has the whole request."""
        for number, up in enumerate(self.world.loop.dialled):
            if up.is_closing():
                continue
            pieces = self._engine.get(up)
            if pieces is None:
                found, _ = strict.requests(up.written, of_client=False)
                if not found or not found[0].complete:
                    continue
                answers = self.case.answers
                pieces = self._engine[up] = list(answers[number % len(answers)]) if answers else []
            if not pieces:
                if up not in self.ended:  # whatever it has not said by now it never says
                    self.ended.add(up)
                    up.goes()
                    return True
                continue
            if pieces[0] == b"":
                pieces.pop(0)
                self.ended.add(up)
                up.goes()
                return True
            if up.says(pieces[0]):
                self.said[up] = self.said.get(up, b"") + pieces.pop(0)
                return True
        return False


def _check_answers(play: _Play, line: Line, closed_by_us: bool) -> None:
    asked, end = strict.requests(play.sent)
    got, how = strict.answers(line.written, [m.method for m in asked], closed=not line.aborted)
    if (how and b"HEAD " in play.sent) or (end == "upgrade" and b"\r\n\r\n" in asked[-1].body):
        return  # a malformed request may have been read as HEAD, frames as a request: that cannot be told here
    assert not how.startswith("malformed"), f"{how} in {line.written[-300:]!r}"
    final = [m for m in got if m.status >= 200]
    beyond = end.startswith(("malformed", "incomplete", "upgrade"))
    assert len(final) <= len(asked) + beyond, "more answers than requests"
    for number, message in enumerate(final):
        assert message.status != 500 or b"internal_error" not in message.body
        last = number == len(final) - 1
        assert message.complete or last
        assert last or message.values(b"connection") != [b"close"], "an answer after the last one"
        if not message.values(b"x-slotserve-model") and message.status >= 400 and message.body:
            error = json.loads(message.body)["error"]
            assert {"message", "type", "param", "code"} <= set(error)
    if asked and asked[0].complete and not play.left:
        assert final or closed_by_us or line.aborted or line.lost, "neither an answer nor a closed connection"
    if how == "incomplete":
        assert closed_by_us or play.left or play.disturbed or line.aborted or play.pieces, "an answer without its end"
    _check_passed_on(play, final)


def _check_passed_on(play: _Play, final: list[strict.Message]) -> None:
    """Clean ends are the engine's own."""
    passed = [m for m in final if m.values(b"x-slotserve-model")]
    if play.cut or len(passed) > len(play.said):
        return
    for message, (up, said) in zip(passed, play.said.items(), strict=False):
        theirs, how = strict.answers(said, [b"POST"], up in play.ended, of_engine=True)
        theirs = [m for m in theirs if m.status >= 200]
        if not message.complete or message.framing == "close":
            continue
        if message.status == 101:
            assert theirs[0].body.startswith(message.body) or message.body.startswith(theirs[0].body)
            continue
        assert theirs, f"an answer of the engine's that is none: {how}"
        assert theirs[0].status == message.status
        assert theirs[0].complete, f"a clean end that the engine has not made: {how}"
        assert theirs[0].body == message.body


def _check_forwarded(case: Case, play: _Play, lines: list[Line]) -> None:
    asked, end = strict.requests(play.sent)
    while end == "upgrade":  # the offer may have been refused: then requests follow
        more, end = strict.requests(asked[-1].body)
        asked += more
    number = 0
    for up in lines:
        found, how = strict.requests(up.written, of_client=False)
        assert len(found) <= 1, "two requests on one connection"
        if not found:
            assert not up.written, f"forwarded: {how}"
            continue
        message = found[0]
        assert how in ("", "incomplete", "upgrade"), f"forwarded: {how}"
        if message.method == b"GET":
            _check_websocket(asked, message)
            continue
        assert message.method == b"POST"
        assert FORWARDED.fullmatch(message.target.partition(b"?")[0]), message.target
        assert message.values(b"authorization") == [b"Bearer engine-key"]
        assert message.values(b"host") == [b"main.slotserve"]
        assert not message.values(b"x-api-key")
        assert not message.values(b"connection") or message.values(b"connection") == [b"close"]
        while number < len(asked) and not _same(asked[number], message):
            number += 1
        assert number < len(asked), f"forwarded what the client has not sent: {message}"
        number += 1


def _check_websocket(asked: list[strict.Message], forwarded: strict.Message) -> None:
    """Offered by the client, with its frames and no more behind it."""
    assert forwarded.target.partition(b"?")[0] == b"/v1/realtime"
    assert forwarded.values(b"upgrade") == [b"websocket"]
    assert forwarded.values(b"authorization") == [b"Bearer engine-key"]
    assert not forwarded.values(b"x-api-key")
    assert any(a.method == b"GET" and a.body.startswith(forwarded.body) for a in asked), "nobody offered this"


def _same(asked: strict.Message, forwarded: strict.Message) -> bool:
    if asked.method != b"POST" or not asked.target.startswith(b"/"):
        return False
    if asked.target.partition(b"?")[1:] != forwarded.target.partition(b"?")[1:]:
        return False
    if not forwarded.complete:
        return True
    kinds = asked.values(b"content-type")
    if any(k.lower().startswith(b"multipart/form-data") for k in kinds):
        return asked.complete
    return asked.complete and without_model(asked.body) == without_model(forwarded.body)

"""What the fuzzer sends: requests and engines' answers that are right, nearly right and quite wrong, and the order of
events. Everything is drawn from `dice`, so that a seed, Hypothesis or a coverage-guided fuzzer can stand behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tests.fuzz.world import KEY

T = TypeVar("T")
_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\]*"|null)')


class Dice(Protocol):
    """As much of random.Random as is needed."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True)
class Case:
    """`data` of the client in pieces that end at `cuts`; an engine's answer in pieces for each request that reaches it
    (an empty last piece: it closes); `plan`, one letter a step (see run.py), before everything goes to its end."""

    data: bytes
    cuts: tuple[int, ...] = ()
    answers: tuple[tuple[bytes, ...], ...] = ()
    plan: str = ""


METHODS = [b"POST"] * 60 + [b"GET", b"HEAD", b"OPTIONS", b"CONNECT", b"PUT", b"post", b"PRI", b"P\tT", b""]
TARGETS = [b"/v1/chat/completions"] * 60 + [
    b"/v1/embeddings?a=b",
    b"/channels/main/v1/completions",
    b"/channels/other/v1/completions",
    b"/v1/messages",
    b"/tokenize",
    b"/v1/models",
    b"/v1/models/the-model",
    b"/healthz",
    b"/metrics",
    b"/v1/realtime",
    b"/slots",
    b"//v1/chat/completions",
    b"/v1/../v1/chat/completions",
    b"/v1/chat%2Fcompletions",
    b"http://h/v1/chat/completions",
    b"*",
    b"/v1/chat/completions#x",
    b"/v1/\xc3\xbc",
    b"/v1/chat/completions?\x7f",
    b"",
]
VERSIONS = (
    [b"HTTP/1.1"] * 60 + [b"HTTP/1.0"] * 8 + [b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.10", b""]
)
LINES = [
    b"Authorization: Bearer wrong",
    b"x-api-key: " + KEY,
    b"Host: h",
    b"Host: a/b",
    b"Connection: close",
    b"Connection: keep-alive, x-hop",
    b"Connection: content-length",
    b"Connection: transfer-encoding, host",
    b"Connection: Upgrade, HTTP2-Settings",
    b"Connection: upgrade",
    b"Upgrade: h2c",
    b"Upgrade: websocket",
    b"X-Hop: 1",
    b"TE: trailers",
    b"Trailer: X-A",
    b"Expect: 100-continue",
    b"Expect: 100-Continue, x",
    b"Content-Length: 0",
    b"Content-Length: 5",
    b"Content-Length: +5",
    b"Content-Length: 5 5",
    b"Content-Length: 5, 5",
    b"Content-Length:",
    b"Content-Length: 18446744073709551616",
    b"Content-Length : 3",
    b"Content_Length: 3",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: chunked ",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\r\n chunked",
    b" X-Folded: 1",
    b"X-A: b\rX-B: c",
    b"X-A: b\nX-B: c",
    b"X-A: \0",
    b"X-A: \xff\xfe",
    b"X-A\0: b",
    b": b",
    b"X-A",
    b"X A: b",
    b"",
    b"X-SlotServe-Channel: main",
    b"X-SlotServe-Channel: other",
    b"X-SlotServe-Model: forged",
    b"X-Forwarded-For: 127.0.0.1",
    b"Content-Type: multipart/form-data; boundary=b",
    b"Content-Type: multipart/form-data",
    b"Proxy-Connection: keep-alive",
    b"Accept-Encoding: gzip",
]
BODIES = [
    b'{"model":"auto"}',
    b'{"model":"the-model","stream":true}',
    b'{"messages":["model"], "model" : "auto" }',
] * 4 + [
    b'{"model":"auto","messages":[]}',
    b'{"messages":[{"role":"user","content":"hi"}],"model":"the-model"}',
    b'{"model":"the-model"}',
    b'{"stream":true,"model":""}',
    b'{"model":"auto","messages":[{"role":"user","content":"\\u00fc"}]}',
    b'{"model":"other"}',
    b'{"model":null}',
    b'{"model":7}',
    b"{}",
    b"[]",
    b"{",
    b"",
    b'{"a":"\\u006dodel","mod\\u0065l":"auto"}',
    b'{"model":"auto","model":"the-model"}',
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n',
    b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"0\r\n\r\n",
    b'{"model":"auto","x":"' + b"y" * 300_000 + b'"}',
    b'{"x":"' + b"y" * 300_000 + b'","model":"auto"}',
]
SPICES = [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\r\n\r\n", b"0", b"1", b"f", b"-", b"+", b"_", b"0x",
          b"0\r\n\r\n", b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\xff", b"\x80", b"\x0b", b"\x7f",
          b"HTTP/1.1", b"Host: x\r\n", b"\r\n ", b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"]  # fmt: skip
STATUS = [b"HTTP/1.1 200 OK"] * 10 + [
    b"HTTP/1.1 200",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 304 Not Modified",
    b"HTTP/1.1 400 Bad",
    b"HTTP/1.1 500 Oops",
    b"HTTP/1.1 101 Switching",
    b"HTTP/1.1 099 X",
    b"HTTP/1.1 2000 OK",
    b"HTTP/1.1 200 O\nK",
    b"HTTP/1.1200 OK",
    b"HTTP/2 200",
    b"ICY 200 OK",
    b"",
]
ANSWER_LINES = [
    b"Content-Type: application/json",
    b"Content-Type: text/event-stream",
    b"Connection: keep-alive",
    b"Server: engine",
    b"X-SlotServe-Model: forged",
    b"X-Request-Id: forged",
    b"Cache-Control: max-age=5",
    b"Content-Length: 3",
    b"Content-Length: x",
    b"Transfer-Encoding: gzip",
    b"Trailer: X-A",
    b"X-A: b\nSet-Cookie: c",
    b"X-A: b\rc",
    b"X-A: \0",
    b"X A: b",
    b"X-A",
    b" folded: x",
    b"X-A : b",
]
WEBSOCKET = b"GET /v1/realtime"
OFFER = (
    b" HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer "
    + KEY
    + b"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TAKEN = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
ANSWERED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"9\r\ndata: a\n\n\r\n",
    b"9\r\ndata: b\n\n\r\n",
    b"b\r\ndata: c\n\n\r\n",
    b"\r\n",
    b"0\r\n\r\n",
)
EVENTS = [
    b"data: a\n\n",
    b'data: {"x": 1}\n\n',
    b"data: [DONE]\n\n",
    b"data: half",
    b"\n",
    b"\r\n\r\n",
    b"x",
    b"event: e\r\ndata: d\r\n\r\n",
]


def make_case(dice: Dice) -> Case:
    """One case. Most are close to what is right, for there the mistakes hide."""
    if dice.randrange(5) == 0:
        return _again(dice)
    data = b"".join(_request(dice) for _ in range(1 + (dice.randrange(3) == 0) + (dice.randrange(8) == 0)))
    if dice.randrange(3) == 0:
        data = _spiced(dice, data, 1 + dice.randrange(3))
    if dice.randrange(6) == 0:
        data = data[: dice.randrange(len(data) + 1)]
    answers = tuple(_answer(dice, WEBSOCKET in data and dice.randrange(4) > 0) for _ in range(2))
    plan = "".join(_one(dice, "ccccceeeettprud") for _ in range(dice.randrange(40))) if dice.randrange(3) else ""
    if dice.randrange(3) == 0:
        place = dice.randrange(len(plan) + 1)
        plan = plan[:place] + _one(dice, "xEskK") + plan[place:]
    return Case(data, _cuts(dice, data), answers, plan)


def _again(dice: Dice) -> Case:
    """The same head several times but for the body's length, each when the one before is answered; what is nearly the
    same comes last."""
    target = _one(dice, TARGETS[:66])
    length = _one(dice, [b"Content-Length: %d", b"content-length: %d", b"Content-Length:%d", b"Content-Length: 0%d"])
    lines = [b"Host: g", b"Authorization: Bearer " + KEY, *(_one(dice, LINES) for _ in range(dice.randrange(2)))]
    lines.insert(dice.randrange(3), length)
    head = b"\r\n".join([b"POST %b HTTP/1.1" % target, *lines]) + b"\r\n\r\n"
    bodies = [_one(dice, BODIES[:-6]) for _ in range(3 + dice.randrange(3))]
    whole = [head % len(body) + body for body in bodies]
    if dice.randrange(2):
        whole[-1] = _spiced(dice, whole[-1], 1)
    if dice.randrange(4) == 0:
        whole[-1] += whole[0][: dice.randrange(len(whole[0]) + 1)]
    data, cuts, plan = b"", [], ""
    for part in whole:
        more = [len(data) + c for c in _cuts(dice, part)] if dice.randrange(3) == 0 else []
        cuts += [len(data), *more] if data else more
        data += part
        plan += "c" * (len(more) + 1) + "tteeeeeeeeett"
    answers = tuple(_answer(dice) for _ in range(2)) if dice.randrange(4) == 0 else (ANSWERED,)
    return Case(data, tuple(cuts), answers, plan)


def _request(dice: Dice) -> bytes:
    if dice.randrange(25) == 0:
        return (
            WEBSOCKET
            + _one(dice, [b"", b"?model=auto", b"?model=other", b"?x=%0d%0a&model=auto"])
            + OFFER
            + _frames(dice)
        )
    body = _one(dice, BODIES[:-6] if dice.randrange(20) else BODIES)
    lines = [b"Host: gateway"] if dice.randrange(20) else []
    if dice.randrange(20):
        lines.append(b"Authorization: Bearer " + KEY)
    how = dice.randrange(11)
    if how < 6:
        lines.append(b"Content-Length: %d" % len(body))
    elif how < 10 or dice.randrange(4):
        lines.append(b"Transfer-Encoding: chunked")
        body = _chunked(dice, body)
    if body.startswith(b"--b") and dice.randrange(4):
        lines.append(b"Content-Type: multipart/form-data; boundary=b")
    for _ in range(max(0, dice.randrange(6) - 3)):
        lines.insert(dice.randrange(len(lines) + 1), _one(dice, LINES))
    line = b"%b %b %b" % (_one(dice, METHODS), _one(dice, TARGETS), _one(dice, VERSIONS))
    return b"\r\n".join([line, *lines]) + b"\r\n\r\n" + body


def _frames(dice: Dice) -> bytes:
    sizes = [dice.randrange(_one(dice, [4, 126, 400])) for _ in range(dice.randrange(4))]
    return b"".join(b"\x81" + (bytes([n]) if n < 126 else b"\x7e" + n.to_bytes(2, "big")) + b"w" * n for n in sizes)


def _chunked(dice: Dice, data: bytes) -> bytes:
    out, pos = b"", 0
    while pos < len(data):
        size = min(len(data) - pos, 1 + dice.randrange(_one(dice, [3, 20, 200_000])))
        extension = _one(dice, [b"", b"", b"", b";a", b";a=b", b';a="b"', b" ;a", b" ", b";\xff"])
        out += b"%b%b\r\n%b\r\n" % (_one(dice, [b"%x", b"%X", b"0%x"]) % size, extension, data[pos : pos + size])
        pos += size
    return (
        out
        + _one(dice, [b"0\r\n", b"0\r\n", b"00\r\n", b"0;x\r\n"])
        + _one(dice, [b"", b"", b"X-T: 1\r\n", b"Host: x\r\n"])
        + b"\r\n"
    )


def _answer(dice: Dice, taken: bool = False) -> tuple[bytes, ...]:
    if taken or dice.randrange(40) == 0:
        whole = TAKEN + _frames(dice)
        cuts = _cuts(dice, whole)
        return (
            *(whole[a:b] for a, b in zip((0, *cuts), (*cuts, len(whole)), strict=True)),
            *((b"",) * dice.randrange(2)),
        )
    lines = [_one(dice, ANSWER_LINES) for _ in range(1)] if dice.randrange(2) else []
    lines.append(_one(dice, ANSWER_LINES[:2]))
    events = [_one(dice, EVENTS) for _ in range(dice.randrange(6))]
    how, tail = dice.randrange(4), ()
    if how == 0:
        lines.append(b"Content-Length: %d" % sum(map(len, events)))
    elif how < 3:
        lines.append(b"Transfer-Encoding: chunked")
        events = [b"%x\r\n%b\r\n" % (len(e), e) for e in events] + [
            _one(dice, [b"0\r\n\r\n", b"0\r\nX-T: 1\r\n\r\n", b""])
        ]
    if how == 3 or dice.randrange(4) == 0:
        tail = (b"",)
    head = b"\r\n".join([_one(dice, STATUS), *lines]) + b"\r\n\r\n"
    if dice.randrange(10) == 0:
        head = b"HTTP/1.1 100 Continue\r\n\r\n" + head
    pieces = [head, *events]
    if dice.randrange(3) == 0:
        whole = _spiced(dice, b"".join(pieces), 1 + dice.randrange(2))
        cuts = _cuts(dice, whole)
        pieces = [whole[a:b] for a, b in zip((0, *cuts), (*cuts, len(whole)), strict=True)]
    elif dice.randrange(2):
        pieces = [b"".join(pieces)]
    return (*(p for p in pieces if p), *tail)


def _spiced(dice: Dice, data: bytes, times: int) -> bytes:
    for _ in range(times):
        # heads are where it matters, so places early in the data are drawn more often
        place = dice.randrange(1 + (min(len(data), 400) if dice.randrange(3) else len(data)))
        how = dice.randrange(5)
        length = 1 + dice.randrange(4)
        if how == 0:
            data = data[:place] + _one(dice, SPICES) + data[place:]
        elif how == 1:
            data = data[:place] + _one(dice, SPICES) + data[place + length :]
        elif how == 2:
            data = data[:place] + data[place + length :]
        elif how == 3:
            data = data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]
        else:
            begin = dice.randrange(place + 1)
            data = data[:place] + data[begin : begin + 1 + dice.randrange(60)] + data[place:]
    return data


def _cuts(dice: Dice, data: bytes) -> tuple[int, ...]:
    size = len(data)
    if size == 0 or dice.randrange(3) == 0:
        return ()
    if size < 600 and dice.randrange(8) == 0:
        return tuple(range(1, size))
    return tuple(sorted({dice.randrange(size) for _ in range(1 + dice.randrange(6))} - {0}))


def _one(dice: Dice, options: Sequence[T]) -> T:
    return options[dice.randrange(len(options))]


def without_model(body: bytes) -> Any:
    """A JSON body without its model, to be compared; the bytes where it is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return _MODEL.sub(b"", body, count=1)
    return {k: v for k, v in content.items() if k != "model"} if isinstance(content, dict) else body

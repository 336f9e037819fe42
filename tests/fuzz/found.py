"""What the fuzzer has found, one small case for each kind of fault; each stays a test."""

from __future__ import annotations

from tests.fuzz.cases import Case

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer sk-ss-tomas\r\n"
GOOD = CHAT + b'Content-Length: 16\r\n\r\n{"model":"auto"}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

FOUND = {
    "a second refusal was written behind the last answer, after the end of file": Case(
        b"POST /v1/x HTTP/2.0\r\nHost: g\r\nContent-Length: 1\r\n\r\nxPOST  \r\n\r\n"
    ),
    "bare CR in an engine's header": Case(GOOD, (), ((b"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 0\r\n\r\n",),)),
    "bare LF in an engine's header": Case(
        GOOD, (), ((b"HTTP/1.1 200 OK\r\nX-A: b\nX: c\r\nContent-Length: 0\r\n\r\n",),)
    ),
    "bare LF in an engine's status line": Case(GOOD, (), ((b"HTTP/1.1 200 O\nK\r\nContent-Length: 0\r\n\r\n",),)),
    "NUL in an engine's header": Case(GOOD, (), ((b"HTTP/1.1 200 OK\r\nX-A: \0\r\nContent-Length: 0\r\n\r\n",),)),
    "space before the colon of an engine's header": Case(
        GOOD, (), ((b"HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 0\r\n\r\n",),)
    ),
    "space in the name of an engine's header": Case(
        GOOD, (), ((b"HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 0\r\n\r\n",),)
    ),
    "an engine's status of 99": Case(GOOD, (), ((b"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",),)),
    "an engine's status of four digits": Case(GOOD, (), ((b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",),)),
    "a chunk of the engine's that is longer than it says": Case(GOOD, (), ((CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",),)),
    "the same in pieces": Case(GOOD, (), ((CHUNKED, b"1\r\nx", b"\r", b"y", b"\n0\r\n\r\n"),)),
    "a chunk's size with a sign": Case(GOOD, (), ((CHUNKED, b"+1\r\nx\r\n", b"0\r\n\r\n"),)),
    "a chunk's size with an underline": Case(GOOD, (), ((CHUNKED, b"1_0\r\n" + b"x" * 16 + b"\r\n", b"0\r\n\r\n"),)),
    "a chunk's size with 0x": Case(GOOD, (), ((CHUNKED, b"0x1\r\nx\r\n", b"0\r\n\r\n"),)),
    "a chunk's size with a tab": Case(GOOD, (), ((CHUNKED, b"1\t\r\nx\r\n0\r\n\r\n"),)),
    "an engine's trailer without a colon": Case(GOOD, (), ((CHUNKED + b"0\r\nX1\r\n\r\n",),)),
    "bare CR in an engine's trailer": Case(GOOD, (), ((CHUNKED + b"0\r\nX-T: 1\rX: 2\r\n\r\n",),)),
    "what came with a CONNECT was dropped, and its rest taken for a request": Case(
        b"CONNECT /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer sk-ss-tomas\r\n\r\nnonsense\r\n"
        + GOOD,
        (90, 100),
    ),
    "the same, and more answers than requests": Case(
        b"CONNECT /v1/x HTTP/1.1\r\nHost: g\r\n\r\nd ;a\r\n{}\r\nPOST / HTTP/1.1\r\nHost:\r\n\r\n{", (38, 50)
    ),
}

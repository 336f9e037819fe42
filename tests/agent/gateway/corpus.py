"""Odd requests, what the gateway does with each, and what nginx does, which passes everything on to the same engine.

Every difference is expected and says why. What smuggles, for two servers in a row read it differently, is refused by at
least one of them here, and by the gateway always.
"""

from __future__ import annotations

from dataclasses import dataclass

K = b"Authorization: Bearer sk-ss-tomas\r\n"
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HEAD = LINE + b"Host: g\r\n" + K
BODY = b'{"model":"auto"}'
SIZED = b"Content-Length: 16\r\n\r\n" + BODY
TE = b"Transfer-Encoding: chunked\r\n"
CODED = b"\r\n10\r\n" + BODY + b"\r\n0\r\n\r\n"
GOOD = HEAD + SIZED
INNER = b"POST /v1/embeddings HTTP/1.1\r\nHost: g\r\n" + K + SIZED

NUMBER = "both refuse it, by different numbers"
BARE_LF = "nginx takes a bare LF for a line's end; here only CRLF is one, for the next server may read it differently"
STRICT = "nginx passes on what the standard forbids; the gateway's parser does not"
DROPS = "nginx leaves such a line out and goes on; the gateway refuses the request"
TRAILER = "nginx does not read trailers; the gateway refuses malformed ones, and framing headers among them"
OWS = "spaces and tabs around a value are allowed, and no part of it; nginx takes no tab there"
EARLY = (
    "nginx answers as soon as it has what it takes for the body, and trips over the rest; the gateway refuses the whole"
)
BODY_READ = "nginx does not look into bodies; the gateway wants a JSON object to find the model in"
OWN = "the gateway answers this itself, and passes over a body"
PATHS = "nginx was told to pass on every path; the gateway knows its own by their one spelling"
KEYS = "nginx asks for no key"
HOST = "an empty Host is allowed, one with a user's name is not; nginx sees both the other way round"
EXPECT = "nginx passes over expectations that it does not know"
ABSOLUTE = "nginx takes the absolute form; it is for proxies, which the gateway is not to its clients"
OLD = "nginx still speaks HTTP/0.9"
VERSION = "nginx takes any HTTP/1.x for 1.1"
PIPELINE = (
    "nginx answers what is sent in advance; the gateway answers the first, closes, and the client sends the rest again"
)


@dataclass(frozen=True)
class Odd:
    """A request; the outcomes as odd_requests.py says them; `why` they differ."""

    name: str
    data: bytes
    ours: str
    nginx: str
    why: str = ""


ODD = (
    # framing: lengths
    Odd("the plain request", HEAD + SIZED, "200 >1", "200 >1"),
    Odd("the same in chunks", HEAD + TE + CODED, "200 >1", "200 >1"),
    Odd("both length headers", HEAD + b"Content-Length: 5\r\n" + TE + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("both, the other way round", HEAD + TE + b"Content-Length: 5\r\n\r\n0\r\n\r\n", "400", "400"),
    Odd("both, with a request behind the chunks", HEAD + b"Content-Length: 16\r\n" + TE + CODED + INNER, "400", "400"),
    Odd("a length of zero and chunks", HEAD + b"Content-Length: 0\r\n" + TE + CODED, "400", "400"),
    Odd("differing lengths", HEAD + b"Content-Length: 16\r\nContent-Length: 3\r\n\r\n" + BODY, "400", "400"),
    Odd("the same length twice", HEAD + b"Content-Length: 16\r\n" + SIZED, "400", "400"),
    Odd("list of lengths", HEAD + b"Content-Length: 16, 16\r\n\r\n" + BODY, "400", "400"),
    Odd("signed length", HEAD + b"Content-Length: +16\r\n\r\n" + BODY, "400", "400"),
    Odd("negative length", HEAD + b"Content-Length: -16\r\n\r\n" + BODY, "400", "400"),
    Odd("hexadecimal length", HEAD + b"Content-Length: 0x10\r\n\r\n" + BODY, "400", "400"),
    Odd("length with an underline", HEAD + b"Content-Length: 1_6\r\n\r\n" + BODY, "400", "400"),
    Odd("length with a space inside", HEAD + b"Content-Length: 1 6\r\n\r\n" + BODY, "400", "400"),
    Odd("length with something behind it", HEAD + b"Content-Length: 16;\r\n\r\n" + BODY, "400", "400"),
    Odd("length in quotes", HEAD + b'Content-Length: "16"\r\n\r\n' + BODY, "400", "400"),
    Odd("length in other digits", HEAD + b"Content-Length: \xd9\xa1\xd9\xa6\r\n\r\n" + BODY, "400", "400"),
    Odd("length as a float", HEAD + b"Content-Length: 16.0\r\n\r\n" + BODY, "400", "400"),
    Odd("length with zeros before it", HEAD + b"Content-Length: 0016\r\n\r\n" + BODY, "200 >1", "200 >1"),
    Odd("length with spaces around it", HEAD + b"Content-Length: \t 16 \r\n\r\n" + BODY, "200 >1", "400", OWS),
    Odd("length with a vertical tab", HEAD + b"Content-Length:\x0b16\r\n\r\n" + BODY, "400", "400"),
    Odd("endless length", HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY, "400", "400"),
    Odd("length of 2**64 + 16", HEAD + b"Content-Length: 18446744073709551632\r\n\r\n" + BODY, "400", "400"),
    Odd("empty length", HEAD + b"Content-Length:\r\n\r\n" + BODY, "400", "400"),
    Odd("name of the length with an underline", HEAD + b"Content_Length: 3\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("no length at all", HEAD + b"\r\n", "400", "200 >1", BODY_READ),
    Odd(
        "a request hidden in the body",
        HEAD + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
        "400",
        "200 >1",
        BODY_READ,
    ),
    Odd(
        "a request behind a body of length zero",
        HEAD + b"Content-Length: 0\r\n\r\n" + INNER,
        "400 200 >1",
        "200 200 >2",
        BODY_READ,
    ),
    Odd(
        "GET with a body that is a request",
        b"GET /v1/models HTTP/1.1\r\nHost: g\r\n" + K + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
        "200",
        "200 >1",
        OWN,
    ),
    Odd(
        "HEAD with a body that is a request",
        b"HEAD /v1/models HTTP/1.1\r\nHost: g\r\n" + K + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
        "200",
        "200 >1",
        OWN,
    ),
    Odd(
        "GET with chunks",
        b"GET /v1/models HTTP/1.1\r\nHost: g\r\n" + K + TE + b"\r\n3\r\nabc\r\n0\r\n\r\n",
        "200",
        "200 >1",
        OWN,
    ),
    # framing: codings
    Odd("two codings", HEAD + b"Transfer-Encoding: gzip, chunked\r\n" + CODED, "400", "501", NUMBER),
    Odd("unknown coding", HEAD + b"Transfer-Encoding: gzip\r\n" + CODED, "400", "501", NUMBER),
    Odd("a coding that only looks like it", HEAD + b"Transfer-Encoding: xchunked\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding twice", HEAD + TE + TE + CODED, "400", "400"),
    Odd("coding twice in one line", HEAD + b"Transfer-Encoding: chunked, chunked\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding, then identity", HEAD + TE + b"Transfer-Encoding: identity\r\n" + CODED, "400", "400"),
    Odd("coding, then a cow", HEAD + TE + b"Transfer-Encoding: cow\r\n" + CODED, "400", "400"),
    Odd("a cow, then the coding", HEAD + b"Transfer-Encoding: cow\r\n" + TE + CODED, "400", "400"),
    Odd("identity and a length", HEAD + b"Transfer-Encoding: identity\r\n" + SIZED, "400", "501", NUMBER),
    Odd("empty coding and a length", HEAD + b"Transfer-Encoding:\r\n" + SIZED, "400", "501", NUMBER),
    Odd("coding with a comma before it", HEAD + b"Transfer-Encoding: , chunked\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding with a comma behind it", HEAD + b"Transfer-Encoding: chunked,\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding with a parameter", HEAD + b"Transfer-Encoding: chunked;a=b\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding in quotes", HEAD + b'Transfer-Encoding: "chunked"\r\n' + CODED, "400", "501", NUMBER),
    Odd("coding in capitals", HEAD + b"TRANSFER-ENCODING: CHUNKED\r\n" + CODED, "200 >1", "200 >1"),
    Odd("coding with a vertical tab", HEAD + b"Transfer-Encoding:\x0bchunked\r\n" + CODED, "400", "501", NUMBER),
    Odd(
        "coding with a form feed behind it", HEAD + b"Transfer-Encoding: chunked\x0c\r\n" + CODED, "400", "501", NUMBER
    ),
    Odd("coding with a NUL behind it", HEAD + b"Transfer-Encoding: chunked\0\r\n" + CODED, "400", "400"),
    Odd("coding with spaces behind it", HEAD + b"Transfer-Encoding: chunked \t\r\n" + CODED, "400", "501", NUMBER),
    Odd("coding, a space before the colon", HEAD + b"Transfer-Encoding : chunked\r\n" + CODED, "400", "400"),
    Odd("coding, a tab before the colon", HEAD + b"Transfer-Encoding\t: chunked\r\n" + CODED, "400", "400"),
    Odd("coding on a folded line", HEAD + b"Transfer-Encoding:\r\n chunked\r\n" + CODED, "400", "400"),
    Odd("coding behind a bare LF", HEAD + b"X-A: b\nTransfer-Encoding: chunked\r\n" + CODED, "400", "200 >1", BARE_LF),
    Odd("coding behind a bare CR", HEAD + b"X-A: b\rTransfer-Encoding: chunked\r\n" + CODED, "400", "400"),
    Odd("coding with an underline in its name", HEAD + b"Transfer_Encoding: chunked\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("coding in HTTP/1.0", HEAD.replace(b"1.1", b"1.0") + TE + CODED, "400", "400"),
    Odd(
        "coding in the trailer",
        HEAD + TE + b"\r\n10\r\n" + BODY + b"\r\n0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "400",
        "200 >1",
        TRAILER,
    ),
    # framing: chunks
    Odd("chunk with an extension", HEAD + TE + b'\r\n10;a="b;c"\r\n' + BODY + b"\r\n0;x\r\n\r\n", "200 >1", "200 >1"),
    Odd(
        "chunk with an extension of 20,000 bytes",
        HEAD + TE + b"\r\n10;a=" + b"b" * 20_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        "200 >1",
        "200 >1",
    ),
    Odd("chunk with a trailer", HEAD + TE + b"\r\n10\r\n" + BODY + b"\r\n0\r\nX-T: 1\r\n\r\n", "200 >1", "200 >1"),
    Odd(
        "chunk's size with zeros before it",
        HEAD + TE + b"\r\n0000000000010\r\n" + BODY + b"\r\n0000\r\n\r\n",
        "200 >1",
        "200 >1",
    ),
    Odd("chunk without a size", HEAD + TE + b"\r\n\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk with 0x", HEAD + TE + b"\r\n0x10\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk with a sign", HEAD + TE + b"\r\n+10\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk with a negative size", HEAD + TE + b"\r\n-10\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk's size with a space before it", HEAD + TE + b"\r\n 10\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd(
        "chunk's size with a space behind it",
        HEAD + TE + b"\r\n10 \r\n" + BODY + b"\r\n0\r\n\r\n",
        "400",
        "200 >1",
        STRICT,
    ),
    Odd("chunk's size with an underline", HEAD + TE + b"\r\n1_0\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk with bare LF", HEAD + TE + b"\r\n10\n" + BODY + b"\n0\n\n", "400", "200 >1", BARE_LF),
    Odd(
        "chunk with a bare LF in its extension", HEAD + TE + b"\r\n10;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"
    ),
    Odd("chunk with a bare CR", HEAD + TE + b"\r\n10\r" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk that is longer than said", HEAD + TE + b"\r\nf\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd(
        "chunk that is shorter than said",
        HEAD + TE + b"\r\n11\r\n" + BODY + b"\r\n0\r\n\r\n" + b" " * 8,
        "400",
        "200 400 >1",
        EARLY,
    ),
    Odd("endless chunk", HEAD + TE + b"\r\nfffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd("chunk of 2**64 + 16", HEAD + TE + b"\r\n10000000000000010\r\n" + BODY + b"\r\n0\r\n\r\n", "400", "400"),
    Odd(
        "last chunk without its empty line, a request behind it",
        HEAD + TE + b"\r\n10\r\n" + BODY + b"\r\n0\r\n" + INNER,
        "400",
        "200 400 >1",
        EARLY,
    ),
    Odd(
        "trailer that is no header",
        HEAD + TE + b"\r\n10\r\n" + BODY + b"\r\n0\r\nno trailer\r\n\r\n",
        "400",
        "200 >1",
        TRAILER,
    ),
    # the head's lines
    Odd("folded header", HEAD + b"X-A: b\r\n c\r\n" + SIZED, "400", "400"),
    Odd("folded first header", LINE + b" X-A: b\r\nHost: g\r\n" + K + SIZED, "400", "400"),
    Odd("bare LF in the head", HEAD + b"X-A: b\n" + SIZED, "400", "200 >1", BARE_LF),
    Odd("bare LF everywhere", (HEAD + SIZED).replace(b"\r\n", b"\n"), "400", "200 >1", BARE_LF),
    Odd("bare LF at the head's end", HEAD + b"Content-Length: 16\r\n\n" + BODY, "400", "200 >1", BARE_LF),
    Odd("bare CR in a value", HEAD + b"X-A: b\rc\r\n" + SIZED, "400", "400"),
    Odd("CR CR LF", HEAD + b"X-A: b\r\r\n" + SIZED, "400", "200 >1", STRICT),
    Odd("NUL in a value", HEAD + b"X-A: b\0c\r\n" + SIZED, "400", "400"),
    Odd("NUL in a name", HEAD + b"X-\0A: b\r\n" + SIZED, "400", "400"),
    Odd("DEL in a value", HEAD + b"X-A: b\x7fc\r\n" + SIZED, "400", "200 >1", STRICT),
    Odd("Latin-1 in a value", HEAD + b"X-A: b\xfcc\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("a bell in a value", HEAD + b"X-A: b\x07c\r\n" + SIZED, "400", "200 >1", STRICT),
    Odd("space before the colon", HEAD + b"X-A : b\r\n" + SIZED, "400", "400"),
    Odd("space in a name", HEAD + b"X A: b\r\n" + SIZED, "400", "400"),
    Odd("brackets in a name", HEAD + b"X(A): b\r\n" + SIZED, "400", "200 >1", STRICT),
    Odd("Latin-1 in a name", HEAD + b"X-\xfc: b\r\n" + SIZED, "400", "200 >1", STRICT),
    Odd("no header name", HEAD + b": x\r\n" + SIZED, "400", "400"),
    Odd("no colon", HEAD + b"X-A\r\n" + SIZED, "400", "200 >1", DROPS),
    Odd("empty value", HEAD + b"X-A:\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("long head", HEAD + b"X-A: " + b"a" * 33_000 + b"\r\n" + SIZED, "431", "400", NUMBER),
    Odd("head without end", HEAD + b"X-A: " + b"a" * 100_000, "431", "400", NUMBER),
    Odd(
        "long target",
        b"POST /v1/chat/completions?" + b"a" * 33_000 + b" HTTP/1.1\r\nHost: g\r\n" + K + SIZED,
        "431",
        "414",
        NUMBER,
    ),
    Odd("many headers", HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(4000)) + SIZED, "431", "400", NUMBER),
    Odd("a hundred headers", HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(100)) + SIZED, "200 >1", "200 >1"),
    # Host
    Odd("no Host", LINE + K + SIZED, "400", "400"),
    Odd("no Host in HTTP/1.0", LINE.replace(b"1.1", b"1.0") + K + SIZED, "200 >1", "200 >1"),
    Odd("two Hosts", LINE + b"Host: a\r\nHost: b\r\n" + K + SIZED, "400", "400"),
    Odd("the same Host twice", LINE + b"Host: a\r\nHost: a\r\n" + K + SIZED, "400", "400"),
    Odd("empty Host", LINE + b"Host:\r\n" + K + SIZED, "200 >1", "400", HOST),
    Odd("list of Hosts", LINE + b"Host: a, b\r\n" + K + SIZED, "400", "400"),
    Odd("Host with a path", LINE + b"Host: a/b\r\n" + K + SIZED, "400", "400"),
    Odd("Host with user", LINE + b"Host: a@b\r\n" + K + SIZED, "400", "200 >1", HOST),
    Odd("Host with a space inside", LINE + b"Host: a b\r\n" + K + SIZED, "400", "400"),
    Odd("IPv6 Host", LINE + b"Host: [::1]:8000\r\n" + K + SIZED, "200 >1", "200 >1"),
    Odd("Host dropped by Connection", LINE + b"Host: g\r\nConnection: host\r\n" + K + SIZED, "200 >1", "200 >1"),
    # hop by hop
    Odd("length dropped by Connection", HEAD + b"Connection: content-length\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("key dropped by Connection", HEAD + b"Connection: authorization\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("coding dropped by Connection", HEAD + b"Connection: transfer-encoding\r\n" + TE + CODED, "200 >1", "200 >1"),
    Odd("an odd Connection", HEAD + b"Connection: ,;=\x80\r\n" + SIZED, "200 >1", "200 >1"),
    Odd(
        "h2c offered",
        HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n" + SIZED,
        "200 >1",
        "200 >1",
    ),
    Odd(
        "h2c offered, a request behind it",
        HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + SIZED + INNER,
        "200 >1",
        "200 200 >2",
        PIPELINE,
    ),
    Odd(
        "WebSocket offered where there is none",
        HEAD
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
        + SIZED,
        "200 >1",
        "200 >1",
    ),
    Odd("unknown expectation", HEAD + b"Expect: 200-ok\r\n" + SIZED, "417", "200 >1", EXPECT),
    Odd("continue expected and the body sent at once", HEAD + b"Expect: 100-continue\r\n" + SIZED, "200 >1", "200 >1"),
    Odd("continue expected without a body", HEAD + b"Expect: 100-continue\r\n\r\n", "400", "200 >1", BODY_READ),
    # request lines
    Odd("leading empty lines", b"\r\n\r\n" + GOOD, "200 >1", "200 >1"),
    Odd("leading space", b" " + GOOD, "400", "400"),
    Odd("two spaces in the request line", GOOD.replace(b"POST ", b"POST  "), "200 >1", "200 >1"),
    Odd(
        "tabs in the request line",
        GOOD.replace(b"POST /v1/chat/completions HTTP", b"POST\t/v1/chat/completions\tHTTP"),
        "400",
        "400",
    ),
    Odd("space behind the version", GOOD.replace(b"HTTP/1.1", b"HTTP/1.1 "), "400", "200 >1", STRICT),
    Odd("space in the target", GOOD.replace(b"completions ", b"comple tions "), "400", "400"),
    Odd("CR CR LF behind the version", GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\r\n"), "400", "400"),
    Odd(
        "absolute form",
        b"POST http://g/v1/chat/completions HTTP/1.1\r\nHost: g\r\n" + K + SIZED,
        "400",
        "200 >1",
        ABSOLUTE,
    ),
    Odd(
        "absolute form, another host",
        b"POST http://other/v1/chat/completions HTTP/1.1\r\nHost: g\r\n" + K + SIZED,
        "400",
        "200 >1",
        ABSOLUTE,
    ),
    Odd("asterisk", b"OPTIONS * HTTP/1.1\r\nHost: g\r\n" + K + b"\r\n", "400", "400"),
    Odd("CONNECT", b"CONNECT g:1 HTTP/1.1\r\nHost: g:1\r\n" + K + b"\r\n", "400", "400"),
    Odd("TRACE", b"TRACE /v1/models HTTP/1.1\r\nHost: g\r\n" + K + b"\r\n", "405", "405"),
    Odd("unknown method", GOOD.replace(b"POST", b"BREW"), "400", "200 >1", STRICT),
    Odd("method in lower case", GOOD.replace(b"POST", b"post"), "400", "400"),
    Odd("method with an odd sign", GOOD.replace(b"POST", b"PO(T"), "400", "400"),
    Odd("no version", b"GET /v1/models\r\n\r\n", "505", "no HTTP >1", OLD),
    Odd("version 0.9", b"GET /v1/models HTTP/0.9\r\nHost: g\r\n" + K + b"\r\n", "505", "400", NUMBER),
    Odd("version 1.2", GOOD.replace(b"HTTP/1.1", b"HTTP/1.2"), "400", "200 >1", VERSION),
    Odd("version 1.10", GOOD.replace(b"HTTP/1.1", b"HTTP/1.10"), "400", "200 >1", VERSION),
    Odd("version 2.0", GOOD.replace(b"HTTP/1.1", b"HTTP/2.0"), "505", "505"),
    Odd("version in lower case", GOOD.replace(b"HTTP/1.1", b"http/1.1"), "400", "400"),
    Odd("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "400"),
    Odd("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400", "400"),
    Odd("not HTTP", b"hello there\r\n\r\n", "400", "400"),
    Odd("fragment in the target", GOOD.replace(b"completions", b"completions#a"), "404", "200 >1", PATHS),
    Odd("NUL in the target", GOOD.replace(b"completions", b"completions\0"), "400", "400"),
    Odd("NUL in the target, escaped", GOOD.replace(b"completions", b"completions%00"), "404", "400", NUMBER),
    Odd("UTF-8 in the target", GOOD.replace(b"completions", b"compl\xc3\xa9tions"), "400", "200 >1", STRICT),
    Odd("two slashes", GOOD.replace(b"/v1", b"//v1"), "404", "200 >1", PATHS),
    Odd("dots in the target", GOOD.replace(b"/v1", b"/v1/../v1"), "404", "200 >1", PATHS),
    Odd("dots that lead out", GOOD.replace(b"/v1/chat/completions", b"/v1/../../slots"), "404", "400", NUMBER),
    Odd("escaped dots", GOOD.replace(b"/v1/chat", b"/v1/%2e%2e/v1/chat"), "404", "200 >1", PATHS),
    Odd("escaped slash", GOOD.replace(b"chat/", b"chat%2F"), "404", "200 >1", PATHS),
    Odd("escaped letter", GOOD.replace(b"chat/", b"%63hat/"), "404", "200 >1", PATHS),
    Odd("backslash", GOOD.replace(b"chat/", b"chat\\"), "404", "200 >1", PATHS),
    Odd("slash at the end", GOOD.replace(b"completions", b"completions/"), "404", "200 >1", PATHS),
    Odd("parameter in the path", GOOD.replace(b"completions", b"completions;a=b"), "404", "200 >1", PATHS),
    Odd("an engine's other path", GOOD.replace(b"/v1/chat/completions", b"/slots"), "404", "200 >1", PATHS),
    Odd(
        "line's end in the query, escaped",
        GOOD.replace(b"completions", b"completions?a=%0d%0aX:%20b"),
        "200 >1",
        "200 >1",
    ),
    # keys
    Odd("no key", LINE + b"Host: g\r\n" + SIZED, "401", "200 >1", KEYS),
    Odd("unknown key", GOOD.replace(b"sk-ss-tomas", b"sk-ss-eve"), "401", "200 >1", KEYS),
    Odd("two keys", HEAD + b"Authorization: Bearer sk-ss-maya\r\n" + SIZED, "400", "400"),
    Odd("the same key twice", HEAD + K + SIZED, "400", "400"),
    Odd("key as a user's name", GOOD.replace(b"Bearer sk-ss-tomas", b"Basic c2stc3MtdG9tYXM6"), "401", "200 >1", KEYS),
    Odd("key in lower case words", GOOD.replace(b"Bearer", b"bearer"), "200 >1", "200 >1"),
    Odd("key with spaces around it", GOOD.replace(b"Bearer sk-ss-tomas", b"Bearer  sk-ss-tomas "), "200 >1", "200 >1"),
    Odd(
        "two x-api-keys",
        LINE + b"Host: g\r\nx-api-key: sk-ss-tomas\r\nx-api-key: sk-ss-maya\r\n" + SIZED,
        "400",
        "200 >1",
        KEYS,
    ),
    # one behind the other
    Odd("two at once", GOOD + INNER, "200 >1", "200 200 >2", PIPELINE),
    Odd("one, then no HTTP", GOOD + b"hello there\r\n\r\n", "200 >1", "200 400 >1", PIPELINE),
    Odd(
        "two of the gateway's own at once",
        b"GET /v1/models HTTP/1.1\r\nHost: g\r\n" + K + b"\r\nGET /v1/models HTTP/1.1\r\nHost: g\r\n" + K + b"\r\n",
        "200 200",
        "200 200 >2",
        OWN,
    ),
    Odd("one that asks for the end, then another", HEAD + b"Connection: close\r\n" + SIZED + INNER, "200 >1", "200 >1"),
    Odd("HTTP/1.0, then another", GOOD.replace(b"HTTP/1.1", b"HTTP/1.0") + INNER, "200 >1", "200 >1"),
    Odd("refused, then another", GOOD.replace(b"completions", b"nonsense") + INNER, "404 200 >1", "200 200 >2", PATHS),
    Odd("more body than said", GOOD + b"}", "200 >1", "200 400 >1", PIPELINE),
)

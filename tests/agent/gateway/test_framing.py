"""Following the engine's framing: the same whichever way the bytes are split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gateway.framing import Chunks, FramingError, parse_head

chunk_lists = st.lists(
    st.binary(min_size=1, max_size=20) | st.sampled_from([b"data: a\n\n", b"x\r\n\r\n", b"\n"]), max_size=6
)


def framed(chunks: list[bytes]) -> bytes:
    return b"".join(b"%x;e=1\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\nT: x\r\n\r\n"


@given(chunk_lists, st.lists(st.integers(1, 9), min_size=1), st.binary(max_size=4))
def test_end_is_found_however_it_is_split(chunks: list[bytes], sizes: list[int], more: bytes) -> None:
    data = framed(chunks) + more
    plain, stripping = Chunks(), Chunks()
    got, taken, at, step = b"", 0, 0, 0
    while at < len(data) and not plain.done:
        piece = data[at : at + sizes[step % len(sizes)]]
        got += stripping.strip(piece)
        taken += plain.feed(piece)
        at, step = at + len(piece), step + 1
    assert plain.done
    assert stripping.done
    assert got == b"".join(chunks)
    assert taken == len(framed(chunks))


@given(chunk_lists, st.lists(st.integers(1, 9), min_size=1))
def test_a_cut_is_at_the_first_chunks_end_that_ends_an_event(chunks: list[bytes], sizes: list[int]) -> None:
    data = framed(chunks)
    follower, passed, at, step = Chunks(), 0, 0, 0
    while at < len(data):
        piece = data[at : at + sizes[step % len(sizes)]]
        passed += follower.feed(piece, True)
        at, step = at + len(piece), step + 1
        if follower.boundary and passed:
            break
    wanted, so_far = None, b""
    for number, chunk in enumerate(chunks, 1):
        so_far += chunk
        if so_far.endswith((b"\n\n", b"\r\n\r\n")):
            wanted = len(b"".join(b"%x;e=1\r\n%b\r\n" % (len(c), c) for c in chunks[:number]))
            break
    if wanted is None:
        assert follower.done
    else:
        assert passed == wanted


@pytest.mark.parametrize("bad", [b"x\r\n", b"-1\r\n", b"\r\n", b"5\nhello\n", b"1" * 5000])
def test_broken_chunks(bad: bytes) -> None:
    with pytest.raises(FramingError):
        Chunks().feed(bad)


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/2 200 OK",
        b"nonsense",
        b"HTTP/1.1 abc",
        b"HTTP/1.1 200 OK\r\nA",
        b"HTTP/1.1 200 OK\r\n A: b",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
    ],
)
def test_broken_heads(bad: bytes) -> None:
    with pytest.raises(FramingError):
        parse_head(bad)


def test_head() -> None:
    head = parse_head(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: keep-alive\r\n"
        b"Cache-Control: max-age=9\r\nTransfer-Encoding: chunked\r\nX-Own: y"
    )
    assert (head.status, head.sse, head.chunked, head.length) == (200, True, True, None)
    assert head.lines == [b"Content-Type: text/event-stream; charset=utf-8\r\n", b"X-Own: y\r\n"]

"""Tokens that an engine reports, read from the two ends of its answer; nothing in between is looked at.

OpenAI's `usage` (at the end of an answer, before the data of embeddings and reranks, in a stream's last events),
Anthropic's (message_start and message_delta), and llama.cpp's `timings` where there is no usage. What stands inside a
JSON text cannot be taken for it: there its quotes are escaped. Compressed or foreign answers report nothing.
"""

from __future__ import annotations

import re
from collections import deque

KEPT = 2048  # bytes of each piece that is kept
PIECES = 6  # the last ones: a final event, a usage event, [DONE] and the end, each in a piece of its own
WINDOW = 1024  # bytes behind "usage" or "timings" that are looked into


class Tokens:
    """`add` each piece of an answer as it comes; `read` at its end."""

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first = b""
        self._last: deque[bytes] = deque(maxlen=PIECES)

    def add(self, data: bytes) -> None:
        if not self._first:
            self._first = data if len(data) <= KEPT else data[:KEPT]
        self._last.append(data if len(data) <= KEPT else data[-KEPT:])

    def read(self) -> tuple[int | None, int | None]:
        """(prompt tokens, completion tokens), each None where the engine did not say."""
        tail = _joined(b"".join(self._last))
        prompt, completion = _usage(tail, _last(_USAGE, tail))
        if prompt is None or completion is None:
            begun, _ = _usage(self._first, _last(_USAGE, self._first))
            prompt = begun if prompt is None else prompt
        if prompt is None and completion is None:
            return _timings(tail, _last(_TIMINGS, tail))
        return prompt, completion


def _last(what: re.Pattern[bytes], text: bytes) -> int:
    at = -1
    for match in what.finditer(text):
        at = match.end()
    return at


def _usage(text: bytes, at: int) -> tuple[int | None, int | None]:
    """Anthropic counts cached prompt tokens apart, OpenAI within."""
    prompt = completion = None
    seen = set()
    for match in _COUNT.finditer(text, at, at + WINDOW) if at >= 0 else ():
        name = match.group(1)
        if name in seen:
            continue  # of what comes behind
        seen.add(name)
        number = int(match.group(2))
        if name in _OUT:
            completion = number
        else:
            prompt = number if prompt is None else prompt + number
    return prompt, completion


def _timings(text: bytes, at: int) -> tuple[int | None, int | None]:
    found = {m.group(1): int(m.group(2)) for m in _TIMING.finditer(text, at, at + WINDOW)} if at >= 0 else {}
    prompt = found.get(b"prompt_n")
    return None if prompt is None else prompt + found.get(b"cache_n", 0), found.get(b"predicted_n")


def _joined(text: bytes) -> bytes:
    """Without the chunks' framing, which may stand anywhere."""
    return _FRAMING.sub(b"", text) if b"\r\n" in text else text


_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*\{')
_TIMINGS = re.compile(rb'(?<!\\)"timings"\s*:\s*\{')
_COUNT = re.compile(
    rb'"(prompt_tokens|completion_tokens|input_tokens|output_tokens|cache_read_input_tokens'
    rb'|cache_creation_input_tokens)"\s*:\s*(\d{1,15})(?!\d)'
)
_OUT = (b"completion_tokens", b"output_tokens")
_TIMING = re.compile(rb'"(cache_n|prompt_n|predicted_n)"\s*:\s*(\d{1,15})(?!\d)')
_FRAMING = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n]*)?\r\n")

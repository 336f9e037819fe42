"""Tokens that an engine reports, read from the two ends of its answer; nothing in between is looked at.

OpenAI's `usage` (at the end of an answer, before the data of embeddings and reranks, in a stream's last events),
Anthropic's (message_start and message_delta), and llama.cpp's `timings` where there is no usage. What stands inside a
JSON text cannot be taken for it: there its quotes are escaped. Compressed or foreign answers report nothing.
"""

from __future__ import annotations

import re

KEPT = 2048  # bytes of a piece's end that are kept
PIECES = 6  # the last ones: a final event, a usage event, [DONE] and the end, each in a piece of its own
LET = 32  # pieces that gather before the middle ones are dropped
TRIES = 64  # `usage` that is null stands in every event of some engines
WINDOW = 1024  # bytes behind "usage" or "timings" that are looked into
Tokens = tuple[int | None, int | None]  # of the prompt, of the completion; None: the engine did not say
NONE: Tokens = (None, None)


def keep(pieces: list[bytes], data: bytes) -> None:
    """Adds what has come of an answer to `pieces`: the first piece stays, and the last ones."""
    if len(data) > 2 * KEPT:
        data = data[-KEPT:] if pieces else data[:KEPT] + data[-KEPT:]
    pieces.append(data)
    if len(pieces) > LET:
        del pieces[1:-PIECES]


def read(pieces: list[bytes]) -> Tokens:
    """What the engine has said, by the pieces that were kept."""
    if not pieces:
        return NONE
    tail = pieces[0] if len(pieces) == 1 else b"".join(pieces[-PIECES:])
    if b"\r\n" in tail:  # the chunks' framing, which may stand anywhere
        tail = _FRAMING.sub(b"", tail)
    prompt, completion = _usage(tail, _last(b'"usage"', tail))
    if (prompt is None or completion is None) and len(pieces) > 1:
        begun, _ = _usage(pieces[0], _last(b'"usage"', pieces[0]))
        prompt = begun if prompt is None else prompt
    if prompt is None and completion is None:
        return _timings(tail, _last(b'"timings"', tail))
    return prompt, completion


def _last(name: bytes, text: bytes) -> int:
    """Where the last object of that name begins; -1: there is none. Searched for by `rfind`, 20 times faster here than
    a pattern."""
    at = len(text)
    for _ in range(TRIES):
        at = text.rfind(name, 0, at)
        if at < 0:
            return -1
        if text[at - 1 : at] != b"\\" and (match := _OBJECT.match(text, at + len(name))):
            return match.end()
    return -1


def _usage(text: bytes, at: int) -> Tokens:
    """Anthropic counts cached prompt tokens apart, OpenAI within."""
    if at < 0:
        return NONE
    prompt = completion = None
    seen = set()
    for match in _COUNT.finditer(text, at, at + WINDOW):
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


def _timings(text: bytes, at: int) -> Tokens:
    if at < 0:
        return NONE
    found = {m.group(1): int(m.group(2)) for m in _TIMING.finditer(text, at, at + WINDOW)}
    prompt = found.get(b"prompt_n")
    return None if prompt is None else prompt + found.get(b"cache_n", 0), found.get(b"predicted_n")


_OBJECT = re.compile(rb"\s*:\s*\{")
_COUNT = re.compile(
    rb'"(prompt_tokens|completion_tokens|input_tokens|output_tokens|cache_read_input_tokens'
    rb'|cache_creation_input_tokens)"\s*:\s*(\d{1,15})(?!\d)'
)
_OUT = (b"completion_tokens", b"output_tokens")
_TIMING = re.compile(rb'"(cache_n|prompt_n|predicted_n)"\s*:\s*(\d{1,15})(?!\d)')
_FRAMING = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n]*)?\r\n")

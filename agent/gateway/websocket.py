"""WebSockets (/v1/realtime): the opening goes through like any request, then bytes both ways, as they come.

What the engine sends is followed frame by frame, so that the gateway can say its last word, a close frame, between two.
What the client sends is, too: a `session.update` may name a model, by any of the names that lead to this channel, and says
the engine's own then. Any other name is left for the engine to refuse, which knows no other model.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from urllib.parse import parse_qsl, quote, urlencode

from agent.gateway.errors import Refusal

RESTART, POLICY = 1012, 1008  # close codes: come again; the key is no longer good
_LONG = {126: 2, 127: 8}
_WHOLE_TEXT = 0x81
READ_BYTES = 16 * 1024  # of a message that is looked into; longer ones are audio


class Frames:
    """Follows frames. `boundary`: what has come so far ends at a frame's end."""

    __slots__ = ("_head", "_left", "boundary")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self.boundary = True

    def feed(self, data: bytes, cut: bool = False) -> int:
        """How much of `data` goes on: all, or, with `cut`, up to the first frame's end."""
        pos, size = 0, len(data)
        while pos < size:
            if self._left:
                take = min(self._left, size - pos)
                self._left -= take
                pos += take
            else:
                self._head += data[pos : pos + 1]
                pos += 1
                self._left = self._payload()
                if self._left < 0:  # the head is not whole
                    self._left = 0
                    continue
                self._head = b""
            if cut and not self._left:
                self.boundary = True
                return pos
        self.boundary = not self._left and not self._head
        return size

    def _payload(self) -> int:
        """The length of what follows a whole head; -1 while it is not whole."""
        head = self._head
        if len(head) < 2:
            return -1
        short, masked = head[1] & 0x7F, head[1] & 0x80
        extra = _LONG.get(short, 0)
        if len(head) < 2 + extra + (4 if masked else 0):
            return -1
        return int.from_bytes(head[2 : 2 + extra], "big") if extra else short


class ClientFrames:
    """Follows the client's frames. `names`: those that mean `model`, as the engine calls it."""

    __slots__ = ("_held", "_left", "_model", "_names")

    def __init__(self, names: Collection[str], model: str) -> None:
        self._names, self._model = names, model
        self._held = b""  # the beginning of a frame that is wanted whole
        self._left = 0  # of a frame that goes through as it comes

    def feed(self, data: bytes) -> bytes:
        """What the engine gets."""
        data = self._held + data
        self._held = b""
        out: list[bytes] = []
        pos = 0
        while pos < len(data):
            if self._left:
                part = data[pos : pos + self._left]
                self._left -= len(part)
                pos += len(part)
                out.append(part)
                continue
            head, length = _frame(data, pos)
            whole = head + length
            if head and (data[pos] != _WHOLE_TEXT or length > READ_BYTES or not data[pos + 1] & 0x80):
                self._left = whole
            elif not head or len(data) - pos < whole:
                self._held = data[pos:]
                break
            else:
                out.append(self._message(data[pos : pos + head], data[pos + head : pos + whole]))
                pos += whole
        return b"".join(out)

    def _message(self, head: bytes, masked: bytes) -> bytes:
        text = self._update(_mask(masked, head[-4:]))
        if text is None:
            return head + masked
        size = len(text)
        short, extra = (size, 0) if size < 126 else (126, 2) if size <= 0xFFFF else (127, 8)
        length = size.to_bytes(extra, "big") if extra else b""
        return bytes((head[0], short | 0x80)) + length + head[-4:] + _mask(text, head[-4:])

    def _update(self, text: bytes) -> bytes | None:
        """A `session.update` as the engine is to read it; None: as it is."""
        if b"session.update" not in text or b"model" not in text:
            return None
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None  # the engine says so
        if not isinstance(content, dict) or content.get("type") != "session.update":
            return None
        changed = False
        for place in (content, content.get("session")):
            if not isinstance(place, dict):
                continue
            said = place.get("model")
            if isinstance(said, str) and said != self._model and said in self._names:
                place["model"] = self._model
                changed = True
        return json.dumps(content, ensure_ascii=False).encode() if changed else None


def _frame(data: bytes, pos: int) -> tuple[int, int]:
    """Bytes of the frame's head and behind it; (0, 0) where the head is not whole."""
    if len(data) - pos < 2:
        return 0, 0
    short, masked = data[pos + 1] & 0x7F, data[pos + 1] & 0x80
    extra = _LONG.get(short, 0)
    head = 2 + extra + (4 if masked else 0)
    if len(data) - pos < head:
        return 0, 0
    return head, int.from_bytes(data[pos + 2 : pos + 2 + extra], "big") if extra else short


def _mask(data: bytes, key: bytes) -> bytes:
    size = len(data)
    keys = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(keys, "big")).to_bytes(size, "big")


def close_frame(refusal: Refusal) -> bytes:
    """The gateway's last word: code and reason (at most 123 bytes)."""
    code = POLICY if refusal.status == 401 else RESTART
    reason = f"{refusal.code}: {refusal.message}".encode()[:123].decode("utf-8", "ignore").encode()
    return b"\x88" + bytes([2 + len(reason)]) + code.to_bytes(2, "big") + reason


def model_of(query: bytes) -> str | None:
    """The `model` of the opening's query, None where it says none."""
    return dict(parse_qsl(query[1:].decode("latin-1"), keep_blank_values=True, encoding="utf-8")).get("model")


def with_model(query: bytes, model: str) -> bytes:
    """The query saying `model`, everything else as it was meant."""
    pairs = parse_qsl(query[1:].decode("latin-1"), keep_blank_values=True, encoding="utf-8")
    changed = [(k, model if k == "model" else v) for k, v in pairs]
    return b"?" + urlencode(changed, quote_via=quote).encode()

"""WebSockets (/v1/realtime): the opening goes through like any request, then bytes both ways, as they come.

What the engine sends is followed frame by frame, so that the gateway can say its last word, a close frame, between two.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode

from agent.gateway.errors import Refusal

RESTART, POLICY = 1012, 1008  # close codes: come again; the key is no longer good
_LONG = {126: 2, 127: 8}


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

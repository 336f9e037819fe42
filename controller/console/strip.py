"""The strip chart of a channel's past: what it did when, as rectangles of an SVG. Pure; instants are ms.

A strip is laid out on a width of 1,440 units, whatever the range, so that it scales without a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 1440
# state -> class of the style sheet, in the order of the legend
CLASSES = {
    "ready": "g-ok",
    "loading": "g-busy",
    "fallback": "g-warn",
    "failed": "g-bad",
    "exclusive": "g-ink",
    "nothing": "g-idle",
    "away": "g-off",
}
KINDS = {
    "ready": "ready",
    "loading": "loading",
    "draining": "loading",
    "stopping": "loading",
    "freeing": "loading",
    "retry_wait": "failed",
    "blocked": "failed",
    "off": "nothing",
    "unknown": "away",
    "gone": "away",
}


@dataclass(frozen=True, slots=True)
class Change:
    """From `at` on the channel was like this."""

    at: int
    phase: str
    model: str | None = None
    preset: str | None = None
    fallback: bool = False
    exclusive: bool = False
    reason: str = ""

    @property
    def kind(self) -> str:
        if self.fallback and self.phase == "ready":
            return "fallback"
        if self.exclusive and self.phase == "off":
            return "exclusive"
        return KINDS.get(self.phase, "away")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one kind: [start, end), with its place in the strip."""

    kind: str
    start: int
    end: int
    x: float
    width: float
    change: Change | None = None

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1000


def pieces(changes: Sequence[Change], start: int, end: int) -> list[Piece]:
    """What was when within [start, end); the time before the first change is left empty. A failure or a load too short to
    be seen gets 3 units all the same: it is what one looks for."""
    found: list[Piece] = []
    for index, change in enumerate(changes):
        until = changes[index + 1].at if index + 1 < len(changes) else end
        first, last = max(change.at, start), min(until, end)
        if last <= first:
            continue
        x = _x(first, start, end)
        width = max(_x(last, start, end) - x, 3.0 if change.kind in ("failed", "loading", "fallback") else 0.5)
        found.append(Piece(change.kind, first, last, round(x, 1), round(min(width, WIDTH - x), 1), change))
    return found


def totals(found: Iterable[Piece]) -> dict[str, float]:
    """Seconds by kind, in the order of the legend, kinds that did not happen left out."""
    sums = dict.fromkeys(CLASSES, 0.0)
    for piece in found:
        sums[piece.kind] += piece.seconds
    return {kind: seconds for kind, seconds in sums.items() if seconds > 0}


def window(start: int, end: int, first: int, last: int) -> tuple[float, float] | None:
    """(x, width) of [first, last) in the strip of [start, end); None where they do not meet."""
    first, last = max(first, start), min(last, end)
    if last <= first:
        return None
    x = _x(first, start, end)
    return round(x, 1), round(max(_x(last, start, end) - x, 2.0), 1)


def line(counts: Sequence[float], height: int = 36, top: float | None = None) -> tuple[str, str]:
    """(points of a line, points of the area below it) of values at equal distances, in a box of 100 x `height`; `top` is
    the value at its upper edge (None: the largest)."""
    if not counts:
        return "", ""
    top = top or max([*counts, 1e-9])
    counts = counts if len(counts) > 1 else [*counts, *counts]
    step = 100 / max(1, len(counts) - 1)
    points = [f"{i * step:.1f},{height - (height - 3) * value / top:.1f}" for i, value in enumerate(counts)]
    return " ".join(points), " ".join((f"0,{height}", *points, f"100,{height}"))


def ticks(start: int, end: int, offset_ms: int, count: int = 8) -> list[int]:
    """Round instants for the axis (of the viewer's clock, `offset_ms` ahead of UTC), the end last."""
    step = next(s for s in (1, 2, 3, 6, 12, 24, 48) if (end - start) / (s * 3_600_000) <= count) * 3_600_000
    first = ((start + offset_ms) // step + 1) * step - offset_ms
    return [*(at for at in range(first, end - step // 3, step)), end]


def _x(at: int, start: int, end: int) -> float:
    return WIDTH * (at - start) / max(1, end - start)

"""Which model is read ahead, and when there is room for it."""

from __future__ import annotations

import pytest

from agent.core.ahead import AHEAD, Memory, next_model
from agent.core.types import Launch, Step

NOW = 1_800_000_000_000
GIB = 1 << 30


def step(seconds: float, model: str | None, preset: str | None = None) -> Step:
    launch = Launch(f"{model}:{preset}", model, preset, "llama.cpp") if model else None
    return Step(NOW + round(seconds * 1000), launch, "default")


@pytest.mark.parametrize(
    ("steps", "running", "wanted"),
    [
        ((), "a", None),
        ((step(-10, "a"),), "a", None),
        ((step(-10, "a"), step(AHEAD, "b")), "a", "b"),
        ((step(-10, "a"), step(AHEAD + 1, "b")), "a", None),
        ((step(-10, "a"), step(60, "a", "long"), step(90, "b")), "a", "b"),  # the same files with another preset
        ((step(-10, "a"), step(60, None), step(300, "b")), "a", "b"),  # an exclusive booking before it
        ((step(-900, "x"), step(-10, "b"), step(60, "a")), "a", "b"),  # a is being drained for b now
        ((step(-10, "a"), step(60, "b")), None, "a"),
        ((step(60, "b"),), "a", "b"),
    ],
)
def test_the_next_other_model(steps: tuple[Step, ...], running: str | None, wanted: str | None) -> None:
    found = next_model(steps, running, NOW)
    assert (found.model if found else None) == wanted


def test_room_is_what_nobody_misses() -> None:
    assert Memory(64 * GIB, 40 * GIB).spare == pytest.approx(33.6 * GIB)
    assert Memory(8 * GIB, 5 * GIB).spare == 3 * GIB
    assert Memory(64 * GIB, 40 * GIB, mapped=30 * GIB).spare == pytest.approx(3.6 * GIB), "an engine reads its own file"
    assert Memory(8 * GIB, GIB).spare < 0

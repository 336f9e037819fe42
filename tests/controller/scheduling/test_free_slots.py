"""Free windows nearest to the time that was wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.free_slots import Slot, free_slots


def test_an_empty_channel_is_free_when_wanted() -> None:
    assert free_slots([], 10, wanted=50, earliest=0) == [Slot(50, 60, None)]


def test_nearest_first_also_back_to_back() -> None:
    busy = [(100, 200), (210, 300), (205, 210), (300, 400)]
    assert free_slots(busy, 10, wanted=150, earliest=0) == [Slot(90, 100, 100), Slot(400, 410, None)]
    assert free_slots(busy, 5, wanted=190, earliest=0)[0] == Slot(200, 205, 205)
    assert free_slots(busy, 5, wanted=190, earliest=0, limit=1) == [Slot(200, 205, 205)]


def test_nothing_before_the_earliest_or_after_the_latest() -> None:
    assert free_slots([(10, 20)], 5, wanted=0, earliest=8) == [Slot(20, 25, None)]
    assert free_slots([(10, 20)], 5, wanted=0, earliest=8, latest=19) == []
    assert free_slots([(10, 20)], 5, wanted=99, earliest=0, latest=30) == [Slot(30, 35, None), Slot(5, 10, 10)]


windows = st.tuples(st.integers(0, 300), st.integers(1, 60)).map(lambda w: (w[0], w[0] + w[1]))


@given(st.lists(windows, max_size=8), st.integers(1, 80), st.integers(0, 300), st.integers(0, 300))
def test_slots_are_free_and_none_is_nearer(busy, length, wanted, earliest) -> None:
    def fits(start: int) -> bool:
        return start >= earliest and all(e <= start or start + length <= s for s, e in busy)

    slots = free_slots(busy, length, wanted, earliest, limit=100)
    assert all(fits(s.start) and s.end - s.start == length for s in slots)
    nearest = min((t for t in range(earliest, 900) if fits(t)), key=lambda t: (abs(t - wanted), t))
    assert slots[0].start == nearest

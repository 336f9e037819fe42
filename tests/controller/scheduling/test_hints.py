"""What people are told beside a booking or an override, and load times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.scheduling.hints import Neighbour, exceeds_gpu_memory, outlook, override_hint
from controller.scheduling.load_times import estimate
from controller.scheduling.types import ChannelInput, Reservation, Rules, Target

NOW = 1_800_000_000_000
A = Target("A", None, "a", 90.2)
B = Target("B", None, "b", 30.0)
HOUR = 3_600_000


def hints(target, before, start=NOW + HOUR):
    return [(h.code, str(h)) for h in outlook(target, start, NOW, Rules(), 20, before).hints]


def test_touching_the_booking_before() -> None:
    start = NOW + HOUR
    assert hints(A, Neighbour(NOW - HOUR, start, B)) == [("loading_at_start", "About 91 s at the start go to loading.")]
    assert hints(A, Neighbour(NOW - HOUR, start, A))[0][0] == "no_reload"
    assert hints(A, Neighbour(NOW - HOUR, start, None))[0][0] == "loading_at_start"
    assert hints(None, Neighbour(NOW - HOUR, start, A)) == [
        ("clearing_at_start", "Up to 50 s at the start go to clearing the card.")
    ]
    assert hints(A, Neighbour(NOW - HOUR, start - 1, B)) == []
    assert hints(A, None) == []


@pytest.mark.parametrize(
    ("start", "before", "running", "ready"),
    [
        (NOW + HOUR, None, None, NOW + HOUR),  # preloaded long before
        (NOW, None, None, NOW + 90_200),
        (NOW + 10_000, None, None, NOW + 90_200),
        (NOW, None, "a", NOW),  # runs already
        (NOW + HOUR, Neighbour(NOW - HOUR, NOW + HOUR, B), None, NOW + HOUR + 90_200),
        (NOW + HOUR, Neighbour(NOW - HOUR, NOW + HOUR, A), None, NOW + HOUR),
        (NOW + HOUR, Neighbour(NOW - HOUR, NOW + HOUR - 50_000, B), None, NOW + HOUR + 40_200),
        (NOW + HOUR, Neighbour(NOW - HOUR, NOW - HOUR, B), None, NOW + HOUR),
    ],
)
def test_ready_at(start, before, running, ready) -> None:
    found = outlook(A, start, NOW, Rules(), 20, before, running)
    assert (found.ready_at, found.load_seconds) == (ready, 90.2)


def test_exclusive_loads_nothing() -> None:
    found = outlook(None, NOW, NOW, Rules(), 20)
    assert (found.ready_at, found.load_seconds, found.exceeds_gpu_memory) == (NOW, 0, False)


def test_exceeds_gpu_memory() -> None:
    assert exceeds_gpu_memory(11, 10)
    assert not exceeds_gpu_memory(10, 10)
    assert not exceeds_gpu_memory(11, 0), "unknown memory is never exceeded"
    found = outlook(A, NOW, NOW, Rules(), 20, size_bytes=11, gpu_memory_bytes=10)
    assert [h.code for h in found.hints] == ["exceeds_gpu_memory"]
    assert found.exceeds_gpu_memory


def test_override_hint() -> None:
    channel = ChannelInput((Reservation("r", NOW + 100_000, NOW + HOUR, "model", A),), B, current=B)
    hint = override_hint(channel, NOW)
    assert hint is not None
    assert hint.code == "override_without_effect"
    running = override_hint(channel, NOW + 100_000)
    assert running is not None
    assert running.code == "override_after_booking"
    far = replace(channel, reservations=(Reservation("r", NOW + HOUR, NOW + 2 * HOUR, "model", A),))
    assert override_hint(far, NOW) is None


def test_load_times() -> None:
    assert estimate([], [], 10_000_000_000, 500) == 35.0
    assert estimate([], [], 0, 500) == 15.0
    assert estimate([], [10, 20], 10**10, 500) == 15.0, "any preset, before the first with this one"
    assert estimate([7], [10, 20, 7], 10**10, 500) == 7
    assert estimate([1, 2, 3, 4, 5, 600], [], 1, 500) == 3, "the newest five"
    assert estimate([1, 1, 1.1], [], 1, 500) == pytest.approx(3.1 / 3), "not rounded"

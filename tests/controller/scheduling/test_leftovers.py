"""Processes that are still on a bare card: told once before the end and once at it, while they are there."""

from __future__ import annotations

import pytest

from controller.scheduling.leftovers import WARN, ExclusiveBooking, Process, due, next_look

NOW = 1_800_000_000_000
HOUR = 3_600_000
LONG = ExclusiveBooking("r1", NOW - HOUR, NOW)
SHORT = ExclusiveBooking("r2", NOW - 60_000, NOW)
MINE = [Process(4711, "lin", "python"), Process(12, "", "")]


@pytest.mark.parametrize(
    ("booking", "at", "when"),
    [
        (LONG, NOW - WARN - 1, None),
        (LONG, NOW - WARN, "before_end"),
        (LONG, NOW - 1, "before_end"),
        (LONG, NOW, "at_end"),
        (LONG, NOW + 300_000, None),
        (SHORT, NOW - 60_001, None),
        (SHORT, NOW - 60_000, "before_end"),
    ],
)
def test_when(booking, at, when) -> None:
    found = due(booking, at, MINE)
    assert (found.when if found else None) == when
    assert due(booking, at, []) is None


def test_what_is_said_and_that_it_is_said_once() -> None:
    first = due(LONG, NOW - WARN, MINE)
    assert first
    assert "python (pid 4711, of lin), a process (pid 12)" in first.text % {"processes": first.processes}
    assert first.id == due(LONG, NOW - 1, MINE[:1]).id
    assert first.id != due(LONG, NOW, MINE).id
    extended = ExclusiveBooking("r1", NOW - HOUR, NOW + HOUR)
    assert due(extended, NOW + HOUR - 1, MINE).id != first.id, "an extended booking is looked at again"


def test_when_to_look_next() -> None:
    assert next_look(LONG, NOW - HOUR) == NOW - WARN
    assert next_look(LONG, NOW - WARN) == NOW
    assert next_look(LONG, NOW) is None
    assert next_look(SHORT, NOW - HOUR) == NOW - 60_000

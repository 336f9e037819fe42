"""Instants and waits in words."""

from __future__ import annotations

import pytest

from agent.core.words import moment, span, when

NOW = 1_800_000_000_000  # 2027-01-15 08:00 UTC


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (1, "08:00:01 UTC (in 1 s)"),
        (25_000, "08:00:25 UTC (in 25 s)"),
        (119_001, "08:02:00 UTC (in 2 min)"),
        (9 * 60_000 - 300, "08:09 UTC (in 9 min)"),
        (60 * 60_000, "09:00 UTC (in 1 h)"),
        (200 * 60_000, "11:20 UTC (in 3 h 20 min)"),
        (16 * 3_600_000, "2027-01-16 00:00 UTC (in 16 h)"),
        (24 * 3_600_000, "2027-01-16 08:00 UTC (in 1 day)"),
        (53 * 3_600_000, "2027-01-17 13:00 UTC (in 2 days 5 h)"),
        (0, "08:00:00 UTC"),
        (-3_600_000, "07:00 UTC"),
    ],
)
def test_when(wait: int, words: str) -> None:
    assert when(NOW + wait, NOW) == words


def test_near_midnight_needs_no_date() -> None:
    midnight = NOW + 16 * 3_600_000
    assert when(midnight + 5_000, midnight - 5_000) == "00:00:05 UTC (in 10 s)"


@pytest.mark.parametrize(("wait", "words"), [(0, "1 s"), (119_000, "119 s"), (120_000, "2 min"), (3_599_000, "60 min")])
def test_span(wait: int, words: str) -> None:
    assert span(wait) == words


def test_programs_get_rfc_3339() -> None:
    assert moment(NOW) == "2027-01-15T08:00:00Z"
    assert moment(NOW + 7) == "2027-01-15T08:00:00.007Z"

"""The rules hold at every instant of long lives (`make bench-scheduling` lives a year on 100 channels)."""

from __future__ import annotations

import pytest

from tests.controller.scheduling.year import DAY, START, Life

DAYS = 40


@pytest.mark.parametrize("seed", range(12))
def test_every_rule_holds_at_every_instant(seed: int) -> None:
    life = Life(seed)
    life.run(START + DAYS * DAY)
    hours = life.hours
    spent = hours.served + hours.reserved + hours.exclusive + hours.late + hours.loading + hours.empty
    assert spent == DAYS * DAY, "every moment is accounted for"
    assert hours.unplanned == 0
    assert life.made > DAYS  # that something happened at all
    assert life.looks > 10 * life.made

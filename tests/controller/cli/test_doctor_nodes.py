"""`slotserve doctor`: each line that it can print of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.cli.app import App
from controller.cli.doctor import _node
from protos.shared import clocks

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
WELL: dict[str, Any] = {
    "name": "n1",
    "enrolled": True,
    "online": True,
    "last_seen_at": "2027-01-15T08:00:00Z",
    "clock_skew_seconds": 0.1,
    "certificate_until": "2027-06-01T00:00:00Z",
    "plan": {"accepted": True, "refusal": None},
}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> App:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return App(None, lambda: NOW)


def test_a_node_that_is_well(app: App) -> None:
    check = _node(app, WELL)
    assert (check.what, check.problem, check.ok) == ("node n1", "", True)


@pytest.mark.parametrize(
    ("more", "ok", "words"),
    [
        ({"enrolled": False, "last_seen_at": None, "online": False}, True, "has not joined yet"),
        ({"disabled": True}, True, "slotserve node enable n1 lets it in"),
        ({"turned_away": "the agent is newer"}, False, "may not connect: the agent is newer"),
        ({"online": False}, False, "no contact since "),
        ({"online": False, "last_seen_at": None}, False, "no contact; it goes on with the timetable it has"),
        ({"plan": {"refusal": "of another node"}}, False, "refuses its plan: of another node"),
        ({"clock_skew_seconds": 3600.2}, False, "its clock is 3600 s fast, more than 30 s"),
        ({"clock_skew_seconds": -31.0}, False, "its clock is 31 s slow, more than 30 s"),
        ({"clock_skew_seconds": -4.25}, True, "its clock is 4.2 s slow (limit 30 s)"),
        ({"clock_skew_seconds": 1.9}, True, ""),
        ({"clock_skew_seconds": None}, True, ""),
        ({"certificate_until": "2027-01-18T08:00:00Z"}, False, "its certificate ends in 3 days and was not renewed"),
        ({"certificate_until": "2027-01-01T08:00:00Z"}, False, "its certificate ends in 0 days"),
        (
            {"cordoned": True, "cordon_reason": "a fan"},
            True,
            "takes no new bookings: a fan; slotserve node uncordon n1",
        ),
        ({"cordoned": True, "drain_until": "2027-01-15T18:00:00Z"}, True, "takes no new bookings until "),
        ({"gpu_problem": "the driver does not answer"}, False, "the driver does not answer"),
    ],
)
def test_each_trouble_says_what_to_do(app: App, more: dict[str, Any], ok: bool, words: str) -> None:
    check = _node(app, {**WELL, **more})
    assert check.ok is ok
    assert words in check.problem
    assert bool(check.problem) is bool(words)


def test_the_worst_trouble_is_the_one_that_is_told(app: App) -> None:
    everything = {"online": False, "clock_skew_seconds": 99.0, "cordoned": True, "gpu_problem": "gone"}
    assert _node(app, {**WELL, **everything}).problem.startswith("no contact")


@pytest.mark.parametrize(
    ("skew", "shown", "wrong"),
    [(None, False, False), (1.99, False, False), (-2.0, True, False), (30.0, True, False), (-30.1, True, True)],
)
def test_the_limits_of_a_clock(skew: float | None, shown: bool, wrong: bool) -> None:
    assert (clocks.shown(skew), clocks.wrong(skew)) == (shown, wrong)

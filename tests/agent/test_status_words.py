"""`slotserve-agent status`: each line that it can print."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent import status_words as words

ENROLLED = {"fleet_address": "c1:8701", "certificate_until": "2027-03-01T00:00:00Z"}
WELL: dict[str, Any] = {
    "running": True,
    "node": "gpu-a01",
    "at_ms": 1_800_000_000_000,
    "connected": True,
    "trouble": "",
    "clock_measured": True,
    "clock_skew_seconds": 0.1,
    "clock_skew_limit_seconds": 30.0,
    "plan": {"epoch": 3, "generation": 17},
    "unsent": 0,
    "channels": [{"channel": "main", "phase": "ready", "running_model": "base", "detail": "base is ready"}],
    "cache_bytes": {},
    "enrolled": ENROLLED,
    "notes": [],
}
HEAD = [
    "gpu-a01: connected, plan 3.17, 0 reports to send",
    "  controller c1:8701, certificate until 2027-03-01T00:00:00Z",
]
MAIN = "  main: ready, base: base is ready"


def lines(**more: Any) -> list[str]:
    return words.text({**WELL, **more}).splitlines()


def test_a_node_that_is_well() -> None:
    assert lines() == [*HEAD, MAIN]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"running": False}, "No agent runs with this folder; last seen 2027-01-15T08:00:00Z."),
        ({"running": False}, "gpu-a01: not connected, plan 3.17, 0 reports to send"),
        ({"plan": None, "unsent": 4}, "gpu-a01: connected, no plan yet, 4 reports to send"),
        (
            {"enrolled": None},
            "  not enrolled; `slotserve node add NAME` makes a join string for `slotserve-agent enrol`",
        ),
        ({"connected": False}, "gpu-a01: not connected, plan 3.17, 0 reports to send"),
        ({"connected": False, "trouble": "c1:8701: refused"}, "  no connection: c1:8701: refused"),
        ({"clock_measured": False}, "  the controller's time is not known yet; this machine's own counts until then"),
        ({"notes": ["look here"]}, "  note: look here"),
        ({"channels": [{"channel": "b", "phase": "off"}]}, "  b: off, nothing: "),
        ({"cache_bytes": {"main": 2_500_000_000}}, "    2.5 GB of what its engines have compiled are kept"),
    ],
)
def test_what_else_is_said(more: dict[str, Any], line: str) -> None:
    assert line in lines(**more)


def test_a_failure_is_below_its_channel() -> None:
    failure = {"model": "big", "category": "out_of_memory", "reason": "out of GPU memory: lower -ngl"}
    channel = {"channel": "main", "phase": "retry_wait", "detail": "next try in 30 s", "failure": failure}
    assert lines(channels=[channel])[-2:] == [
        "  main: retry_wait, nothing: next try in 30 s",
        "    big failed (out_of_memory): out of GPU memory: lower -ngl",
    ]


def test_a_folder_without_an_agent_that_ever_ran() -> None:
    said = {"running": False, "enrolled": None, "notes": []}
    assert words.text(said).splitlines()[0] == "No agent runs with this folder."


def test_nothing_is_said_of_a_connection_or_clock_of_then() -> None:
    said = lines(running=False, trouble="c1: refused", clock_measured=False)
    assert not [line for line in said if "no connection" in line or "time is not known" in line]


@pytest.mark.parametrize(
    ("free", "notes"),
    [
        (5_000_000_000, []),
        (400_000_000, ["0.4 GB are free where /var/lib/a is: plans, reports and engines' logs need room"]),
    ],
)
def test_room(free: int, notes: list[str]) -> None:
    assert words.disk(free, "/var/lib/a") == notes


@pytest.mark.parametrize(
    ("now", "note"),
    [
        (datetime(2027, 2, 1, tzinfo=UTC), ""),
        (datetime(2027, 2, 26, tzinfo=UTC), "the certificate ends in 3 days"),
        (datetime(2027, 3, 2, tzinfo=UTC), "the certificate has run out: it is replaced by itself"),
    ],
)
def test_the_certificate(now: datetime, note: str) -> None:
    found = words.certificate("2027-03-01T00:00:00Z", now)
    assert [f[: len(note)] for f in found] == ([note] if note else [])


@pytest.mark.parametrize(
    ("skew", "note"),
    [
        (0.4, ""),
        (None, ""),
        (-4.2, "this machine's clock is 4.2 s slow (limit 30 s); switching follows the controller's"),
        (3600.0, "this machine's clock is 3600 s fast, more than 30 s: its certificate and its logs depend on it"),
    ],
)
def test_the_clock(skew: float | None, note: str) -> None:
    found = words.clock({**WELL, "clock_skew_seconds": skew})
    assert [f[: len(note)] for f in found] == ([note] if note else [])
    assert words.clock({**WELL, "clock_skew_seconds": skew, "running": False}) == []

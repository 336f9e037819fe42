"""Spans of what channels did: nothing is lost or counted twice, whatever the rows, bookings and days."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.spans import STATES, Booked, Hours, joined, spans


@dataclass(frozen=True)
class Row:
    channel_id: str
    at: int
    phase: str
    model: str | None = None
    preset: str | None = None
    fallback: bool = False
    reservation_id: str | None = None
    reason: str = ""


def told(rows: list[Row], booked: list[Booked], start: int, end: int, cuts: tuple[int, ...] = ()) -> list[tuple]:
    by = {"c": booked}
    return [(s.start, s.end, s.state, s.booking.id if s.booking else None) for s in spans(rows, by, start, end, cuts)]


def test_a_state_holds_until_the_next_and_the_last_until_the_end() -> None:
    rows = [Row("c", 0, "off"), Row("c", 10, "loading"), Row("c", 30, "ready")]
    assert told(rows, [], 5, 100) == [(5, 10, "idle", None), (10, 30, "loading", None), (30, 100, "served", None)]
    assert told(rows, [], 50, 60) == [(50, 60, "served", None)]
    assert told([], [], 0, 100) == []
    assert told([Row("c", 40, "ready")], [], 0, 100) == [(40, 100, "served", None)]  # nothing is known before


def test_cut_at_bookings_and_days() -> None:
    rows = [Row("c", 0, "ready")]
    booked = [Booked("r", "c", 20, 30), Booked("s", "c", 30, 45)]
    assert told(rows, booked, 0, 60, (0, 24, 48, 72)) == [
        (0, 20, "served", None),
        (20, 24, "served", "r"),
        (24, 30, "served", "r"),
        (30, 45, "served", "s"),
        (45, 48, "served", None),
        (48, 60, "served", None),
    ]


def test_a_card_held_alone_serves_its_holder() -> None:
    booked = [Booked("r", "c", 10, 20, exclusive=True)]
    assert told([Row("c", 0, "off")], booked, 0, 30) == [
        (0, 10, "idle", None),
        (10, 20, "served", "r"),
        (20, 30, "idle", None),
    ]
    assert told([Row("c", 0, "blocked")], booked, 10, 20) == [(10, 20, "failed", "r")]


def test_channels_do_not_run_into_each_other() -> None:
    rows = [Row("a", 0, "ready"), Row("c", 5, "off")]
    assert [(s.row.channel_id, s.start, s.end) for s in spans(rows, {}, 0, 10)] == [("a", 0, 10), ("c", 5, 10)]


def test_what_says_the_same_is_one_span() -> None:
    rows = [Row("c", 0, "ready", "m"), Row("c", 10, "ready", "m"), Row("c", 20, "ready", "n")]
    assert [(s.start, s.end) for s in joined(spans(rows, {}, 0, 30))] == [(0, 20), (20, 30)]


KNOWN = ("off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked")
PHASES = st.sampled_from([*KNOWN, "unknown", "gone", "later"])
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100), PHASES, st.booleans()), max_size=20).map(
    lambda found: [Row(c, at, phase, fallback=f) for c, at, phase, f in sorted(found, key=lambda r: r[:2])]
)


@given(ROWS, st.lists(st.integers(0, 110), unique=True, max_size=8).map(sorted), st.sets(st.integers(0, 110)))
def test_every_instant_once(rows: list[Row], edges: list[int], days: set[int]) -> None:
    booked = {
        c: [Booked(f"{c}{i}", c, a, b) for i, (a, b) in enumerate(zip(edges[::2], edges[1::2], strict=False))]
        for c in "ab"
    }
    start, end = 10, 90
    found = list(spans(rows, booked, start, end, sorted(days)))
    for channel in "abc":
        mine = [s for s in found if s.row.channel_id == channel]
        first = min((r.at for r in rows if r.channel_id == channel), default=end)
        assert sum(s.ms for s in mine) == max(0, end - max(first, start))
        assert all(s.start < s.end for s in mine)
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert not any(s.start < day < s.end for s in mine for day in days)
        hours = Hours()
        for span in mine:
            hours.add(span)
            for edge in booked.get(channel, ()):
                inside = edge.start <= span.start and span.end <= edge.end
                assert inside == (span.booking == edge)
        assert sum(hours.states.values()) == sum(s.ms for s in mine)
        assert set(hours.states) == set(STATES)

"""The strip chart's geometry: what was when, in 1,440 units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.console.strip import WIDTH, Change, line, pieces, ticks, totals, window

HOUR = 3_600_000


def test_pieces_follow_the_changes_and_end_where_the_strip_ends() -> None:
    changes = [Change(-HOUR, "ready"), Change(6 * HOUR, "loading"), Change(6 * HOUR + 60_000, "retry_wait"),
               Change(12 * HOUR, "ready", fallback=True), Change(18 * HOUR, "off", exclusive=True)]  # fmt: skip
    found = pieces(changes, 0, 24 * HOUR)
    assert [(p.kind, p.x) for p in found] == [
        ("ready", 0), ("loading", 360), ("failed", 361), ("fallback", 720), ("exclusive", 1080)
    ]  # fmt: skip
    assert found[1].width == 3, "a load that is too short to be seen is shown all the same"
    assert totals(found) == {
        "ready": 6 * 3600, "loading": 60, "fallback": 6 * 3600, "failed": 6 * 3600 - 60, "exclusive": 6 * 3600
    }  # fmt: skip


def test_what_was_before_the_first_word_stays_empty() -> None:
    assert [(p.kind, p.x) for p in pieces([Change(12 * HOUR, "ready")], 0, 24 * HOUR)] == [("ready", 720)]
    assert pieces([], 0, HOUR) == []
    assert pieces([Change(2 * HOUR, "ready")], 0, HOUR) == []


@given(
    st.lists(st.tuples(st.integers(-100, 200), st.sampled_from(["ready", "off", "loading", "unknown"])), max_size=30)
)
def test_pieces_never_leave_the_strip_nor_lose_time(rows: list[tuple[int, str]]) -> None:
    changes = [Change(at, phase) for at, phase in sorted(rows)]
    found = pieces(changes, 0, 100)
    assert all(0 <= p.x <= WIDTH and p.width > 0 and p.x + p.width <= WIDTH + 0.2 for p in found)
    first = min((c.at for c in changes), default=100)
    assert sum(p.end - p.start for p in found) == max(0, 100 - max(0, first))


def test_windows_lines_and_ticks() -> None:
    assert window(0, 100, 50, 200) == (720, 720)
    assert window(0, 100, 100, 200) is None
    assert line([]) == ("", "")
    assert line([0, 10])[0] == "0.0,36.0 100.0,3.0"
    assert ticks(HOUR // 2, 24 * HOUR + HOUR // 2, 0)[0] == 3 * HOUR
    assert all((t + 8 * HOUR) % (3 * HOUR) == 0 for t in ticks(0, 24 * HOUR, 8 * HOUR)[:-1])

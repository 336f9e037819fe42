"""Bookings that are ended, cancelled, extended, moved or edited."""

from __future__ import annotations

from typing import Any

import pytest

from controller.store.tables import Reservation
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH


def test_end_cancel_and_their_equivalence(w: World) -> None:
    future, running = w.book(3 * HOUR, 4 * HOUR), w.book(0, HOUR)
    ended = w.good("POST", f"/reservations/{running['id']}/cancel", {}, "maya")
    assert (ended["status"], ended["running"]) == ("ended_early", False)
    assert ended["ended_at"] == text_of(w.now)
    cancelled = w.good("POST", f"/reservations/{future['id']}/end", who="maya")
    assert cancelled["status"] == "cancelled"
    said = w.bad(409, "POST", f"/reservations/{future['id']}/cancel", who="maya")
    assert "cancelled" in said["error"]["message"]
    w.book(0, HOUR, "noor")  # the time is free at once


def test_over_by_itself(w: World) -> None:
    made = w.book(0, HOUR)
    w.now += HOUR
    assert w.get(f"/reservations/{made['id']}")["status"] == "finished"
    w.bad(409, "POST", f"/reservations/{made['id']}/extend", {"minutes": 5}, "maya")
    w.bad(409, "POST", f"/reservations/{made['id']}/end", who="maya")
    assert [r["id"] for r in w.get("/reservations?status=finished")["items"]] == [made["id"]]
    assert w.get("/reservations?status=running")["items"] == []


def test_extend_and_into_a_neighbour(w: World) -> None:
    mine, other = w.book(0, HOUR), w.book(2 * HOUR, 3 * HOUR, "noor")
    path = f"/reservations/{mine['id']}/extend"
    assert w.good("POST", path, {"minutes": 30}, "maya")["ends_at"] == text_of(w.now + 90 * MIN)
    assert w.good("POST", path, {"ends_at": text_of(w.now + 2 * HOUR)}, "maya")["version"] == 3
    said = w.bad(409, "POST", path, {"minutes": 0.01}, "maya")
    assert said["error"]["details"]["free_until"] == other["starts_at"], "the longest it could be"
    assert [c["id"] for c in said["conflicts"]] == [other["id"]]
    assert said["suggestions"]
    for body in ({}, {"minutes": 5, "ends_at": text_of(w.now + HOUR)}, {"minutes": 0}, {"minutes": -5}, {"minutes": "5"},
                 {"ends_at": text_of(w.now + HOUR)}, {"ends_at": "later"}):  # fmt: skip
        w.bad(422, "POST", path, body, "maya")
    w.bad(403, "POST", path, {"minutes": 5}, "noor")
    w.bad(404, "POST", "/reservations/nothing/extend", {"minutes": 5}, "maya")


def test_patch_moves_with_version(w: World) -> None:
    mine = w.book(HOUR, 2 * HOUR)
    path = f"/reservations/{mine['id']}"
    moved = w.good(
        "PATCH", path, {"version": 1, "channel": "n1/b", "model": "only-b", "starts_at": text_of(w.now + 3 * HOUR),
                        "ends_at": text_of(w.now + 4 * HOUR), "note": "moved"}, "maya",
    )  # fmt: skip
    assert (moved["channel"], moved["model"], moved["version"], moved["note"]) == ("n1/b", "only-b", 2, "moved")
    said = w.bad(409, "PATCH", path, {"version": 1, "note": "late"}, "maya")
    assert said["error"]["details"] == {"version": 2}
    for body in ({"note": "no version"}, {"version": "2"}, {"version": 2, "ends_at": None}, {"version": 2, "colour": 1},
                 {"version": 2, "starts_at": text_of(w.now - HOUR)}, {"version": 2, "channel": "n1/zzz"},
                 {"version": 2, "kind": "exclusive", "model": "small"}, {"version": 10**30}):  # fmt: skip
        w.bad(422, "PATCH", path, body, "maya")
    bare = w.good("PATCH", path, {"version": 2, "kind": "exclusive"}, "maya")
    assert (bare["kind"], bare["model"]) == ("exclusive", None)


def test_a_running_booking_stays_where_it_is(w: World) -> None:
    mine = w.book(0, HOUR)
    path = f"/reservations/{mine['id']}"
    w.now += MIN
    for change in ({"channel": "n1/b"}, {"starts_at": text_of(w.now + MIN)}, {"kind": "exclusive"}):
        w.bad(422, "PATCH", path, {"version": 1, **change}, "maya")
    assert w.good("PATCH", path, {"version": 1, "ends_at": text_of(w.now + MIN)}, "maya")["running"] is True
    other = w.good("PATCH", path, {"version": 2, "model": "org/big model"}, "maya")
    assert other["model"] == "org/big model"


def test_a_start_that_is_sent_back_is_no_move(w: World) -> None:
    """A calendar sends both times on a drop; a booking that began half a minute ago keeps its start."""
    mine = w.book(0, HOUR)
    w.now += 30_000
    times = {"starts_at": mine["starts_at"], "ends_at": text_of(w.now + 2 * HOUR)}
    changed = w.good("PATCH", f"/reservations/{mine['id']}", {"version": 1, **times}, "maya")
    assert (changed["starts_at"], changed["hints"]) == (mine["starts_at"], [])


def test_extend_with_a_version(w: World) -> None:
    mine = w.book(0, HOUR)
    path = f"/reservations/{mine['id']}/extend"
    w.good("POST", path, {"minutes": 5, "version": 1}, "maya")
    assert w.bad(409, "POST", path, {"minutes": 5, "version": 1}, "maya")["error"]["details"] == {"version": 2}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"note": "x"}, True),
        ({"participants": ["noor"]}, True),
        ({"ends_at": 150 * MIN}, True),
        ({"starts_at": 61 * MIN}, False),
        ({"starts_at": 59 * MIN}, False),
        ({"preset": "p"}, False),
        ({"model": "org/big model"}, False),
        ({"kind": "exclusive"}, False),
        ({"channel": "n1/b"}, False),
        ({"ends_at": 10 * HOUR}, False),  # needs an approver now: what waits is prepared by nobody
    ],
)
def test_what_is_moved_or_changed_is_no_longer_chosen(w: World, change: dict[str, Any], kept: bool) -> None:
    w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp"})
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "over", "approval_over_hours": 4, "max_hours": 0}})
    mine = w.book(HOUR, 2 * HOUR)
    with w.store.write() as session:
        session.get(Reservation, mine["id"]).committed = True  # type: ignore[union-attr]
    body = {k: text_of(w.now + v) if isinstance(v, int) else v for k, v in change.items()}
    w.good("PATCH", f"/reservations/{mine['id']}", {"version": 1, **body}, "maya")
    with w.store.read() as session:
        assert session.get(Reservation, mine["id"]).committed is kept  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["end", "cancel", "disable"])
@pytest.mark.parametrize("begun", [False, True])
def test_an_override_is_spent_for_ever_by_what_began(w: World, how: str, begun: bool) -> None:
    w.good("PUT", "/channels/n1/a/override", {"unload": True})
    w.now += 1
    mine = w.book(0 if begun else HOUR, 2 * HOUR)
    w.now += MIN
    if how == "disable":
        w.good("PATCH", f"/users/{w.ids['maya']}", {"disabled": True})
    else:
        w.good("POST", f"/reservations/{mine['id']}/{how}", {}, "maya")
    done = w.get(f"/reservations/{mine['id']}")
    assert (done["status"], done["ended_at"]) == ("ended_early" if begun else "cancelled", text_of(w.now))
    for later in (0, 90 * MIN):
        w.now += later
        assert w.get("/channels/n1/a")["why"] == ("idle" if begun else "override")


def test_an_extension_without_an_end_names_the_field(w: World) -> None:
    mine = w.book(0, HOUR)
    for body in ({}, {"minutes": 5, "ends_at": text_of(w.now + 2 * HOUR)}):
        said = w.bad(422, "POST", f"/reservations/{mine['id']}/extend", body, "maya")
        assert [p["field"] for p in said["problems"]] == ["minutes"]

"""A cancellation taken back: the same booking, judged anew, and never over somebody who has the time by now."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from controller.store.tables import Audit, Reservation
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH


def cancelled(w: World, who: str = "maya", start: int = 2 * HOUR, **more: Any) -> str:
    made = w.book(start, start + HOUR, who, **more)
    w.good("POST", f"/reservations/{made['id']}/cancel", {}, who)
    return str(made["id"])


def back(w: World, booking: str, who: str = "maya", **body: Any) -> dict[str, Any]:
    return w.good("POST", f"/reservations/{booking}/uncancel", body, who)


def refused(w: World, status: int, booking: str, who: str = "maya", **body: Any) -> dict[str, Any]:
    return w.bad(status, "POST", f"/reservations/{booking}/uncancel", body, who)


def test_it_is_the_same_booking_again(w: World) -> None:
    booking = cancelled(w, note="evaluation", participants=["noor"])
    before = w.get(f"/reservations/{booking}", "maya")
    w.now += MIN
    after = back(w, booking)
    assert (before["status"], after["status"]) == ("cancelled", "approved")
    for same in ("id", "starts_at", "ends_at", "note", "participants", "created_at", "channel", "model"):
        assert after[same] == before[same]
    assert (after["version"], after["ended_at"], after["reason"] or "") == (3, None, "")
    with w.store.read() as session:
        acts = session.scalars(select(Audit.action).where(Audit.subject == booking).order_by(Audit.at, Audit.id)).all()
        row = session.get(Reservation, booking)
        assert row is not None
        assert row.changed_at == w.now
    assert acts[-1] == "reservation.uncancel"
    assert set(acts) == {"reservation.create", "reservation.cancelled", "reservation.uncancel"}
    titles = [n["title"].split(":")[0] for n in w.get("/notifications", "noor")["items"]]
    assert titles == ["Not cancelled after all", "Cancelled", "Shared with you"]
    assert w.get("/notifications", "maya")["items"] == []  # who does it is not told
    w.bad(409, "POST", "/reservations", w.wish(2 * HOUR - MIN, 3 * HOUR - MIN), "noor")


def test_where_the_time_is_taken_it_stays_cancelled(w: World) -> None:
    booking = cancelled(w)
    other = w.book(150 * MIN, 4 * HOUR, "noor")
    said = refused(w, 409, booking)
    assert [c["id"] for c in said["conflicts"]] == [other["id"]]
    assert said["suggestions"]
    assert w.get(f"/reservations/{booking}", "maya")["status"] == "cancelled"
    w.good("POST", f"/reservations/{other['id']}/cancel", {}, "noor")
    assert back(w, booking)["status"] == "approved"


def test_only_what_is_cancelled_and_not_over(w: World) -> None:
    booking = cancelled(w)
    back(w, booking)
    said = refused(w, 409, booking)
    assert said["error"]["message"] == "the booking is approved, not cancelled"
    w.good("POST", f"/reservations/{booking}/cancel", {}, "maya")
    w.now += 3 * HOUR
    assert refused(w, 422, booking)["problems"][0]["code"] == "in_the_past"
    ran = w.book(0, HOUR)
    w.now += MIN
    w.good("POST", f"/reservations/{ran['id']}/end", {}, "maya")
    assert "ended early" in refused(w, 409, str(ran["id"]))["error"]["message"]


def test_one_whose_start_has_passed_goes_on_in_its_window(w: World) -> None:
    booking = cancelled(w, start=10 * MIN)
    w.now += 15 * MIN
    after = back(w, booking)
    assert after["running"]
    assert after["approved_at"] > after["starts_at"]


def test_whose_it_is_and_why(w: World) -> None:
    booking = cancelled(w, participants=["noor"])
    refused(w, 403, booking, "noor")
    refused(w, 403, booking, "ada", reason="mine now")
    assert refused(w, 422, booking, "root")["problems"][0]["field"] == "reason"
    back(w, booking, "root", reason="cancelled by mistake")
    newest = w.get("/notifications", "maya")["items"][0]
    assert "root has taken the cancellation of your booking back" in newest["text"]
    assert "cancelled by mistake" in newest["text"]


def test_the_rules_of_today_hold_and_what_was_granted_stays_granted(w: World) -> None:
    plain = cancelled(w, start=4 * HOUR)
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    asked = w.book(DAY, DAY + HOUR)
    w.good("POST", f"/reservations/{asked['id']}/approve", {}, "ada")
    w.good("POST", f"/reservations/{asked['id']}/cancel", {}, "maya")
    waiting = cancelled(w, start=2 * DAY)
    told = len(w.get("/notifications", "ada")["items"])
    assert back(w, str(asked["id"]))["status"] == "approved"
    assert back(w, plain)["status"] == "approved"
    assert back(w, waiting)["status"] == "pending"
    assert len(w.get("/notifications", "ada")["items"]) == told + 1
    w.good("POST", f"/reservations/{asked['id']}/cancel", {}, "maya")
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always", "max_hours": 0.5, "requests": True}})
    assert back(w, str(asked["id"]))["status"] == "pending"  # longer than what is allowed by now


def test_a_disabled_holder_and_a_channel_that_is_gone(w: World) -> None:
    booking = cancelled(w)
    w.good("PATCH", f"/users/{w.ids['maya']}", {"disabled": True})
    assert refused(w, 422, booking, "root", reason="x")["problems"][0]["code"] == "holder_disabled"
    w.good("PATCH", f"/users/{w.ids['maya']}", {"disabled": False})
    w.good("PATCH", "/nodes/n1", {"cordoned": True})
    assert refused(w, 422, booking)["problems"][0]["code"] == "node_cordoned"

"""Bookings that somebody else decides: approval, requests beyond the limits, administrators who act for others."""

from __future__ import annotations

from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH


def test_administrators_act_for_others_with_a_reason_and_the_holder_is_told(w: World) -> None:
    mine = w.book(HOUR, 2 * HOUR)
    path = f"/reservations/{mine['id']}"
    assert "reason" in str(w.bad(422, "POST", f"{path}/cancel", {}))
    assert "reason" in str(w.bad(422, "PATCH", path, {"version": 1, "note": "x"}))
    assert w.good("POST", f"{path}/cancel", {"reason": "the card is broken"})["status"] == "cancelled"
    notices = w.get("/notifications", "maya")["items"]
    assert [(n["kind"], n["subject"]) for n in notices] == [("cancelled", mine["id"])]
    assert "the card is broken" in notices[0]["text"]
    w.bad(403, "POST", f"{path}/cancel", {"reason": "no"}, "tom")
    w.bad(403, "POST", f"{path}/cancel", {"reason": "no"}, "ada")


def test_booking_for_somebody_else(w: World) -> None:
    w.bad(403, "POST", "/reservations", w.wish(0, HOUR, holder="noor"), "maya")
    assert (
        w.good("POST", "/reservations/check", w.wish(0, HOUR, holder="noor"), "maya")["problems"][0]["field"]
        == "holder"
    )
    made = w.good("POST", "/reservations", w.wish(0, HOUR, holder="noor"))
    assert (made["holder"], made["booked_by"]) == ("noor", "root")
    assert w.get("/notifications", "noor")["items"][0]["kind"] == "booked"
    assert w.book(0, HOUR, "maya", "n1/b", holder="maya")["holder"] == "maya"


def test_approval(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    made = w.book(HOUR, 2 * HOUR)
    assert made["status"] == "pending"
    assert "needs_approval" in [h["code"] for h in made["hints"]]
    assert w.get("/notifications", "ada")["items"][0]["kind"] == "requested"
    w.bad(409, "POST", "/reservations", w.wish(HOUR, 2 * HOUR), "noor")  # pending holds the time
    path = f"/reservations/{made['id']}"
    w.bad(403, "POST", f"{path}/approve", {}, "maya")
    w.bad(422, "POST", f"{path}/reject", {}, "ada")
    done = w.good("POST", f"{path}/approve", {}, "ada")
    assert (done["status"], done["decided_by"], done["approved_at"]) == ("approved", "ada", text_of(w.now))
    w.bad(409, "POST", f"{path}/approve", {}, "ada")
    w.bad(409, "POST", f"{path}/reject", {"reason": "late"}, "ada")
    assert w.get("/notifications", "maya")["items"][0]["kind"] == "approved"
    other = w.book(3 * HOUR, 4 * HOUR)
    assert w.good("POST", f"/reservations/{other['id']}/reject", {"reason": "no"}, "ada")["status"] == "rejected"
    grown = w.good("POST", f"{path}/extend", {"minutes": 5}, "maya")
    assert grown["status"] == "pending"  # growing needs what creating needs
    w.good("POST", f"{path}/approve", {}, "ada")
    shrunk = w.good("PATCH", path, {"version": 4, "ends_at": text_of(w.now + 90 * MIN)}, "maya")
    assert shrunk["status"] == "approved"


def test_approval_looks_again(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    late, orphan = w.book(0, HOUR), w.book(5 * HOUR, 6 * HOUR, "noor")
    w.good("PATCH", f"/users/{w.ids['noor']}", {"disabled": True})
    w.bad(409, "POST", f"/reservations/{orphan['id']}/approve", {}, "ada")
    w.now += HOUR
    assert "expired" in w.bad(409, "POST", f"/reservations/{late['id']}/approve", {}, "ada")["error"]["message"]


def test_limits_can_be_asked_for_where_the_channel_allows_requests(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"max_hours": 1, "requests": True}})
    assert w.book(HOUR, 4 * HOUR)["status"] == "pending"
    assert w.good("POST", "/reservations", w.wish(5 * HOUR, 8 * HOUR))["status"] == "approved"  # an administrator may
    w.good("PATCH", "/channels/n1/b", {"policy": {"exclusive_allowed": False, "max_hours": 0}})
    said = w.bad(422, "POST", "/reservations", w.wish(0, HOUR, "n1/b", kind="exclusive"), "maya")
    assert said["problems"][0]["field"] == "kind"
    assert w.book(0, 100 * HOUR, channel="n1/b")["status"] == "approved"  # 0 = no limit


def test_a_booking_given_to_somebody_else_is_told_to_both(w: World) -> None:
    mine = w.book(HOUR, 2 * HOUR)
    path = f"/reservations/{mine['id']}"
    w.bad(403, "PATCH", path, {"version": 1, "holder": "noor"}, "maya")
    given = w.good("PATCH", path, {"version": 1, "holder": "noor", "reason": "she asked"})
    assert given["holder"] == "noor"
    for who in ("maya", "noor"):
        (notice,) = w.get("/notifications", who)["items"]
        assert (notice["kind"], "she asked" in notice["text"]) == ("changed", True)

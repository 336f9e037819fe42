"""A channel's policy through REST: set, shown, kept; hours a person may hold; requests beyond a limit and their approver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.store.tables import Audit, Preset
from controller.times import text_of
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH


def rules(w: World, channel: str = "n1/a", **policy) -> None:
    w.good("PATCH", f"/channels/{channel}", {"policy": policy})


def codes(said) -> list[str]:
    return [p["code"] for p in said["problems"]]


def test_a_policy_is_set_and_shown_as_it_was_said(w: World) -> None:
    given = {
        "allowed_users": ["maya", w.ids["noor"]],
        "allowed_roles": ["approver"],
        "max_hours_week": 20,
        "max_hours": 0,
    }
    rules(w, **given)
    shown = w.get("/channels/n1/a", "maya")["policy"]
    assert (shown["allowed_users"], shown["allowed_roles"]) == (["maya", "noor"], ["approver"])
    assert (shown["max_hours"], shown["max_hours_week"], shown["max_days_ahead"]) == (None, 20, 30)
    w.good("PATCH", "/channels/n1/a", {"policy": shown})  # what is shown can be sent back
    w.good("PATCH", f"/users/{w.ids['maya']}", {"name": "maja"})
    assert w.get("/channels/n1/a")["policy"]["allowed_users"] == ["maja", "noor"], "people, not their names"
    rules(w, allowed_users=[], max_hours_week=None)
    assert w.get("/channels/n1/a")["policy"]["allowed_users"] is None
    w.good("PATCH", "/channels/n1/a", {"policy": None})
    assert w.get("/channels/n1/a")["policy"]["max_hours"] == 8


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"allowed_users": ["nobody"]}, "policy.allowed_users"),
        ({"allowed_users": "maya"}, "policy.allowed_users"),
        ({"allowed_roles": ["king"]}, "policy.allowed_roles"),
        ({"max_hours_held": -1}, "policy.max_hours_held"),
        ({"max_hours_week": "20"}, "policy.max_hours_week"),
        ({"max_hours_weak": 20}, "policy.max_hours_weak"),
    ],
)
def test_a_policy_that_cannot_be_names_the_rule(w: World, policy, field) -> None:
    assert field in w.bad(422, "PATCH", "/channels/n1/a", {"policy": policy})["error"]["details"]


def test_who_may_book(w: World) -> None:
    rules(w, allowed_users=["maya"], requests=True)
    assert w.book(0, HOUR)["status"] == "approved"
    assert codes(w.bad(422, "POST", "/reservations", w.wish(HOUR, 2 * HOUR), "noor")) == ["not_admitted"]
    made = w.good("POST", "/reservations", w.wish(HOUR, 2 * HOUR, holder="noor"))
    assert made["status"] == "approved", "an administrator may, for anybody"
    assert w.good("POST", f"/reservations/{made['id']}/end", who="noor")["status"] == "cancelled"


def test_hours_held_and_a_week(w: World) -> None:  # it is Friday
    rules(w, max_hours_held=3, max_hours_week=4)
    first = w.book(0, 2 * HOUR)
    said = w.bad(422, "POST", "/reservations", w.wish(3 * HOUR, 5 * HOUR), "maya")
    assert codes(said) == ["too_many_hours_held"]
    assert "1 h are left, this takes 2 h" in said["problems"][0]["message"]
    w.book(3 * HOUR + MIN, 5 * HOUR, "noor")  # everybody has their own
    w.book(3 * HOUR, 5 * HOUR, channel="n1/b")  # on every channel
    assert codes(w.bad(422, "POST", f"/reservations/{first['id']}/extend", {"minutes": 61}, "maya")) == [
        "too_many_hours_held"
    ]
    w.now += HOUR
    w.good("POST", f"/reservations/{first['id']}/end", who="maya")  # one hour used, none held
    assert w.book(5 * HOUR, 8 * HOUR)["status"] == "approved"
    said = w.good("POST", "/reservations/check", w.wish(8 * HOUR, 8 * HOUR + MIN), "maya")
    assert codes(said) == ["too_many_hours_held", "too_many_hours_week"]
    assert (said["hours"]["held"], said["hours"]["week"], said["hours"]["week_limit"]) == (3, 4, 4)
    assert "0 of 4 h left this week" in [p["message"] for p in said["policy"]]
    assert w.good("POST", "/reservations", w.wish(9 * HOUR, 10 * HOUR, holder="maya"))["status"] == "approved"
    next_week = w.good("POST", "/reservations/check", w.wish(4 * DAY, 4 * DAY + HOUR), "tom")
    assert next_week["hours"]["week_from"] == "2027-01-18T00:00:00Z"


def test_many_at_once_stay_within_the_hours(w: World) -> None:
    rules(w, max_hours_held=2, max_hours_week=0)

    def book(turn: int) -> int:
        headers = {"Authorization": f"Bearer {w.secrets['maya']}"}
        body = w.wish(2 * turn * HOUR, (2 * turn + 1) * HOUR)
        return w.app.test_client().post("/api/v1/reservations", json=body, headers=headers).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(book, range(6)))
    assert statuses == [201, 201, 422, 422, 422, 422]


def test_a_request_as_its_approver_sees_it(w: World) -> None:
    rules(w, max_hours=1, requests=True)
    w.book(0, HOUR)
    asked = w.book(2 * HOUR, 5 * HOUR, note="a demo")
    assert asked["status"] == "pending"
    assert "request" not in w.get(f"/reservations/{asked['id']}", "maya"), "for those who decide"
    for _ in range(2):
        w.bad(409, "POST", "/reservations", w.wish(3 * HOUR, 4 * HOUR), "tom")
    w.now += 30 * MIN
    seen = w.get(f"/reservations/{asked['id']}", "ada")["request"]
    assert seen["over_limits"] == ["1 h at most on this channel"]
    assert seen["blocked_seconds"] == 1800
    tom = {"who": "tom", "starts_at": text_of(w.now + 150 * MIN), "ends_at": text_of(w.now + 210 * MIN)}
    assert seen["turned_away"] == [tom], "once, however often it was tried"
    assert seen["requester"] == {"disabled": False, "bookings": 1, "hours_held": 0.5, "hours_week": 1}
    listed = w.get("/reservations?status=pending", "ada")["items"]
    assert [r["request"] for r in listed] == [seen]
    assert "request" not in w.get("/reservations?status=pending", "maya")["items"][0]
    done = w.good("POST", f"/reservations/{asked['id']}/approve", {"reason": "for once"}, "ada")
    assert (done["status"], done["reason"]) == ("approved", "for once")


def test_growing_beyond_a_limit(w: World) -> None:
    rules(w, max_hours=2, requests=True)
    coming, running = w.book(3 * HOUR, 4 * HOUR), w.book(0, HOUR)
    path = f"/reservations/{coming['id']}"
    grown = w.good("POST", f"{path}/extend", {"minutes": 90}, "maya")
    assert grown["status"] == "pending", "the whole booking waits again"
    assert w.get("/notifications", "ada")["items"][0]["kind"] == "requested"
    back = w.good("PATCH", path, {"version": 2, "ends_at": text_of(w.now + 5 * HOUR)}, "maya")
    assert back["status"] == "approved", "nothing is left to be asked for"
    said = w.bad(422, "POST", f"/reservations/{running['id']}/extend", {"minutes": 90}, "maya")
    assert codes(said) == ["too_long", "needs_approval"]
    assert "have an administrator extend it" in said["problems"][1]["message"]
    wish = {**w.wish(0, 150 * MIN), "replaces": running["id"]}
    assert codes(w.good("POST", "/reservations/check", wish, "maya")) == ["too_long", "needs_approval"]
    longer = w.good("POST", f"/reservations/{running['id']}/extend", {"minutes": 90, "reason": "a favour"})
    assert (longer["status"], longer["running"]) == ("approved", True)


def test_a_request_that_shrinks_but_is_still_beyond_stays_one(w: World) -> None:
    rules(w, max_hours=2, requests=True)
    asked = w.book(HOUR, 5 * HOUR)
    less = w.good("PATCH", f"/reservations/{asked['id']}", {"version": 1, "ends_at": text_of(w.now + 4 * HOUR)}, "maya")
    assert less["status"] == "pending"


def test_check_of_a_change(w: World) -> None:
    mine = w.book(HOUR, 2 * HOUR)
    wish = w.wish(90 * MIN, 150 * MIN)
    assert codes(w.good("POST", "/reservations/check", wish, "maya")) == ["overlap"]
    said = w.good("POST", "/reservations/check", {**wish, "replaces": mine["id"]}, "maya")
    assert (said["problems"], said["status"]) == ([], "approved")
    said = w.good("POST", "/reservations/check", {**wish, "replaces": mine["id"]}, "noor")
    assert said["problems"][0]["code"] == "forbidden"
    assert codes(w.good("POST", "/reservations/check", {**wish, "replaces": "nothing"}, "maya")) == ["unknown_booking"]


def test_several_decided_at_once(w: World) -> None:
    rules(w, approval="always")
    ids = [w.book(n * HOUR, (n + 1) * HOUR)["id"] for n in range(1, 4)]
    w.bad(403, "POST", "/reservations/decide", {"ids": ids, "approve": True}, "maya")
    w.bad(422, "POST", "/reservations/decide", {"ids": ids, "approve": False}, "ada")
    w.bad(422, "POST", "/reservations/decide", {"ids": [], "approve": True}, "ada")
    w.good("POST", f"/reservations/{ids[1]}/cancel", who="maya")
    said = w.good("POST", "/reservations/decide", {"ids": [*ids, "nothing"], "approve": True}, "ada")
    assert [i["status"] for i in said["items"]] == ["approved", None, "approved", None]
    assert said["decided"] == 2
    assert said["items"][1]["error"]["code"] == "conflict"
    assert said["items"][3]["error"]["code"] == "not_found"


def test_approval_looks_at_everything_again(w: World) -> None:
    w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp"}, "maya")
    rules(w, approval="always")
    preset = w.book(HOUR, 2 * HOUR, preset="p")
    late = w.book(2 * HOUR, 3 * HOUR, "noor")
    with w.store.write() as session:
        session.query(Preset).update({"deleted_at": w.now})
    said = w.bad(422, "POST", f"/reservations/{preset['id']}/approve", {}, "ada")
    assert codes(said) == ["unknown_preset"]
    assert w.get(f"/reservations/{preset['id']}")["status"] == "pending", "history is kept, and it can be rejected"
    w.now += 150 * MIN
    done = w.good("POST", f"/reservations/{late['id']}/approve", {}, "ada")
    assert done["running"] is True, "approved after its start it begins at once"
    assert done["approved_at"] == text_of(w.now)
    w.now += HOUR
    assert w.get(f"/reservations/{preset['id']}")["status"] == "expired"


def test_a_turned_away_wish_is_no_booking(w: World) -> None:
    rules(w, approval="always")
    w.book(HOUR, 2 * HOUR)
    w.bad(409, "POST", "/reservations", w.wish(HOUR, 2 * HOUR), "maya")  # one's own request turns nobody away
    with w.store.read() as session:
        assert session.query(Audit).filter(Audit.action == "request.turned_away").count() == 0


def test_only_channels_that_one_may_book_are_offered(w: World) -> None:
    rules(w, "n1/b", allowed_users=["maya"])
    w.book(0, HOUR)
    said = w.bad(409, "POST", "/reservations", w.wish(0, HOUR), "noor")
    assert {s["channel"] for s in said["suggestions"]} == {"n1/a"}
    assert {s["channel"] for s in w.get("/slots?model=small", "noor")["items"]} == {"n1/a"}
    for who in ("maya", "root"):
        assert w.get("/slots?model=small", who)["items"][0]["channel"] == "n1/b"

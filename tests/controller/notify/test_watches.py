"""Tell me when a slot gets free: told once, whatever sets it free and however many ask at the same moment."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from controller.notify.watching import tell_free
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, World
from tests.controller.notify.conftest import Make, Sink, mailing, outside, rounds, sender, told
from tests.parts import BOTH

DATABASES = BOTH


def wait_for(w: World, who: str = "noor", *, until: int = 2 * HOUR, **more: Any) -> Any:
    body = {"model": "small", "minutes": 60, "channel": "n1/a", "not_after": text_of(w.now + until), **more}
    return w.good("POST", "/watches", body, who)


def test_told_once_when_the_booking_in_the_way_is_cancelled(making: Make) -> None:
    w = making()
    first, second = w.book(0, HOUR), w.book(HOUR, 2 * HOUR)
    made = wait_for(w)
    assert made["state"] == "waiting"
    going = rounds(w)
    going.step()
    assert told(w) == []
    w.good("POST", f"/reservations/{second['id']}/cancel", {}, "maya")
    w.good("POST", f"/reservations/{first['id']}/end", {}, "maya")
    for one in (going, rounds(w)):
        one._bookings_changed = True
        one.step()
        one.step()
    assert told(w) == [("noor", "slot_free")]
    notice = w.get("/notifications", "noor")["items"][0]
    assert notice["title"] == f"Free: small on n1/a, {text_of(w.now)}–{text_of(w.now + HOUR)}"
    (listed,) = w.get("/watches", "noor")["items"]
    assert (listed["state"], listed["told_at"]) == ("told", text_of(w.now))


@pytest.mark.parametrize("how", ["moved", "shortened", "elsewhere", "rejected"])
def test_whatever_sets_it_free(making: Make, how: str) -> None:
    w = making(max_booking_hours=0)
    if how == "rejected":
        w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    where, model = ("n1/b", "only-b") if how == "elsewhere" else ("n1/a", "small")
    made = w.book(HOUR, 3 * HOUR, channel=where, model=model)
    place = {"model": model, "channel": None if how == "elsewhere" else where}
    wait_for(w, until=3 * HOUR, not_before=text_of(w.now + HOUR), **place)
    path = f"/reservations/{made['id']}"
    match how:
        case "shortened":
            w.good("PATCH", path, {"version": 1, "ends_at": text_of(w.now + 2 * HOUR)}, "maya")
        case "moved":
            later = {"starts_at": text_of(w.now + 3 * HOUR), "ends_at": text_of(w.now + 5 * HOUR)}
            w.good("PATCH", path, {"version": 1, **later}, "maya")
        case "rejected":
            w.good("POST", f"{path}/reject", {"reason": "no"}, "ada")
        case "elsewhere":
            w.good("POST", f"{path}/cancel", {}, "maya")
    rounds(w).step()
    assert ("noor", "slot_free") in told(w)


def test_what_is_free_already_is_said_at_once(making: Make) -> None:
    w = making()
    body = {"model": "small", "minutes": 30, "not_after": text_of(w.now + HOUR)}
    answer = w.call("POST", "/watches", body, "noor")
    assert answer.status_code == 409
    assert answer.get_json()["suggestions"][0]["channel"] == "n1/a"


def test_not_for_times_that_do_not_suit(making: Make) -> None:
    w = making()
    made = w.book(0, 2 * HOUR)
    wait_for(w, not_before=text_of(w.now + HOUR))
    wait_for(w, "tom", minutes=120)
    w.good("PATCH", f"/reservations/{made['id']}", {"version": 1, "ends_at": text_of(w.now + HOUR + MIN)}, "maya")
    rounds(w).step()
    assert told(w) == []  # 59 minutes are left
    w.now += 2 * HOUR
    rounds(w).step()
    assert [x["state"] for x in w.get("/watches", "noor")["items"]] == ["over"]
    assert told(w) == []


def test_given_up_and_other_peoples(making: Make) -> None:
    w = making()
    w.book(0, 2 * HOUR)
    made = wait_for(w)
    w.bad(404, "DELETE", f"/watches/{made['id']}", None, "tom")
    w.good("DELETE", f"/watches/{made['id']}", who="noor")
    assert w.get("/watches", "noor")["items"][0]["state"] == "cancelled"
    assert w.get("/watches", "tom")["items"] == []
    for bad in (
        {"minutes": 0},
        {"model": None},
        {"not_after": text_of(w.now + MIN)},
        {"channel": "n1/x"},
        {"kind": "exclusive"},
    ):
        body = {"model": "small", "minutes": 60, "channel": "n1/a", "not_after": text_of(w.now + 2 * HOUR), **bad}
        w.bad(422, "POST", "/watches", body, "noor")
    for _ in range(20):
        wait_for(w)
    assert "20" in w.bad(409, "POST", "/watches", {
        "model": "small", "minutes": 60, "channel": "n1/a", "not_after": text_of(w.now + 2 * HOUR)
    }, "noor")["error"]["message"]  # fmt: skip


def test_two_that_look_at_once_tell_once(making: Make) -> None:
    w = making()
    made = w.book(0, 2 * HOUR)
    watch = wait_for(w)
    w.good("POST", f"/reservations/{made['id']}/end", {}, "maya")
    start, said = threading.Barrier(4), []

    def look() -> None:
        start.wait()
        with w.store.write() as session:
            said.append(tell_free(session, w.ctx, watch["id"], w.now))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(said) == [False, False, False, True]
    assert told(w) == [("noor", "slot_free")]


def test_a_slot_that_is_taken_again_before_the_mail_is_sent_sends_none(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    made = w.book(0, 2 * HOUR)
    wait_for(w)
    w.good("POST", f"/reservations/{made['id']}/end", {}, "maya")
    rounds(w).step()
    w.book(0, HOUR, "tom")
    sender(w).step()
    assert smtp.mails == []
    assert [m.error for m in outside(w)] == ["taken again meanwhile"]

"""Whoever shares a booking hears of it as its holder does: once each, by their own choice, in words that fit them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from controller.notify import inbox
from controller.store.tables import Node, Notification, Reservation
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, World
from tests.controller.notify.conftest import Make, Sink, mailing, outside, rounds, sender
from tests.controller.notify.test_due import at, on_the_card, says
from tests.parts import BOTH

DATABASES = BOTH


def titles(w: World, who: str) -> list[str]:
    """Newest first."""
    return [n["title"].split(":")[0] for n in w.get("/notifications", who)["items"]]


def newest(w: World, who: str) -> dict[str, Any]:
    return w.get("/notifications", who)["items"][0]


def change(w: World, made: dict[str, Any], body: dict[str, Any], who: str = "maya") -> dict[str, Any]:
    version = w.get(f"/reservations/{made['id']}")["version"]
    return w.good("PATCH", f"/reservations/{made['id']}", {"version": version, **body}, who)


def test_they_are_told_what_its_holder_does_with_it(making: Make) -> None:
    w = making()
    made = w.book(2 * HOUR, 3 * HOUR, participants=["noor", "tom"])
    assert titles(w, "maya") == []
    assert titles(w, "noor") == titles(w, "tom") == ["Shared with you"]
    assert newest(w, "noor")["kind"] == "participant"
    assert "maya has named you a participant of maya's booking" in newest(w, "noor")["text"]
    change(w, made, {"note": "only a note"})
    change(w, made, {"participants": ["noor", "ada"]})
    assert (titles(w, "noor"), titles(w, "ada")) == (["Shared with you"], ["Shared with you"])
    assert titles(w, "tom") == ["No longer shared with you", "Shared with you"]
    change(w, made, {"starts_at": text_of(w.now + HOUR)})
    assert titles(w, "noor") == titles(w, "ada") == ["Changed", "Shared with you"]
    assert "maya has changed maya's booking, which you share" in newest(w, "noor")["text"]
    w.good("POST", f"/reservations/{made['id']}/cancel", {}, "maya")
    assert titles(w, "noor")[0] == titles(w, "ada")[0] == "Cancelled"
    assert len(titles(w, "tom")) == 2
    assert titles(w, "maya") == []  # who does it is not told of it


def test_they_hear_how_a_request_was_decided_and_that_it_has_expired(making: Make) -> None:
    w = making()
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    asked = [w.book(hour * HOUR, (hour + 1) * HOUR, participants=["noor"]) for hour in (1, 3, 5)]
    assert "It still waits for an approver." in newest(w, "noor")["text"]
    w.good("POST", f"/reservations/{asked[0]['id']}/approve", {}, "ada")
    assert titles(w, "noor")[0] == "Approved"
    w.good("POST", f"/reservations/{asked[1]['id']}/reject", {"reason": "the card is needed"}, "ada")
    assert titles(w, "noor")[0] == "Rejected"
    assert "the card is needed" in newest(w, "noor")["text"]
    with w.store.write() as session:
        inbox.expired(session, asked[2]["id"], w.now)
    assert titles(w, "noor")[0] == "Nobody decided in time"
    assert [n["kind"] for n in w.get("/notifications", "maya")["items"]] == ["expired", "rejected", "approved"]


def test_a_repeated_booking_is_shared_with_one_word(making: Make) -> None:
    w = making()
    repeat = {"every": "day", "count": 5, "zone": "UTC"}
    w.book(2 * HOUR, 3 * HOUR, participants=["noor"], repeat=repeat)
    assert titles(w, "noor") == ["Shared with you"]


def test_they_hear_what_comes_due_once(making: Make) -> None:
    w = making()
    made = w.book(2 * HOUR, 4 * HOUR, participants=["noor"])
    start, going = w.now + 2 * HOUR, rounds(w)
    assert at(w, start - 15 * MIN, going) == [("maya", "starts_soon"), ("noor", "starts_soon")]
    assert "you can cancel" not in newest(w, "noor")["text"]
    with w.store.write() as session:
        session.execute(update(Reservation).where(Reservation.id == made["id"]).values(pinned={"identity": "A"}))
    says(w, running="A")
    assert at(w, start + MIN, going) == [("maya", "ready"), ("noor", "ready")]
    assert "http://n1:8710/channels/a/v1" in newest(w, "noor")["text"]
    assert at(w, start + 110 * MIN, going) == [("maya", "ends_soon"), ("noor", "ends_soon")]
    assert "ask maya to extend it" in newest(w, "noor")["text"]
    assert at(w, start + 111 * MIN) == []  # another leader tells nothing twice


def test_they_hear_of_trouble_in_words_of_their_own(making: Make) -> None:
    w = making()
    with w.store.write() as session:
        session.execute(update(Node).values(last_seen_at=w.now))
    w.book(0, HOUR, participants=["noor", "root"])
    failed = Failed()
    for _ in range(2):
        with w.store.write() as session:
            inbox.tell_event(session, failed)
    assert titles(w, "noor")[0] == titles(w, "root")[0] == "Failed"
    assert titles(w, "root").count("Failed") == 1  # an administrator and a participant: once
    going = rounds(w)
    going.step()
    w.ctx.live.update("n1", online=False, since=w.now)
    assert ("noor", "node_lost") in at(w, w.now + MIN, going)
    assert newest(w, "noor")["title"] == "No contact with node n1, where maya's booking runs"
    w.ctx.live.update("n1", online=True, since=w.now)
    with w.store.write() as session:
        session.execute(update(Node).where(Node.id == "n").values(last_seen_at=w.now))
    assert ("noor", "node_back") in at(w, w.now + 1_000, going)
    until = text_of(w.now + 5 * HOUR)
    w.book(2 * HOUR, 3 * HOUR, participants=["noor"])
    w.good("PATCH", "/nodes/n1", {"drain_until": until, "reason": "a new fan"})
    assert newest(w, "noor")["title"].startswith("Maintenance of node n1, where maya's booking starts at")


def test_the_processes_on_a_shared_card_may_be_theirs(making: Make) -> None:
    w = making()
    start = w.now
    w.book(0, 2 * HOUR, "tom", "n1/b", kind="exclusive", participants=["noor"])
    going = rounds(w)
    says(w, "b", phase="off")
    assert sorted(at(w, start + MIN, going)) == [("noor", "ready"), ("tom", "ready")]
    assert newest(w, "noor")["title"].startswith("The card is yours together")
    on_the_card(w, 4711)
    told = at(w, start + 2 * HOUR - 10 * MIN, going)
    assert ("noor", "card_in_use") in told
    assert sorted(at(w, start + 2 * HOUR + 20_000, going)) == [
        ("noor", "card_in_use"), ("root", "card_in_use"), ("tom", "card_in_use"),
    ]  # fmt: skip
    assert newest(w, "noor")["title"] == "Processes of tom's booking still hold the card of n1/b"


def test_each_by_the_ways_they_chose_and_not_when_they_have_left(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    w.good("PATCH", "/me/notifications", {"kinds": {"starts_soon": ["email"], "participant": []}}, "noor")
    w.good("PATCH", "/me/notifications", {"kinds": {"starts_soon": ["in_app"]}}, "tom")
    made = w.book(2 * HOUR, 3 * HOUR, participants=["noor", "tom", "ada"])
    assert titles(w, "noor") == []
    at(w, w.now + 2 * HOUR - 10 * MIN)
    change(w, made, {"participants": ["noor", "tom"]})
    sender(w).step()
    mails = sorted((m.kind, w_name(w, m.user_id), m.state) for m in outside(w))
    assert mails == [
        ("participant", "ada", "sent"),  # that it is shared
        ("participant", "ada", "sent"),  # and no longer
        ("participant", "tom", "sent"),
        ("starts_soon", "ada", "dropped"),
        ("starts_soon", "maya", "sent"),
        ("starts_soon", "noor", "sent"),
    ]
    with w.store.read() as session:
        said = session.scalars(select(Notification).where(Notification.kind == "starts_soon")).all()
    assert {w_name(w, n.user_id): n.shown for n in said} == {"maya": True, "noor": False, "tom": True, "ada": True}


def test_the_booking_of_somebody_who_is_shut_out_is_over_for_those_who_share_it(making: Make) -> None:
    w = making()
    w.book(2 * HOUR, 3 * HOUR, participants=["noor"])
    w.good("PATCH", f"/users/{w.ids['maya']}", {"disabled": True, "reason": "has left"})
    assert titles(w, "noor")[0] == "Cancelled"


def w_name(w: World, user_id: str | None) -> str:
    return next(name for name, i in w.ids.items() if i == user_id)


class Failed:
    id, kind, channel_id, subject = "f1", "failed", "a", "n1/a"
    text, at, reservation_id = "small failed: out of GPU memory", 1_800_000_000_000, ""
    category, reason, model, preset, detail = "out_of_memory", "out of GPU memory", "small", None, ""


def test_the_end_of_a_repeated_booking_reaches_everybody_of_any_of_its_dates_once(making: Make) -> None:
    w = making()
    repeat = {"every": "day", "count": 4, "zone": "UTC"}
    made = w.book(2 * HOUR, 3 * HOUR, participants=["noor"], repeat=repeat)["series"]["made"]
    change(w, made[2], {"participants": ["noor", "tom"]})  # of one date only
    change(w, made[3], {"participants": []})
    before = {who: len(titles(w, who)) for who in ("maya", "noor", "tom")}
    w.now += 2 * HOUR + 30 * MIN  # the first one runs
    body = {"scope": "all", "reason": "the card is sold"}
    w.good("POST", f"/reservations/{made[0]['id']}/cancel", body)
    told = {who: w.get("/notifications", who)["items"][: len(titles(w, who)) - n] for who, n in before.items()}
    assert {who: len(notices) for who, notices in told.items()} == {"maya": 1, "noor": 1, "tom": 1}
    assert {notices[0]["kind"] for notices in told.values()} == {"cancelled"}

    def starts(who: str) -> list[bool]:
        return [one["starts_at"] in told[who][0]["text"] for one in made]

    assert starts("maya") == [True, True, True, True]
    assert starts("noor") == [True, True, True, False]
    assert starts("tom") == [False, False, True, False]
    assert told["maya"][0]["title"].endswith(" and 3 more")
    assert " more" not in told["tom"][0]["title"]
    assert "the card is sold" in told["tom"][0]["text"]
    assert "The one that was running has been ended" in told["noor"][0]["text"]
    assert "The one that was running" not in told["tom"][0]["text"]
    w.good("POST", f"/reservations/{w.book(5 * HOUR, 6 * HOUR)['id']}/cancel", who="maya")
    assert len(titles(w, "maya")) == before["maya"] + 1


def test_a_repeated_booking_is_made_and_asked_for_with_all_its_dates(making: Make) -> None:
    w = making()
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    repeat = {"every": "day", "count": 3, "zone": "UTC"}
    made = w.book(2 * HOUR, 3 * HOUR, "maya", participants=["noor"], repeat=repeat)["series"]["made"]
    for who, kind in (("noor", "participant"), ("ada", "requested")):
        [notice] = w.get("/notifications", who)["items"]
        assert notice["kind"] == kind
        assert all(one["starts_at"] in notice["text"] for one in made), notice["text"]

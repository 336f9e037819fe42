"""Calendar feeds, read back by the icalendar library: what they say, to whom, and that a revoked one is dead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import icalendar
import pytest
from sqlalchemy import select

from controller.store.tables import Audit, Reservation, SecretLink, User
from controller.throttle import Rate
from tests.controller.api.conftest import DAY, HOUR, MIN, NOW, World, make
from tests.parts import BOTH

DATABASES = BOTH


def events(w: World, url: str) -> dict[str, icalendar.Event]:
    """By UID; the file is checked for its form on the way."""
    answer = w.client.get(url)
    assert answer.status_code == 200, answer.text
    assert answer.mimetype == "text/calendar"
    assert all(len(line) <= 75 for line in answer.data.split(b"\r\n"))
    assert b"\n" not in answer.data.replace(b"\r\n", b"")
    calendar = icalendar.Calendar.from_ical(answer.data)
    assert calendar["VERSION"] == "2.0"
    found = {str(e["UID"]): e for e in calendar.walk("VEVENT")}
    for event in found.values():
        for name in ("DTSTART", "DTEND", "DTSTAMP"):
            assert event[name].to_ical().endswith(b"Z")
    return found


def feed(w: World, who: str = "maya", **body: Any) -> str:
    return w.good("POST", "/feeds", body, who)["url"]


def test_a_feed_says_what_is_booked_and_every_change_of_it(w: World) -> None:
    url = feed(w)
    assert events(w, url) == {}
    booking = w.book(HOUR, 2 * HOUR, note="bring coffee")
    uid = f"{booking['id']}@slotserve"
    event = events(w, url)[uid]
    assert (event["STATUS"], event["SEQUENCE"], event["SUMMARY"]) == ("CONFIRMED", 0, "small")
    assert event["LOCATION"] == "n1/a"
    assert "bring coffee" in event["DESCRIPTION"]
    assert event["DTSTART"].dt == datetime.fromtimestamp((NOW + HOUR) / 1000, UTC)
    assert event["DTEND"].dt == datetime.fromtimestamp((NOW + 2 * HOUR) / 1000, UTC)
    assert event["LAST-MODIFIED"].dt == event["CREATED"].dt == event["DTSTAMP"].dt
    w.now += 5 * MIN
    w.good("POST", f"/reservations/{booking['id']}/extend", {"minutes": 30}, "maya")
    event = events(w, url)[uid]
    assert (event["SEQUENCE"], event["LAST-MODIFIED"].dt) == (1, datetime.fromtimestamp(w.now / 1000, UTC))
    assert event["CREATED"].dt == datetime.fromtimestamp(NOW / 1000, UTC)
    assert event["DTEND"].dt == datetime.fromtimestamp((NOW + 2 * HOUR + 30 * MIN) / 1000, UTC)
    w.now += 5 * MIN
    w.good("POST", f"/reservations/{booking['id']}/cancel", {}, "maya")
    event = events(w, url)[uid]
    assert (event["STATUS"], event["SEQUENCE"]) == ("CANCELLED", 2)
    assert event["LAST-MODIFIED"].dt == event["DTSTAMP"].dt == datetime.fromtimestamp(w.now / 1000, UTC)
    w.now += 32 * DAY
    assert events(w, url) == {}


def test_ended_early_ends_when_it_ended(w: World) -> None:
    booking = w.book(0, 2 * HOUR)
    w.now += 20 * MIN
    w.good("POST", f"/reservations/{booking['id']}/end", {}, "maya")
    event = events(w, feed(w))[f"{booking['id']}@slotserve"]
    assert (event["STATUS"], event["DTEND"].dt) == ("CONFIRMED", datetime.fromtimestamp((NOW + 20 * MIN) / 1000, UTC))


def test_a_request_is_tentative(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    booking = w.book(HOUR, 2 * HOUR)
    assert booking["status"] == "pending"
    assert events(w, feed(w))[f"{booking['id']}@slotserve"]["STATUS"] == "TENTATIVE"


def test_participants_have_it_in_their_calendar(w: World) -> None:
    booking = w.book(HOUR, 2 * HOUR, participants=["noor"])
    event = events(w, feed(w, "noor"))[f"{booking['id']}@slotserve"]
    assert event["SUMMARY"] == "maya: small"
    assert events(w, feed(w, "tom")) == {}


def test_a_feed_speaks_the_language_of_its_person(w: World) -> None:
    w.good("PATCH", f"/users/{w.ids['noor']}", {"locale": "zh_Hans"}, "noor")
    w.good("PATCH", "/channels/n1/b", {"policy": {"approval": "always"}})
    running = w.book(0, HOUR, kind="exclusive", participants=["noor", "tom"])
    waiting = w.book(HOUR, 2 * HOUR, "noor", "n1/b", participants=["maya"])
    found = events(w, feed(w, "noor"))
    card, model = (found[f"{b['id']}@slotserve"] for b in (running, waiting))
    assert card["SUMMARY"] == "maya：整卡"
    assert str(card["DESCRIPTION"]).splitlines() == ["n1/a，已批准", "预约人：maya", "参与者：noor, tom"]
    assert model["SUMMARY"] == "small"
    assert str(model["DESCRIPTION"]).splitlines() == ["n1/b，等待审批", "参与者：maya"]
    english = events(w, feed(w, "maya"))[f"{waiting['id']}@slotserve"]
    assert str(english["DESCRIPTION"]).splitlines() == ["n1/b, waiting for approval", "Holder: noor", "With: maya"]


@pytest.mark.parametrize("show", ["users", "admins"])
def test_a_channels_feed_shows_what_its_person_may_see(tmp_path: Any, show: str, database_url: str) -> None:
    w = make(tmp_path, database_url, show_holders=show)
    uid = f"{w.book(HOUR, 2 * HOUR, note='secret plan', participants=['noor'])['id']}@slotserve"
    w.book(HOUR, 2 * HOUR, channel="n1/b")
    for who, summary, note in (("tom", "maya: small", False), ("ada", "maya: small", True), ("maya", "small", True)):
        found = events(w, feed(w, who, channel="n1/a"))
        assert set(found) == {uid}
        hidden = show == "admins" and who != "maya"
        assert found[uid]["SUMMARY"] == ("Reserved: small" if hidden else summary)
        assert ("secret plan" in found[uid].get("DESCRIPTION", "")) == note
        if hidden and not note:
            assert "maya" not in found[uid].to_ical().decode()
    w.store.close()


def test_revoked_disabled_and_unknown_look_the_same(w: World) -> None:
    made = w.good("POST", "/feeds", {"name": "phone"}, "maya")
    assert w.client.get(made["url"]).status_code == 200
    assert w.client.get(made["url"].replace("/feed/", "/api/v1/feed/")).status_code == 200
    with w.store.read() as session:
        row = session.scalars(select(SecretLink)).one()
        assert made["secret"] not in (row.sha256, row.prefix)
        assert row.last_used_at == NOW
        assert all(made["secret"] not in str((a.before, a.after)) for a in session.scalars(select(Audit)))
    listed = w.get("/feeds", "maya")["items"]
    assert [(f["name"], f["active"], f["channel"], f["prefix"]) for f in listed] == [
        ("phone", True, None, made["secret"][:6])
    ]
    assert "secret" not in listed[0]
    with w.store.write() as session:
        session.get(User, w.ids["maya"]).disabled_at = NOW
    gone = w.client.get(made["url"])
    assert gone.status_code == 404
    with w.store.write() as session:
        session.get(User, w.ids["maya"]).disabled_at = None
    assert w.client.get(made["url"]).status_code == 200
    w.bad(404, "DELETE", f"/feeds/{made['id']}", who="noor")
    w.good("DELETE", f"/feeds/{made['id']}", who="maya")
    assert w.client.get(made["url"]).text == gone.text
    assert w.client.get("/feed/nothing.ics").status_code == 404
    assert not w.get("/feeds", "maya")["items"][0]["active"]
    w.good("DELETE", f"/feeds/{made['id']}", who="maya")  # once more changes nothing
    with w.store.read() as session:
        assert len(list(session.scalars(select(Audit).where(Audit.action == "link.revoke")))) == 1


def test_nothing_new_is_304(w: World) -> None:
    booking, url = w.book(HOUR, 2 * HOUR), feed(w)
    tag = w.client.get(url).headers["ETag"]
    assert w.client.get(url, headers={"If-None-Match": tag}).status_code == 304
    w.now += MIN
    assert w.client.get(url, headers={"If-None-Match": tag}).status_code == 304
    w.good("POST", f"/reservations/{booking['id']}/cancel", {}, "maya")
    assert w.client.get(url, headers={"If-None-Match": tag}).status_code == 200


def test_asked_for_too_often(w: World) -> None:
    w.ctx.extra["feeds"] = (w.ctx.extra.get("feeds", (None,))[0] or _throttle(), Rate(3, 60, lambda: 0.0))
    url = feed(w)
    answers = [w.client.get(url) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["Retry-After"] == "61"
    api = w.client.get(url.replace("/feed/", "/api/v1/feed/"))
    assert api.get_json()["error"]["code"] == "too_many_requests"
    for _ in range(3):
        w.client.get("/feed/guessed.ics")
    assert w.client.get("/feed/guessed-again.ics").status_code == 429


def _throttle() -> Any:
    from controller.throttle import Throttle

    return Throttle(lambda: 0.0, free=3)


def test_names_and_notes_cannot_break_out(w: World) -> None:
    with w.store.write() as session:
        session.get(User, w.ids["maya"]).name = "a;b,c\\d<b>é</b>" + "x" * 150
    note = "one\r\nEND:VEVENT\r\nBEGIN:VEVENT\r\nUID:evil\r\n<script>\u2028two"
    booking = w.book(HOUR, 2 * HOUR, note=note)
    found = events(w, feed(w, "tom", channel="n1/a", name="x\r\ny"))
    assert set(found) == {f"{booking['id']}@slotserve"}
    event = next(iter(found.values()))
    assert event["SUMMARY"] == "a;b,c\\d<b>é</b>" + "x" * 150 + ": small"
    mine = next(iter(events(w, feed(w, "ada", channel="n1/a")).values()))
    assert "END:VEVENT\nBEGIN:VEVENT\nUID:evil" in str(mine["DESCRIPTION"])
    assert w.get("/feeds", "tom")["items"][0]["name"] == "x y"


def test_who_may_make_what(w: World) -> None:
    w.bad(403, "POST", "/feeds", {"kind": "wall"}, "maya")
    w.bad(403, "POST", "/feeds", {"user": "noor"}, "maya")
    w.bad(403, "GET", "/feeds?user=noor", who="maya")
    w.bad(422, "POST", "/feeds", {"channel": "n1/none"}, "maya")
    w.bad(422, "POST", "/feeds", {"kind": "door"}, "maya")
    w.bad(422, "GET", "/feeds?user=nobody")
    wall = w.good("POST", "/feeds", {"kind": "wall", "name": "corridor"})
    assert wall["url"].endswith(f"/wall/{wall['secret']}")
    assert w.client.get(f"/feed/{wall['secret']}.ics").status_code == 404  # a wall's secret opens no feed
    theirs = w.good("POST", "/feeds", {"user": "noor"})
    assert theirs["user"] == "noor"
    assert {f["kind"] for f in w.get("/feeds?user=*")["items"]} == {"feed", "wall"}
    assert len(w.get("/feeds?user=*&limit=1")["items"]) == 1


def test_an_exclusive_booking_and_maintenance(w: World) -> None:
    booking = w.book(HOUR, 2 * HOUR, kind="exclusive")
    url = feed(w, channel="n1/a")
    assert events(w, url)[f"{booking['id']}@slotserve"]["SUMMARY"] == "exclusive"
    with w.store.write() as session:
        session.get(Reservation, booking["id"]).maintenance = True
    assert events(w, url)[f"{booking['id']}@slotserve"]["SUMMARY"] == "Maintenance"

"""Sessions of the console: what ends them, at once; temporary passwords; what disabling somebody would do, and does."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from sqlalchemy import func, select

from controller.store import users
from controller.store.tables import Audit, WebSession
from tests.controller.api.conftest import DAY, HOUR, MIN, NOW, World

PASSWORD = "correct horse battery"


@cache
def password_hash() -> str | None:
    return users.hash_password(PASSWORD)


def with_password(w: World, name: str = "maya") -> None:
    with w.store.write() as session:
        found = users.by_name(session, name)
        assert found is not None
        found.password_hash = password_hash()


def token(page: str) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found, page
    return found[1]


def browser(w: World, name: str = "maya", password: str = PASSWORD) -> Any:
    client = w.app.test_client()
    answer = client.post(
        "/login", data={"csrf_token": token(client.get("/login").text), "name": name, "password": password}
    )
    assert answer.status_code == 302, answer.text
    return client


def alive(client: Any) -> bool:
    return client.get("/api/v1/me").status_code == 200


def csrf(client: Any) -> dict[str, str]:
    found = re.search(r'name="csrf(?:-token|_token)" (?:content|value)="([^"]+)"', client.get("/password").text)
    assert found
    return {"X-CSRF-Token": found[1]}


def test_a_copy_of_the_cookie_dies_with_the_sign_out(w: World) -> None:
    with_password(w)
    client, thief = browser(w), w.app.test_client()
    thief.set_cookie("slotserve", client.get_cookie("slotserve").value)
    assert alive(thief)
    client.post("/logout", data={"csrf_token": token(client.get("/password").text)})
    assert not alive(client)
    assert not alive(thief)


def test_without_use_and_at_the_latest(w: World) -> None:
    with_password(w)
    idle, busy = browser(w), browser(w)
    for _ in range(4):
        w.now += 20 * HOUR
        assert alive(busy)
    assert not alive(idle)  # 72 h without use
    while w.now < NOW + 13 * DAY:
        w.now += 60 * HOUR
        assert alive(busy)
    w.now = NOW + 14 * DAY + MIN
    assert not alive(busy)


def test_use_is_noted_now_and_then_only(w: World) -> None:
    with_password(w)
    client = browser(w)
    before = w.store.revision()
    for _ in range(5):
        assert alive(client)
    assert w.store.revision() == before
    w.now += 6 * MIN
    assert alive(client)
    assert w.store.revision() == before + 1


def test_ones_own_sessions_are_seen_and_ended(w: World) -> None:
    with_password(w)
    here, phone, lost = browser(w), browser(w), browser(w)
    items = here.get("/api/v1/me/sessions").get_json()["items"]
    assert [i["current"] for i in items].count(True) == 1
    assert {i["way"] for i in items} == {"password"}
    assert all(i["address"] == "127.0.0.1" and i["agent"].startswith("Werkzeug") for i in items)
    current = next(i["id"] for i in items if i["current"])
    mine = phone.get("/api/v1/me/sessions").get_json()["items"]
    phones = next(i["id"] for i in mine if i["current"])
    assert here.delete(f"/api/v1/me/sessions/{phones}", headers=csrf(here)).status_code == 204
    assert [alive(c) for c in (here, phone, lost)] == [True, False, True]
    assert here.delete("/api/v1/me/sessions", headers=csrf(here)).status_code == 204
    assert [alive(c) for c in (here, phone, lost)] == [True, False, False]
    w.bad(404, "DELETE", f"/me/sessions/{current}", who="noor")  # somebody else's
    w.good("DELETE", "/me/sessions", who="maya")  # with a key: all
    assert not alive(here)


def test_a_new_password_ends_the_others_and_keeps_this_one(w: World) -> None:
    with_password(w)
    here, other = browser(w), browser(w)
    answer = here.patch(
        f"/api/v1/users/{w.ids['maya']}",
        json={"password": "another horse", "current_password": PASSWORD},
        headers=csrf(here),
    )
    assert answer.status_code == 200, answer.text
    assert [alive(c) for c in (here, other)] == [True, False]


def test_a_password_by_an_administrator_must_be_changed_first(w: World) -> None:
    with_password(w)
    before = browser(w)
    w.good("PATCH", "/users/maya", {"password": "set by root"})
    assert not alive(before)
    client = browser(w, password="set by root")
    assert client.get("/").headers["Location"] == "/password"
    assert client.get("/api/v1/me").get_json()["must_change_password"]
    refused = client.post("/api/v1/keys", json={"name": "x"}, headers=csrf(client))
    assert refused.status_code == 403
    assert refused.get_json()["error"]["code"] == "password_change_needed"
    w.get("/me", "maya")  # keys go on
    page = client.get("/password")
    assert "An administrator has set a password" in page.text
    for present, new, again, says in (
        ("wrong", "my own horse", "my own horse", "not your present password"),
        ("set by root", "my own horse", "my other horse", "differ"),
        ("set by root", "set by root", "set by root", "choose another"),
        ("set by root", "short", "short", "8 to 1000"),
    ):
        form = {"csrf_token": token(page.text), "present": present, "new": new, "again": again}
        wrong = client.post("/password", data=form)
        assert wrong.status_code == 422
        assert says in wrong.text
    form = {"csrf_token": token(page.text), "present": "set by root", "new": "my own horse", "again": "my own horse"}
    assert client.post("/password", data=form).headers["Location"] == "/"
    assert client.get("/").status_code == 200
    browser(w, password="my own horse")
    w.bad(422, "PATCH", "/users/maya", {"password_temporary": True})
    w.good("PATCH", "/users/maya", {"password": "for a robot", "password_temporary": False})
    assert alive(browser(w, password="for a robot"))
    w.good("POST", "/users", {"name": "new", "password": "first of all", "password_temporary": True})
    assert browser(w, "new", "first of all").get("/").headers["Location"] == "/password"


def test_log_ins_that_were_refused_are_written_down_without_what_was_typed(w: World) -> None:
    with_password(w)
    client = w.app.test_client()
    for name, password in (("maya", "wrong password"), ("my secret password", "x")):
        form = {"csrf_token": token(client.get("/login").text), "name": name, "password": password}
        assert client.post("/login", data=form).status_code == 401
    with w.store.read() as session:
        rows = list(session.scalars(select(Audit).where(Audit.action == "session.refused").order_by(Audit.id)))
        assert [(r.actor_id, r.subject, r.after) for r in rows] == [
            (None, w.ids["maya"], {"way": "password", "address": "127.0.0.1"}),
            (None, "", {"way": "password", "address": "127.0.0.1"}),
        ]
        assert "secret" not in str([(r.before, r.after, r.reason) for r in rows])


def test_disabling_is_shown_before_and_ends_everything_at_once(w: World) -> None:
    with_password(w)
    client = browser(w)
    feed = w.good("POST", "/feeds", {}, "maya")["url"]
    running, coming = w.book(0, HOUR), w.book(2 * HOUR, 3 * HOUR)
    past = w.book(4 * HOUR, 5 * HOUR)
    w.good("POST", f"/reservations/{past['id']}/cancel", {}, "maya")
    w.now += MIN
    would = w.get("/users/maya/disable-preview")
    assert would == {**w.good("PATCH", "/users/maya?preview=1", {"disabled": True})}
    assert (would["keys"], would["sessions"], would["feeds"]) == (1, 1, 1)
    assert [b["id"] for b in would["ends"]] == [running["id"]]
    assert [b["id"] for b in would["cancels"]] == [coming["id"]]
    assert alive(client)
    w.bad(403, "GET", "/users/maya/disable-preview", who="ada")
    w.bad(404, "GET", "/users/nobody/disable-preview")
    w.good("PATCH", "/users/maya", {"disabled": True, "reason": "left the lab"})
    assert not alive(client)
    assert w.client.get(feed).status_code == 404
    w.bad(401, "GET", "/me", who="maya")
    statuses = {i: w.get(f"/reservations/{i}")["status"] for i in (running["id"], coming["id"], past["id"])}
    assert statuses == {running["id"]: "ended_early", coming["id"]: "cancelled", past["id"]: "cancelled"}
    assert w.woken.count("keys") >= 1
    w.good("PATCH", "/users/maya", {"disabled": False})
    assert w.get("/me", "maya")["name"] == "maya"
    assert w.client.get(feed).status_code == 200
    assert not alive(client)  # a session that has ended stays so
    w.good("PATCH", "/users/maya", {"name": "maya chen"})
    assert w.get(f"/reservations/{running['id']}")["holder"] == "maya chen"


def test_a_log_in_ends_the_session_that_the_browser_had(w: World) -> None:
    with_password(w)
    client = browser(w)
    old = client.get_cookie("slotserve").value
    client.post("/logout", data={"csrf_token": token(client.get("/password").text)})
    page = client.get("/login").text
    client.post("/login", data={"csrf_token": token(page), "name": "maya", "password": PASSWORD})
    assert client.get_cookie("slotserve").value != old
    with w.store.read() as session:
        open_ones = select(func.count()).select_from(WebSession).where(WebSession.ended_at.is_(None))
        assert session.scalar(open_ones) == 1

"""What people and scripts get wrong, and what goes away under a booking: clear answers, and the history stays."""

from __future__ import annotations

import pytest

from controller.store.tables import Channel, Node, Preset, User
from controller.times import text_of
from tests.controller.api.conftest import HOUR, World
from tests.parts import BOTH

DATABASES = BOTH
HTML = '<img src=x onerror="alert(1)">'


@pytest.mark.parametrize("name", ["a\r\nBcc: b@example.org", "a\nb", "a\u2028b", "\x1b[31mred", " "])
def test_names_have_one_line(w: World, name: str) -> None:
    preset = {"model": "small", "engine": "llama.cpp"}
    target = {"way": "webhook", "url": "https://hooks.company.example/"}
    for path, more in (
        ("/users", {}),
        ("/keys", {}),
        ("/nodes", {}),
        ("/presets", preset),
        ("/notification-targets", target),
    ):
        assert "name" in w.bad(422, "POST", path, {"name": name, **more})["error"]["details"], path
    assert "name" in w.bad(422, "PATCH", "/users/tom", {"name": name})["error"]["details"]
    said = w.bad(422, "POST", "/reservations", w.wish(0, HOUR, participants=[name]), "maya")
    assert said["problems"][0]["field"] == "participants.0"


def test_html_is_text(w: World) -> None:
    w.good("POST", "/users", {"name": HTML})
    made = w.book(0, HOUR, note=HTML, participants=[HTML], holder="maya")
    assert (made["note"], made["participant_names"]) == (HTML, [HTML])
    answer = w.call("GET", f"/reservations/{made['id']}", who="maya")
    assert answer.mimetype == "application/json"


def test_a_note_of_ten_thousand_characters(w: World) -> None:
    said = w.bad(422, "POST", "/reservations", w.wish(0, HOUR, note="x" * 10_000), "maya")
    assert "4000" in said["error"]["details"]["note"]
    made = w.book(0, HOUR, note="x" * 4000)
    w.bad(422, "PATCH", f"/reservations/{made['id']}", {"version": 1, "note": "x" * 10_000}, "maya")


@pytest.mark.parametrize("time", ["2027-01-15T10:00:00", "0500-01-15T10:00:00Z", "2027-01-15", "10:00", "", 5, [], {}])
def test_times_that_are_none_everywhere(w: World, time) -> None:
    made = w.book(2 * HOUR, 3 * HOUR)
    path = f"/reservations/{made['id']}"
    for method, where, body, field in (
        ("POST", "/reservations", {**w.wish(0, HOUR), "ends_at": time}, "ends_at"),
        ("POST", "/reservations", {**w.wish(0, HOUR), "starts_at": time}, "starts_at"),
        ("PATCH", path, {"version": 1, "starts_at": time}, "starts_at"),
        ("PATCH", path, {"version": 1, "ends_at": time}, "ends_at"),
        ("POST", f"{path}/extend", {"ends_at": time}, "ends_at"),
    ):
        assert field in w.bad(422, method, where, body, "maya")["error"]["details"]
    assert w.get(path)["version"] == 1


def test_windows_that_are_none(w: World) -> None:
    for start, end in ((HOUR, HOUR), (2 * HOUR, HOUR)):
        for path in ("/reservations", "/reservations/check"):
            answer = w.call("POST", path, w.wish(start, end), "maya").get_json()
            assert [p["code"] for p in answer["problems"]] == ["bad_window"], path
    made = w.book(HOUR, 2 * HOUR)
    said = w.bad(422, "PATCH", f"/reservations/{made['id']}", {"version": 1, "ends_at": made["starts_at"]}, "maya")
    assert said["problems"][0]["code"] == "bad_window"


def test_a_channel_that_is_gone(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    asked, coming = w.book(HOUR, 2 * HOUR), w.good("POST", "/reservations", w.wish(3 * HOUR, 4 * HOUR))
    with w.store.write() as session:
        session.get(Channel, "a").gone_at = w.now
    assert (
        w.bad(422, "POST", "/reservations", w.wish(5 * HOUR, 6 * HOUR), "maya")["problems"][0]["code"] == "channel_gone"
    )
    said = w.bad(422, "POST", f"/reservations/{asked['id']}/approve", {}, "ada")
    assert [p["code"] for p in said["problems"]] == ["channel_gone"]
    w.bad(422, "POST", f"/reservations/{coming['id']}/extend", {"minutes": 5})
    assert w.get(f"/reservations/{coming['id']}")["flags"] == ["channel_gone"]
    moved = w.good("PATCH", f"/reservations/{coming['id']}", {"version": 1, "channel": "n1/b"})
    assert (moved["channel"], moved["flags"]) == ("n1/b", [])
    assert w.good("POST", f"/reservations/{asked['id']}/cancel", who="maya")["status"] == "cancelled"
    with w.store.write() as session:
        session.get(Node, "n").removed_at = w.now
    assert [r["channel"] for r in w.get("/reservations")["items"]] == ["n1/a", "n1/b"], "the history is kept"
    assert "n1/a" in w.bad(422, "POST", "/reservations", w.wish(5 * HOUR, 6 * HOUR), "maya")["error"]["message"]
    assert w.good("POST", f"/reservations/{coming['id']}/cancel")["status"] == "cancelled"


def test_a_preset_that_is_gone(w: World) -> None:
    w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp"}, "maya")
    mine = w.book(HOUR, 2 * HOUR, preset="p")
    with w.store.write() as session:
        session.query(Preset).update({"deleted_at": w.now})
    path = f"/reservations/{mine['id']}"
    said = w.bad(422, "POST", f"{path}/extend", {"minutes": 5}, "maya")
    assert [p["code"] for p in said["problems"]] == ["unknown_preset"]
    shorter = w.good("PATCH", path, {"version": 1, "ends_at": text_of(w.now + 90 * 60_000)}, "maya")
    assert (shorter["preset"], shorter["load_seconds"]) == ("p", None), "shortening is always allowed"
    assert w.good("PATCH", path, {"version": 2, "preset": None}, "maya")["preset"] is None


def test_a_requester_who_is_gone(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    asked = w.book(HOUR, 2 * HOUR, participants=["tom"])
    with w.store.write() as session:  # as if the account had been disabled without letting go of its bookings
        session.get(User, w.ids["maya"]).disabled_at = w.now
    said = w.bad(422, "POST", f"/reservations/{asked['id']}/approve", {}, "ada")
    assert [p["code"] for p in said["problems"]] == ["holder_disabled"]
    shown = w.get(f"/reservations/{asked['id']}", "ada")
    assert (shown["holder"], shown["request"]["requester"]["disabled"]) == ("maya", True)
    w.bad(401, "GET", "/reservations", who="maya")
    assert w.good("POST", f"/reservations/{asked['id']}/reject", {"reason": "gone"}, "ada")["status"] == "rejected"


def test_deciding_what_is_over_or_decided(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    asked = w.book(0, HOUR)
    path = f"/reservations/{asked['id']}"
    assert w.bad(404, "POST", "/reservations/nothing/approve", {}, "ada")["error"]["code"] == "not_found"
    w.now += HOUR
    for act, body in (("approve", {}), ("reject", {"reason": "x"})):
        assert "expired" in w.bad(409, "POST", f"{path}/{act}", body, "ada")["error"]["message"]
    assert "expired" in w.bad(409, "POST", f"{path}/cancel", {}, "maya")["error"]["message"]
    assert w.get(path)["status"] == "expired"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "a\r\nBcc: b@example.org"), ("email", "nobody"), ("email", "@example.org"), ("email", "a@"),
        ("email", "Ann <a@example.org>"), ("email", "a@example.org, b@example.org"), ("zone", "Mars/Base"),
        ("zone", "../../etc/passwd"), ("zone", "x" * 64), ("locale", "xx"), ("locale", "../en"),
    ],
)  # fmt: skip
def test_an_account_holds_nothing_that_is_none(w: World, field: str, value: str) -> None:
    assert field in w.bad(422, "PATCH", "/users/tom", {field: value})["error"]["details"]
    if field == "email":
        assert field in w.bad(422, "POST", "/users", {"name": "new", "email": value})["error"]["details"]
    assert w.good("PATCH", "/users/tom", {field: ""})[field] is None
    right = {"email": "tom+slots@example.org", "zone": "Asia/Shanghai", "locale": "zh_Hans"}[field]
    assert w.good("PATCH", "/users/tom", {field: right})[field] == right


def test_windows_of_lists(w: World) -> None:
    """`+` in a query is a space to form decoding; both are read as the offset that was meant."""
    made = w.book(HOUR, 2 * HOUR)
    for plus in ("+", "%2B", "%20"):
        found = w.get(f"/reservations?from=2027-01-15T17:00:00{plus}08:00&to=2027-01-15T18:00:00{plus}08:00")["items"]
        assert [r["id"] for r in found] == [made["id"]], plus
    for path in ("/reservations", "/usage", "/audit", "/channels/n1/a/history"):
        for time in ("2027-01-15T10:00:00", "0500-01-15T10:00:00Z", "tomorrow", "1768464000"):
            assert "from" in w.bad(422, "GET", f"{path}?from={time}")["error"]["details"], path
        if path != "/audit":
            said = w.bad(422, "GET", f"{path}?from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:00Z")
            assert "to" in said["error"]["details"], path


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../UTC", "Europe/Berlin\n"])
def test_zones_that_are_none(w: World, zone: str) -> None:
    repeat = {"every": "day", "count": 2, "zone": zone}
    assert (
        "repeat.zone" in w.bad(422, "POST", "/reservations", w.wish(0, HOUR, repeat=repeat), "maya")["error"]["details"]
    )
    if zone:
        answer = w.call("GET", "/usage/summary", query_string={"zone": zone})
        assert answer.status_code == 422
        assert "zone" in answer.get_json()["error"]["details"]


def test_more_than_fits_into_an_object_or_a_list(w: World) -> None:
    """pydantic does not count an object's members: the sentence does without the number."""
    many = {f"kind{n}": [] for n in range(101)}
    said = w.bad(422, "PATCH", "/me/notifications", {"kinds": many}, "maya")["error"]
    assert said["details"] == {"kinds": "may have 100 items at most"}
    said = w.bad(422, "POST", "/reservations", w.wish(0, HOUR, participants=["noor"] * 1000), "maya")["error"]
    assert "at most" in said["details"]["participants"]

"""Maintenance of a node: what it touches is shown before, what runs finishes, holders are told, and it ends by itself."""

from __future__ import annotations

import pytest

from controller.booking import free
from controller.store.session import Write
from controller.times import text_of
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.controller.api.test_moving import channels_of, lost
from tests.controller.notify.conftest import rounds, told
from tests.parts import BOTH

DATABASES = BOTH
__all__ = ["lost"]


def test_from_the_preview_to_its_end(lost: World) -> None:
    w = lost
    running, soon, later = w.book(0, 2 * HOUR), w.book(3 * HOUR, 4 * HOUR, "noor"), w.book(9 * HOUR, 10 * HOUR, "tom")
    until = w.now + 8 * HOUR
    said = w.get(f"/nodes/n1/drain-preview?until={text_of(until)}")
    assert [b["id"] for b in said["running"]] == [running["id"]]
    assert said["idle_at"] == running["ends_at"]
    assert [b["id"] for b in said["touched"]] == [soon["id"]]
    assert channels_of(said["touched"][0]["offers"]) == ["n2/c", "n3/d"]
    assert told(w) == []  # it writes nothing
    node = w.good("PATCH", "/nodes/n1", {"drain_until": text_of(until), "reason": "a new driver"})
    assert (node["cordoned"], node["drain_until"], node["cordon_reason"]) == (True, text_of(until), "a new driver")
    assert told(w) == [("noor", "maintenance")]
    notice = w.get("/notifications", "noor")["items"][0]
    assert notice["title"] == "Maintenance of node n1, where your booking starts at 2027-01-15T11:00:00Z"
    assert "until 2027-01-15T16:00:00Z" in notice["text"]
    assert "a new driver" in notice["text"]
    assert "n2/c" in notice["text"]
    flagged = w.get(f"/reservations/{soon['id']}", "noor")
    assert (flagged["flags"], flagged["status"], flagged["channel"]) == (["node_drained"], "approved", "n1/a")
    assert flagged["problem"] == "maintenance of node n1 until 2027-01-15T16:00:00Z: a new driver"
    assert channels_of(flagged["offers"]) == ["n2/c", "n3/d"]
    for untouched in (running, later):
        assert w.get(f"/reservations/{untouched['id']}")["problem"] is None

    # No booking begins before the end; from the end on they do, and /slots knows.
    refused = w.bad(422, "POST", "/reservations", w.wish(5 * HOUR, 6 * HOUR), "tom")
    assert refused["problems"][0]["code"] == "node_cordoned"
    windows = w.get(f"/slots?model=only-b&minutes=60&after={text_of(w.now)}")["items"]
    assert [s["starts_at"] for s in windows] == [text_of(until)]
    assert w.book(8 * HOUR, 9 * HOUR, "tom")["status"] == "approved"
    # What runs may go on, and its holder may end it.
    assert w.get(f"/reservations/{running['id']}")["running"]

    going = rounds(w)
    going.step()  # the rounds see what the drain has flagged, and leave it
    assert w.get(f"/reservations/{soon['id']}", "noor")["flags"] == ["node_drained"]
    w.good("POST", f"/reservations/{soon['id']}/move", {"channel": "n2/c"}, "noor")
    assert w.get(f"/reservations/{soon['id']}", "noor")["problem"] is None
    w.now = until - 1
    going.step()
    assert w.get("/nodes/n1")["cordoned"]
    w.now = until
    going.step()
    node = w.get("/nodes/n1")
    assert (node["cordoned"], node["drain_until"], node["cordon_reason"]) == (False, None, None)
    assert w.get("/audit?action=node.uncordon")["items"][0]["reason"] == "the time of its maintenance is over"
    assert w.book(2 * HOUR, 3 * HOUR, "tom")["status"] == "approved"


def test_lifted_before_its_end(lost: World) -> None:
    w = lost
    soon = w.book(30 * HOUR, 31 * HOUR)
    w.good("PATCH", "/nodes/n1", {"drain_until": text_of(w.now + 2 * DAY)})
    assert w.get(f"/reservations/{soon['id']}", "maya")["flags"] == ["node_drained"]
    w.now += MIN
    w.good("PATCH", "/nodes/n1", {"drain_until": text_of(w.now + HOUR)})  # shorter than it was said
    assert w.get(f"/reservations/{soon['id']}", "maya")["flags"] == []
    w.good("PATCH", "/nodes/n1", {"drain_until": text_of(w.now + 2 * DAY)})
    assert told(w) == [("maya", "maintenance")] * 2
    w.good("PATCH", "/nodes/n1", {"cordoned": False})
    assert told(w) == [("maya", "maintenance")] * 3
    assert w.get("/notifications", "maya")["items"][0]["title"].startswith("Node n1 takes bookings again: small")
    assert w.get(f"/reservations/{soon['id']}", "maya")["problem"] is None


def test_bad_wishes_name_the_field(w: World) -> None:
    past, later = text_of(w.now - 1), text_of(w.now + HOUR)
    for body in ({"drain_until": past}, {"drain_until": later, "cordoned": False}, {"drain_until": "tomorrow"}):
        assert "drain_until" in w.bad(422, "PATCH", "/nodes/n1", body)["error"]["details"]
    assert "until" in w.bad(422, "GET", f"/nodes/n1/drain-preview?until={past}")["error"]["details"]
    assert "until" in w.bad(422, "GET", "/nodes/n1/drain-preview")["error"]["details"]
    w.bad(404, "GET", f"/nodes/nowhere/drain-preview?until={later}")
    assert w.get("/nodes/n1")["cordoned"] is False
    assert w.good("PATCH", "/nodes/n1", {"cordoned": True, "reason": "dust"})["cordon_reason"] == "dust"


def test_offers_are_looked_for_before_anything_is_written(lost: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a big fleet that takes seconds, and nobody else writes while a transaction lasts."""
    w = lost
    w.book(HOUR, 2 * HOUR)
    sessions, real = [], free.ranked
    monkeypatch.setattr(
        free, "ranked", lambda session, *args, **more: sessions.append(session) or real(session, *args, **more)
    )
    w.good("PATCH", "/nodes/n1", {"drain_until": text_of(w.now + DAY)})
    assert sessions
    assert not [s for s in sessions if isinstance(s, Write)]
    assert "n2/c" in w.get("/notifications", "maya")["items"][0]["text"]

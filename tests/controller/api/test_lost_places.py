"""A channel that is no longer declared, a node that was removed: bookings are kept and flagged, holders told once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from controller.fleet.records import Records
from controller.store.tables import Notification
from protos import fleet_pb2, types_pb2
from tests.controller.api.conftest import HOUR, World
from tests.parts import BOTH

DATABASES = BOTH


def hello(w: World, *channels: str) -> None:
    declared = [types_pb2.DeclaredChannel(name=c, engines=["llama.cpp"]) for c in channels]
    Records(w.store, lambda: w.now).hello("n1", "1", fleet_pb2.Hello(node="n1", contract=1, channels=declared))


def told(w: World, kind: str = "channel_gone") -> list[tuple[str, str]]:
    with w.store.read() as session:
        rows = session.scalars(select(Notification).where(Notification.kind == kind).order_by(Notification.id))
        return sorted((r.user_id, r.subject) for r in rows)


def test_no_longer_declared(w: World) -> None:
    running, future = w.book(0, HOUR), w.book(2 * HOUR, 3 * HOUR, "noor")
    elsewhere = w.book(0, HOUR, "tom", "n1/b")
    over = w.book(4 * HOUR, 5 * HOUR)
    w.good("POST", f"/reservations/{over['id']}/cancel", who="maya")
    hello(w, "a", "b")
    assert told(w) == []
    w.now += 1
    for _ in range(3):  # every connection says the same
        hello(w, "b")
    expected = sorted([(w.ids["maya"], running["id"]), (w.ids["noor"], future["id"])])
    assert told(w) == expected
    notice = w.get("/notifications", "noor")["items"][0]
    assert "n1/a" in notice["text"]
    assert "no longer declared" in notice["text"]
    channel = w.get("/channels/n1/a", "noor")
    assert (channel["phase"], channel["target"], channel["next"]["flags"]) == ("gone", None, ["channel_gone"])
    for made, flags in ((running, ["channel_gone"]), (future, ["channel_gone"]), (elsewhere, []), (over, [])):
        assert w.get(f"/reservations/{made['id']}")["flags"] == flags
    assert w.get(f"/reservations/{future['id']}", "noor")["hints"][0]["code"] == "channel_gone"
    said = w.bad(422, "POST", "/reservations", w.wish(6 * HOUR, 7 * HOUR), "tom")
    assert said["problems"][0]["code"] == "channel_gone"
    assert w.get("/slots?kind=exclusive&minutes=30")["items"][0]["channel"] == "n1/b"
    w.now += 1
    hello(w, "a", "b")
    assert w.get(f"/reservations/{future['id']}")["flags"] == []
    assert w.get("/channels/n1/a")["phase"] == "unknown"
    w.now += 1
    hello(w, "b")
    assert len(told(w)) == 4  # a new loss
    moved = w.good("PATCH", f"/reservations/{future['id']}", {"version": 1, "channel": "n1/b"}, "noor")
    assert (moved["channel"], moved["flags"]) == ("n1/b", [])


def test_a_removed_node(w: World) -> None:
    made: dict[str, Any] = w.book(2 * HOUR, 3 * HOUR)
    w.good("DELETE", "/nodes/n1")
    assert told(w) == [(w.ids["maya"], made["id"])]
    said = w.get(f"/reservations/{made['id']}", "maya")
    assert (said["channel"], said["flags"]) == ("n1/a", ["node_removed"])
    assert ([h["code"] for h in said["hints"]], said["ready_at"]) == (["channel_gone"], None)
    w.bad(404, "GET", "/channels/n1/a")
    extended = w.bad(422, "POST", f"/reservations/{made['id']}/extend", {"minutes": 30}, "maya")
    assert [p["code"] for p in extended["problems"]] == ["channel_gone"]
    assert w.good("PATCH", f"/reservations/{made['id']}", {"version": 1, "note": "ask for another"}, "maya")["note"]
    assert w.good("POST", f"/reservations/{made['id']}/cancel", who="maya")["status"] == "cancelled"
    assert w.get(f"/reservations/{made['id']}")["flags"] == []

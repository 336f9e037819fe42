"""A booking whose place is lost: flagged, with other channels that fit, and moved there only when somebody says so."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from controller.store.tables import Audit, Channel, Node, NodeModel, Notification
from tests.controller.api.conftest import HOUR, MIN, World
from tests.controller.notify.conftest import rounds
from tests.parts import BOTH

DATABASES = BOTH


@pytest.fixture
def lost(w: World) -> World:
    """n1 is away for longer than it takes to say so; n2/c and n3/d have the model as well."""
    for node, channel in (("n2", "c"), ("n3", "d")):
        with w.store.write() as session:
            session.add(Node(id=node, name=node, created_at=0, certificate_serial="1"))
            session.flush()
            session.add(Channel(id=channel, node_id=node, name=channel, created_at=0, engines=["llama.cpp"]))
            session.add(
                NodeModel(
                    node_id=node, name="small", path="/m", size_bytes=1, format="gguf", channels=[channel], seen_at=0
                )
            )
        w.ctx.live.update(node, online=True)
    with w.store.write() as session:
        for row in session.scalars(select(Node)):
            row.last_seen_at = w.now
    return w


def lose(w: World) -> None:
    going = rounds(w)
    going.step()
    w.ctx.live.update("n1", online=False, since=w.now)
    w.now += MIN
    going.step()


def audit(w: World, booking: str) -> list[tuple[str, str]]:
    with w.store.read() as session:
        rows = session.scalars(select(Audit).where(Audit.subject == booking).order_by(Audit.id))
        return [(r.action, r.reason) for r in rows]


def channels_of(offers: list[dict[str, Any]]) -> list[str]:
    return [o["channel"] for o in offers]


def test_one_to_come_keeps_its_id(lost: World) -> None:
    w = lost
    soon, fine = w.book(HOUR, 2 * HOUR), w.book(HOUR, 2 * HOUR, "noor", "n3/d")
    assert (soon["problem"], soon["flags"]) == (None, [])
    lose(w)
    said = w.get(f"/reservations/{soon['id']}", "maya")
    assert (said["problem"], said["flags"]) == ("no contact with node n1", ["node_away"])
    assert channels_of(said["offers"]) == ["n2/c"]  # n3/d is booked, n1/b is as lost as n1/a
    assert said["channel"] == "n1/a"  # nothing is moved silently
    assert w.get(f"/reservations/{soon['id']}", "noor")["offers"] == []  # who may not move it
    assert w.get(f"/reservations/{fine['id']}", "noor")["problem"] is None
    w.bad(403, "POST", f"/reservations/{soon['id']}/move", {}, "noor")
    moved = w.good("POST", f"/reservations/{soon['id']}/move", {}, "maya")
    assert (moved["id"], moved["channel"], moved["moved_from"], moved["holder"]) == (soon["id"], "n2/c", None, "maya")
    assert (moved["starts_at"], moved["ends_at"], moved["version"]) == (soon["starts_at"], soon["ends_at"], 2)
    rounds(w).step()
    said = w.get(f"/reservations/{soon['id']}", "maya")
    assert (said["problem"], said["offers"]) == (None, [])
    assert [a for a, _ in audit(w, soon["id"])] == ["reservation.create", "reservation.edit"]


def test_what_is_left_of_a_running_one_begins_elsewhere(lost: World) -> None:
    w = lost
    w.good("PATCH", "/channels/n2/c", {"policy": {"min_minutes": 90}})  # what is left is as short as it is
    running = w.book(0, HOUR, note="Evaluation", participants=["noor"])
    lose(w)
    said = w.get(f"/reservations/{running['id']}", "maya")
    assert said["running"]
    assert channels_of(said["offers"]) == ["n2/c", "n3/d"]
    moved = w.good("POST", f"/reservations/{running['id']}/move", {"channel": "n2/c", "version": 1}, "maya")
    assert moved["moved_from"] == running["id"] != moved["id"]
    assert (moved["channel"], moved["running"], moved["ends_at"]) == ("n2/c", True, running["ends_at"])
    assert (moved["note"], moved["participant_names"], moved["holder"]) == ("Evaluation", ["noor"], "maya")
    old = w.get(f"/reservations/{running['id']}", "maya")
    assert (old["status"], old["reason"], old["channel"]) == ("ended_early", "moved to n2/c", "n1/a")
    assert audit(w, running["id"])[-1] == ("reservation.ended_early", "moved to n2/c")
    assert audit(w, moved["id"]) == [("reservation.create", "moved from n1/a")]
    w.bad(409, "POST", f"/reservations/{running['id']}/move", {"channel": "n3/d"}, "maya")


def test_an_administrator_says_why_and_the_holder_is_told(lost: World) -> None:
    w = lost
    running = w.book(0, HOUR)
    lose(w)
    w.bad(422, "POST", f"/reservations/{running['id']}/move", {})
    moved = w.good("POST", f"/reservations/{running['id']}/move", {"reason": "the power is gone"})
    with w.store.read() as session:
        query = select(Notification).where(Notification.subject == moved["id"], Notification.kind == "changed")
        told = session.scalars(query).one()
    assert told.user_id == w.ids["maya"]
    assert (told.facts["before"]["channel"], told.facts["channel"]) == ("n1/a", "n2/c")
    assert told.facts["reason"] == "the power is gone"


def test_refusals_are_in_words_and_change_nothing(lost: World) -> None:
    w = lost
    soon, running = w.book(HOUR, 2 * HOUR), w.book(0, HOUR)
    w.book(0, 2 * HOUR, "noor", "n2/c")
    w.good("PATCH", "/channels/n3/d", {"policy": {"approval": "always"}})
    lose(w)
    path = f"/reservations/{running['id']}/move"
    assert w.get(f"/reservations/{running['id']}", "maya")["offers"] == []
    assert "no other channel that fits" in w.bad(409, "POST", path, {}, "maya")["error"]["message"]
    said = w.bad(409, "POST", path, {"channel": "n2/c"}, "maya")
    assert [c["channel"] for c in said["conflicts"]] == ["n2/c"]
    assert "cannot wait for approval" in w.bad(422, "POST", path, {"channel": "n3/d"}, "maya")["error"]["message"]
    assert "already" in w.bad(422, "POST", path, {"channel": "n1/a"}, "maya")["error"]["message"]
    w.bad(422, "POST", path, {"channel": "n9/x"}, "maya")
    w.bad(409, "POST", path, {"channel": "n2/c", "version": 7}, "maya")
    assert w.get(f"/reservations/{running['id']}", "maya")["running"]
    # One that is still to come can wait: offered as such, and it does.
    offers = w.get(f"/reservations/{soon['id']}", "maya")["offers"]
    assert [(o["channel"], o["needs_approval"]) for o in offers] == [("n3/d", True)]
    assert w.good("POST", f"/reservations/{soon['id']}/move", {"channel": "n3/d"}, "maya")["status"] == "pending"

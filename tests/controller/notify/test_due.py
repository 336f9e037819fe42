"""What comes due by the clock and by what nodes say: told once, in time, and not when it has become pointless."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from controller.fleet.live import LiveChannel, LiveGpu, LiveGpuProcess
from controller.notify.rounds import Rounds
from controller.store.tables import Node, Notification, Reservation
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.controller.notify.conftest import Make, Sink, mailing, outside, rounds, sender, told
from tests.parts import BOTH

DATABASES = BOTH


def says(w: World, channel: str = "a", **more: Any) -> None:
    known = dict(w.ctx.live.node("n1").channels)
    w.ctx.live.update("n1", online=True, channels={**known, channel: LiveChannel(**{"phase": "ready", **more})})


def on_the_card(w: World, *pids: int) -> None:
    """Other people's processes on channel b's GPU."""
    processes = tuple(LiveGpuProcess(pid, "tomas", "python train.py", 12_300_000_000, None) for pid in pids)
    ours = LiveGpuProcess(1, "slotserve", "llama-server", 1, "b")
    w.ctx.live.update("n1", online=True, gpus=(LiveGpu(0, "GPU-1", "H", 80, 1, 1, processes=(*processes, ours)),))


def at(w: World, now: int, going: Rounds | None = None) -> list[tuple[str, str]]:
    """What a round at `now` tells, by a fresh controller unless one is given: nothing is remembered but the database."""
    w.now = now
    before = told(w)
    (going or rounds(w)).step()
    (going or rounds(w)).step()
    return told(w)[len(before) :]


def facts(w: World, kind: str, who: str) -> dict[str, Any]:
    with w.store.read() as session:
        query = select(Notification).where(Notification.kind == kind, Notification.user_id == w.ids[who])
        return session.scalars(query.order_by(Notification.id.desc())).first().facts  # type: ignore[union-attr]


def test_starts_soon_once_and_again_when_it_is_moved(making: Make) -> None:
    w = making()
    start = w.now + 2 * HOUR
    made = w.book(2 * HOUR, 3 * HOUR)
    assert at(w, start - 15 * MIN - 1) == []
    assert at(w, start - 15 * MIN) == [("maya", "starts_soon")]
    assert at(w, start - MIN) == []
    text = w.get("/notifications", "maya")["items"][0]["text"]
    assert text.startswith("Starts at 2027-01-15T10:00:00Z: small on n1/a.")
    later = {"version": made["version"], "starts_at": "2027-01-15T10:30:00Z"}
    w.good("PATCH", f"/reservations/{made['id']}", later, "maya")
    assert at(w, start + 15 * MIN) == [("maya", "starts_soon")]


def test_a_controller_that_was_down_over_the_instant_tells_what_still_matters(making: Make) -> None:
    w = making()
    w.book(2 * HOUR, 3 * HOUR)
    w.book(4 * HOUR, 5 * HOUR, "noor")
    assert at(w, w.now + 2 * HOUR + MIN) == []  # it has begun: late is pointless
    assert at(w, w.now + 2 * HOUR - 5 * MIN) == [("noor", "starts_soon")]  # ten minutes late still matters


def test_who_books_for_soon_need_not_be_told_that_it_starts_soon(making: Make) -> None:
    w = making()
    w.book(10 * MIN, HOUR)
    assert at(w, w.now + 5 * MIN) == []
    w2 = w.book(2 * HOUR, 3 * HOUR, "noor")
    w.good("POST", f"/reservations/{w2['id']}/cancel", {}, "noor")
    assert at(w, w.now + 2 * HOUR - 10 * MIN) == []


def test_ends_soon_says_what_comes_after(making: Make) -> None:
    w = making()
    first, again = w.now, [("maya", "ends_soon")]
    for hour, more in ((0, {"free_after": True}), (2, {"next_follows": True}), (5, {"next_at": first + 8 * HOUR})):
        w.book(first - w.now + hour * HOUR, first - w.now + (hour + 1) * HOUR)
        if hour == 2:
            w.book(first - w.now + 3 * HOUR, first - w.now + 4 * HOUR, "noor")
        if hour == 5:
            w.book(first - w.now + 8 * HOUR, first - w.now + 9 * HOUR, "noor")
        if hour == 0:
            more = {"next_at": None, "free_after": True}
        end = first + (hour + 1) * HOUR
        assert [t for t in at(w, end - 10 * MIN) if t[1] == "ends_soon"] == again
        assert more.items() <= {"next_at": None, **facts(w, "ends_soon", "maya")}.items()
        assert [t for t in at(w, end - MIN) if t[1] == "ends_soon"] == []
    w.book(first - w.now + 12 * HOUR, first - w.now + 12 * HOUR + 15 * MIN)
    assert at(w, first + 12 * HOUR + 10 * MIN) == []  # a short one is told nothing of the kind


def test_ready_when_the_booked_model_answers_and_not_the_fallback(making: Make) -> None:
    w = making()
    made = w.book(0, HOUR)
    with w.store.write() as session:
        session.execute(update(Reservation).where(Reservation.id == made["id"]).values(pinned={"identity": "A"}))
    for other in ({"phase": "loading", "running": "A"}, {"running": "D", "fallback": True}, {"running": "B"}):
        says(w, **other)
        assert at(w, w.now + MIN) == [], other
    says(w, running="A")
    assert at(w, w.now + MIN) == [("maya", "ready")]
    assert facts(w, "ready", "maya")["base_url"] == "http://n1:8710/channels/a/v1"
    says(w, running="A", in_flight=3)
    assert at(w, w.now + MIN) == []


def test_a_bare_card_is_yours_and_must_be_left(making: Make) -> None:
    w = making()
    start = w.now
    mine = w.book(0, 2 * HOUR, "tom", "n1/b", kind="exclusive")
    w.book(2 * HOUR, 3 * HOUR, "noor", "n1/b")
    going = rounds(w)
    says(w, "b", phase="off")
    assert at(w, start + MIN, going) == [("tom", "ready")]
    said = w.get("/notifications", "tom")["items"][0]["text"]
    assert "export CUDA_VISIBLE_DEVICES=GPU-1" in said
    on_the_card(w, 4711, 4712)
    assert at(w, start + 2 * HOUR - 11 * MIN, going) == [("noor", "starts_soon")]
    assert sorted(at(w, start + 2 * HOUR - 10 * MIN, going)) == [("tom", "card_in_use"), ("tom", "ends_soon")]
    assert told(w, "card_in_use") == [("tom", "card_in_use")]
    assert "pid 4711" in w.get("/notifications?kind=card_in_use", "tom")["items"][0]["text"]
    on_the_card(w, 4712, 9999)  # one has ended; 9999 came with the next holder
    assert at(w, start + 2 * HOUR + 5_000, going) == []  # a status may be a few seconds old
    assert sorted(at(w, start + 2 * HOUR + 20_000, going)) == [
        ("noor", "card_in_use"), ("root", "card_in_use"), ("tom", "card_in_use"),
    ]  # fmt: skip
    notice = w.get("/notifications?kind=card_in_use", "noor")["items"][0]
    assert notice["title"] == "The card of your booking on n1/b is still in use by tom"
    assert "pid 4712" in notice["text"]
    assert "9999" not in notice["text"]
    assert notice["reservation_id"] != mine["id"]
    told_root = w.get("/notifications?kind=card_in_use")["items"][0]
    assert "tom's processes still hold" in told_root["title"]
    assert (
        "To end them, on the node: sudo kill 4712." in told_root["text"]
    )  # theirs to say; SlotServe ends nothing itself
    assert "sudo kill" not in notice["text"]
    assert at(w, start + 2 * HOUR + 5 * MIN) == []


def test_a_card_that_was_left_in_time_is_told_to_nobody(making: Make) -> None:
    w = making()
    made = w.book(0, 2 * HOUR, "tom", "n1/b", kind="exclusive")
    on_the_card(w)
    assert [t for t in at(w, w.now + 2 * HOUR - 5 * MIN) if t[1] == "card_in_use"] == []
    w.good("POST", f"/reservations/{made['id']}/end", {}, "tom")
    on_the_card(w, 77)
    assert sorted(at(w, w.now + 30_000)) == [("root", "card_in_use"), ("tom", "card_in_use")]
    w.book(0, HOUR, "noor", "n1/b", kind="exclusive")
    assert [t for t in at(w, w.now + 2 * HOUR + MIN) if t[1] == "card_in_use"] == []  # an hour later it is no news


def test_a_lost_node_is_told_with_ways_out_and_its_return_too(making: Make) -> None:
    w = making()
    second_node(w)
    running, soon, far = w.book(0, HOUR), w.book(90 * MIN, 2 * HOUR, "noor"), w.book(5 * HOUR, 6 * HOUR, "tom")
    going = rounds(w)
    going.step()
    w.ctx.live.update("n1", online=False, since=w.now)
    assert at(w, w.now + 59_000, going) == []
    assert sorted(at(w, w.now + 1_000, going)) == [("maya", "node_lost"), ("noor", "node_lost"), ("root", "node_lost")]
    assert facts(w, "node_lost", "maya")["others"][0]["channel"] == "n2/c"
    titles = {who: w.get("/notifications", who)["items"][0]["title"] for who in ("maya", "noor", "root")}
    assert titles == {
        "maya": "No contact with node n1, where your booking runs",
        "noor": "No contact with node n1, where your booking starts at 2027-01-15T09:30:00Z",
        "root": "No contact with node n1",
    }
    assert [w_problem(w, b["id"]) for b in (running, soon, far)] == ["no contact with node n1"] * 2 + [""]
    assert at(w, w.now + 5 * MIN, going) == []
    w.good("POST", f"/reservations/{soon['id']}/cancel", {}, "noor")
    w.ctx.live.update("n1", online=True, since=w.now)
    with w.store.write() as session:
        session.execute(update(Node).where(Node.id == "n").values(last_seen_at=w.now))
    assert sorted(at(w, w.now + 1_000, going)) == [("maya", "node_back"), ("root", "node_back")]
    assert w_problem(w, running["id"]) == ""
    assert at(w, w.now + MIN, going) == []
    w.ctx.live.update("n1", online=False, since=w.now)
    assert ("root", "node_lost") in at(w, w.now + MIN, going)  # another outage is another event


@pytest.mark.parametrize("seconds", [5, 60])
def test_after_a_restart_nodes_have_time_to_come_back(making: Make, seconds: float) -> None:
    w = making(notify_node_lost_seconds=seconds)
    with w.store.write() as session:
        session.execute(update(Node).values(last_seen_at=w.now - DAY))
    w.ctx.live.update("n1", online=False, since=0)
    going = rounds(w)
    assert at(w, w.now, going) == []
    assert at(w, w.now + 59_000, going) == []
    assert at(w, w.now + 1_000, going) == [("root", "node_lost")]
    again = rounds(w)  # the controller is started anew: told already
    assert at(w, w.now + MIN, again) == []
    assert at(w, w.now + 5 * MIN, again) == []


def test_one_that_came_back_and_is_lost_again_is_no_matter_of_the_restart(making: Make) -> None:
    w = making(notify_node_lost_seconds=5)
    with w.store.write() as session:
        session.execute(update(Node).values(last_seen_at=w.now))
    going = rounds(w)
    going.step()
    w.ctx.live.update("n1", online=True, since=w.now + 1_000)
    assert at(w, w.now + 10_000, going) == []
    w.ctx.live.update("n1", online=False, since=w.now)
    assert at(w, w.now + 4_000, going) == []
    assert at(w, w.now + 1_000, going) == [("root", "node_lost")]


def test_only_the_leader_looks(making: Make) -> None:
    w = making()
    w.book(2 * HOUR, 3 * HOUR)
    w.now += 2 * HOUR - 10 * MIN
    follower = Rounds(w.ctx, lambda: False)
    assert follower.step() == 0
    assert told(w) == []


def test_a_booking_that_is_cancelled_before_the_mail_is_sent_sends_none(making: Make, smtp: Sink) -> None:
    w = mailing(making, smtp)
    start = w.now + 2 * HOUR
    made = w.book(2 * HOUR, 3 * HOUR)
    w.book(2 * HOUR, 3 * HOUR, "noor", "n1/b")
    at(w, start - 10 * MIN)
    w.good("POST", f"/reservations/{made['id']}/cancel", {}, "maya")
    sender(w).step()
    assert [m["To"].addresses[0].username for m in smtp.mails] == ["noor"]
    assert sorted((m.state, m.error) for m in outside(w)) == [
        ("dropped", "the booking was cancelled or moved meanwhile"), ("sent", ""),
    ]  # fmt: skip
    w.now = start + MIN
    assert sender(w).step() == 0


def test_a_quiet_round_writes_nothing_and_asks_little(making: Make) -> None:
    from tests.booking_world import Statements

    w = making()
    for hour in range(0, 8, 2):
        w.book(hour * HOUR, (hour + 1) * HOUR)
    going = rounds(w)
    going.step()
    before = w.store.revision()
    with Statements(w.store) as sent:
        going.step()
    assert w.store.revision() == before
    assert len([s for s in sent.texts if s.startswith("SELECT")]) <= 7, sent.texts


@pytest.mark.parametrize("late", [False, True])
def test_a_request_that_nobody_decides_is_told_when_it_expires(making: Make, late: bool) -> None:
    from controller.fleet import planner_store
    from controller.fleet.planner_store import NodeWrite

    w = making()
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    made = w.book(HOUR, 2 * HOUR)
    end = w.now + 2 * HOUR
    for _ in range(2):
        planner_store.apply(w.store, [NodeWrite("n", None, [(made["id"], "pending", end)])])
    assert told(w, "expired") == [("maya", "expired")]
    assert told(w, "requested") == [("ada", "requested"), ("root", "requested")] or told(w, "requested") == [
        ("root", "requested"), ("ada", "requested"),
    ]  # fmt: skip


def w_problem(w: World, booking: str) -> str:
    with w.store.read() as session:
        return session.get(Reservation, booking).problem  # type: ignore[union-attr]


def add_channel(session: Any, node: str, name: str, now: int) -> None:
    from controller.store.tables import Channel, NodeModel

    session.add(Channel(id=name, node_id=node, name=name, created_at=now, engines=["llama.cpp"], gpu_memory_bytes=0))
    session.add(
        NodeModel(
            node_id=node, name="small", path="/m", size_bytes=1_000_000_000, format="gguf", channels=[name], seen_at=now
        )
    )  # fmt: skip


def second_node(w: World) -> None:
    """n2 with the channel c, connected, beside n1, which was there just now."""
    with w.store.write() as session:
        session.execute(update(Node).values(last_seen_at=w.now))
        session.add(Node(id="m", name="n2", created_at=0, certificate_serial="1"))
        session.flush()
        add_channel(session, "m", "c", w.now)
    w.ctx.live.update("n2", online=True)

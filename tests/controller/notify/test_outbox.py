"""The outbox: in the transaction of the change, claimed by one at a time, never forgotten, and what a crash may do."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from controller.notify import wording
from controller.notify.sender import Sender
from controller.notify.tell import Event, tell
from controller.notify.ways.message import Refused, TryAgain
from controller.store import outbox
from controller.store.tables import Notification, Outbox
from tests.controller.api.conftest import DAY, HOUR, World
from tests.controller.notify.conftest import Make, outside, person, sender, states, told
from tests.parts import BOTH, wait_until

DATABASES = BOTH


class Crash(BaseException):
    """The process is gone."""


class Receiver:
    """Stands for every way outside: what it got, and how it behaves."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.behave: list[str] = []
        self.lock = threading.Lock()

    def __call__(self, _settings: Any, letter: Any, _now: int, _mailer: Any = None) -> None:
        with self.lock:
            how = self.behave.pop(0) if self.behave else "good"
            if how in ("good", "crash after"):
                self.got.append(letter.message.id)
        if how == "busy":
            raise TryAgain("busy")
        if how == "never":
            raise Refused("never")
        if how.startswith("crash"):
            raise Crash

    def __len__(self) -> int:
        return len(self.got)


def ready(making: Make, **more: Any) -> World:
    w = making(smtp_host="127.0.0.1", smtp_port=1, **more)
    for name in w.ids:
        person(w, name, email=f"{name}@example.org")
    return w


def say(w: World, event: str, *who: str, kind: str = "cancelled") -> None:
    with w.store.write() as session:
        tell(session, Event(event, kind, "x", w.now, {"channel": "n1/a"}), [w.ids[name] for name in who])


def test_what_is_rolled_back_is_told_to_nobody(making: Make) -> None:
    w = ready(making)

    def change() -> None:
        with w.store.write() as session:
            tell(session, Event("e", "cancelled", "x", w.now), [w.ids["maya"]])
            raise Crash

    with pytest.raises(Crash):
        change()
    assert told(w) == []
    assert outside(w) == []


def test_once_an_event_a_person_and_a_way(making: Make) -> None:
    w = ready(making, notify_private_targets=True)
    for name in ("one", "two"):
        body = {"name": name, "way": "webhook", "url": "https://127.0.0.1:1/"}
        w.good("POST", "/notification-targets", body, "maya")
    for _ in range(3):
        say(w, "e", "maya", "noor")
    assert sorted(told(w)) == [("maya", "cancelled"), ("noor", "cancelled")]
    assert sorted(m.way for m in outside(w)) == ["email", "email", "webhook", "webhook"]


def test_by_the_ways_that_were_chosen(making: Make) -> None:
    w = ready(making)
    choice = {"kinds": {"cancelled": [], "failed": ["in_app"], "ready": ["email"]}}
    shown = w.good("PATCH", "/me/notifications", choice, "maya")
    assert {k["kind"]: k["ways"] for k in shown["kinds"] if k["own"]} == choice["kinds"]
    assert "requested" not in {k["kind"] for k in shown["kinds"]}  # nothing for a user
    for kind in choice["kinds"]:
        say(w, kind, "maya", kind=kind)
    say(w, "cancelled", "maya")
    assert [n["kind"] for n in w.get("/notifications", "maya")["items"]] == ["failed"]
    assert w.get("/notifications", "maya")["unread"] == 1
    assert [m.kind for m in outside(w)] == ["ready"]
    for bad in ({"x": []}, {"ready": ["pigeon"]}, {"ready": "email"}):
        w.bad(422, "PATCH", "/me/notifications", {"kinds": bad}, "maya")
    back = w.good("PATCH", "/me/notifications", {"kinds": {"cancelled": None, "failed": None, "ready": None}}, "maya")
    assert not any(k["own"] for k in back["kinds"])


def test_what_is_no_longer_wanted_is_not_sent(making: Make) -> None:
    w, receiver = ready(making), Receiver()
    say(w, "a", "maya", "noor", "tom", "ada")
    w.good("PATCH", "/me/notifications", {"kinds": {"cancelled": ["in_app"]}}, "maya")
    person(w, "noor", email=None)
    person(w, "tom", disabled_at=w.now)
    sender(w, send=receiver).step()
    assert len(receiver) == 1
    assert sorted(m.error for m in outside(w)) == [
        "",
        "no e-mail address",
        "not wanted any more",
        "the account is disabled",
    ]
    say(w, "b", "maya")
    w.now += 4 * DAY
    say(w, "c", "ada")
    with w.store.write() as session:
        session.execute(Outbox.__table__.update().where(Outbox.event_id == "c").values(created_at=w.now - 4 * DAY))
    sender(w, send=receiver).step()
    assert len(receiver) == 1  # three days old is no news


def test_two_controllers_never_send_the_same(making: Make) -> None:
    w, receiver = ready(making), Receiver()
    for n in range(60):
        say(w, f"e{n}", "maya", "noor")
    senders = [sender(w, send=receiver) for _ in range(3)]
    start = threading.Barrier(3)

    def run(one: Sender) -> None:
        start.wait()
        while one.step():
            pass

    threads = [threading.Thread(target=run, args=(one,)) for one in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(receiver) == 120
    assert len(set(receiver.got)) == 120
    assert {m.state for m in outside(w)} == {"sent"}


def test_who_comes_back_late_marks_nothing(making: Make) -> None:
    w = ready(making)
    say(w, "e", "maya")
    with w.store.write() as session:
        (row,) = outbox.due(session, w.now, 10)
        assert outbox.claim(session, row, w.now) == 1
    with w.store.write() as session:
        assert outbox.claim(session, row, w.now) is None  # as it was read before
        assert outbox.due(session, w.now, 10) == []
    w.now += outbox.LEASE_MS
    with w.store.write() as session:
        (again,) = outbox.due(session, w.now, 10)
        assert outbox.claim(session, again, w.now) == 2
        assert outbox.settle(session, row.id, 1, state="sent") is False
        assert outbox.settle(session, row.id, 2, state="sent") is True
        assert outbox.settle(session, row.id, 2, state="failed") is False


def test_a_thread_sends_what_is_committed_and_what_a_crash_has_left(making: Make) -> None:
    w, receiver = ready(making), Receiver()
    say(w, "before", "maya")
    one = sender(w, send=receiver)
    one.start()
    try:
        wait_until(lambda: len(receiver) == 1, 20, "what lay there from before is sent")
        say(w, "after", "maya")
        wait_until(lambda: [m.state for m in outside(w)] == ["sent", "sent"], 20, "what is committed is sent")
    finally:
        one.stop()
    assert not one._thread.is_alive()
    assert one.sent == 2


def test_a_booking_does_not_wait_for_a_receiver_that_hangs(making: Make) -> None:
    w = ready(making)
    held, go = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        held.set()
        go.wait(60)

    say(w, "e", "maya")
    one = sender(w, send=hang)
    one.start()
    try:
        assert held.wait(20)
        assert w.book(0, HOUR)["status"] == "approved"  # nothing is locked while somebody is waited for
        w.good("PATCH", "/me/notifications", {"kinds": {}}, "maya")
    finally:
        go.set()
        one.stop()


def test_a_fault_in_one_message_does_not_stop_the_others(making: Make) -> None:
    w, got = ready(making), []

    def odd(_settings: Any, letter: Any, *_: Any) -> None:
        if letter.name == "maya":
            raise KeyError("a fault")
        got.append(letter.name)

    say(w, "e", "maya", "noor", "tom")
    sender(w, send=odd).step()
    assert sorted(got) == ["noor", "tom"]
    (left,) = [m for m in outside(w) if m.state == "waiting"]
    assert "a fault of SlotServe itself: KeyError" in left.error


HOW = st.sampled_from(["good", "busy", "never", "crash before", "crash after"])


@pytest.fixture
def world(making: Make) -> World:
    return ready(making, notify_attempts=5)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(behave=st.lists(HOW, max_size=12), who=st.sets(st.sampled_from(["maya", "noor", "tom"]), min_size=1))
def test_whatever_crashes_none_is_forgotten_and_doubles_have_one_id(
    world: World, behave: list[str], who: set[str]
) -> None:
    """In the product: exactly once. Outside: at least once unless it is refused or given up; a message is doubled only
    where a crash came between sending and marking, and then with the same id."""
    w, receiver = world, Receiver()
    with w.store.write() as session:
        session.execute(delete(Outbox))
        session.execute(delete(Notification))
    receiver.behave = list(behave)
    crashes = behave.count("crash after")
    for name in sorted(who):
        say(w, "e", name)
        say(w, "e", name)
    for _ in range(80):
        try:
            while sender(w, send=receiver).step():
                pass
        except Crash:
            pass  # the next one is a new process
        w.now += outbox.LEASE_MS
        if all(m.state != "waiting" for m in outside(w) if m.kind == "cancelled"):
            break
    mine = [m for m in outside(w) if m.kind == "cancelled"]
    assert sorted(t for t in told(w) if t[1] == "cancelled") == sorted((name, "cancelled") for name in who)
    assert len(mine) == len(who)
    assert {m.state for m in mine} <= {"sent", "failed"}
    ids = {m.id for m in mine}
    assert set(receiver.got) <= ids
    assert {m.id for m in mine if m.state == "sent"} <= set(receiver.got)
    assert len(receiver.got) - len(set(receiver.got)) <= crashes


def test_every_link_leads_to_a_page(making: Make) -> None:
    pages = making().app.url_map.bind("localhost")
    for link in wording.LINKS:
        path = wording.link_of(link, {"reservation_id": "r1", "channel": "n1/a"})
        assert pages.test(path, method="GET"), path
    assert wording.link_of("nodes", {}) != wording.link_of("nodes", {"reservation_id": "r1"})


def test_old_messages_are_pruned_by_their_own_setting(making: Make) -> None:
    from controller import retention

    w = ready(making, retain_days_outbox=10)
    say(w, "old", "maya")
    sender(w, send=Receiver()).step()
    w.now += 11 * DAY
    say(w, "new", "maya")
    retention.prune(w.store, None, w.ctx.settings, w.now)
    with w.store.read() as session:
        assert set(session.scalars(select(Outbox.event_id))) == {"new"}
    assert states(w) == [("email", "cancelled", "waiting")]

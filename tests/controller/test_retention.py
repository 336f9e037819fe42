"""Pruning by age, with a given clock: every kind by its own setting, in batches, and never what is still in use."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from controller import retention
from controller.fleet.logs import Launch, LogStore
from controller.settings import Settings
from controller.store.tables import (
    Audit,
    Channel,
    ChannelState,
    Command,
    JoinToken,
    Leader,
    Load,
    Node,
    Notification,
    Outbox,
    SecretLink,
    SlotWatch,
    Usage,
    User,
    WebSession,
)
from tests.fleet_parts import make_store

DAY = 86_400_000
NOW = 2_000 * DAY
KINDS = {"audit": Audit, "usage": Usage, "loads": Load, "outbox": Notification}


def fill(store: Any, ages: list[float]) -> None:
    """A row of every kind, so many days old."""
    with store.write() as session:
        session.add_all([User(id="u", name="u", created_at=0), Node(id="n", name="n", created_at=0)])
        session.flush()
        session.add(Channel(id="c", node_id="n", name="c", created_at=0))
        session.flush()
        for i, age in enumerate(ages):
            at, id_ = int(NOW - age * DAY), f"x{i}"
            session.add_all(
                [
                    Audit(id=id_, at=at, action="a", subject="s"),
                    Load(id=id_, node_id="n", model="m", identity="", ok=True, seconds=1, at=at),
                    Notification(id=id_, event_id=id_, user_id="u", kind="k", subject="s", text="t", at=at),
                    ChannelState(id=id_, channel_id="c", at=at, phase="ready"),
                    Outbox(id=id_, event_id=id_, kind="k", way="email", address="a", state="sent", created_at=at, due_at=at),
                    SlotWatch(
                        id=id_, user_id="u", kind="model", minutes=1, not_before=at, not_after=at, created_at=at
                    ),
                    SecretLink(
                        id=id_, kind="feed", user_id="u", prefix="x", sha256=id_, created_at=at, revoked_at=at
                    ),
                    WebSession(id=id_, sha256=id_, user_id="u", way="password", created_at=at, seen_at=at),
                    Command(id=id_, node_id="n", kind="retry", created_at=at, deadline=at),
                    JoinToken(id=id_, node_name="n", sha256=id_, created_at=at, expires_at=at),
                    Usage(
                        id=id_, node_id="n", channel="c", model="m", key_id="k", user_id="u", at=at, duration=1,
                        first_byte=1, status=200, outcome="ok", bytes_in=1, bytes_out=1,
                    ),
                ]
            )  # fmt: skip


def count(store: Any, table: Any) -> int:
    with store.read() as session:
        return int(session.scalar(select(func.count()).select_from(table)) or 0)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_by_its_own_days(tmp_path: Path, kind: str) -> None:
    store = make_store(tmp_path)
    fill(store, [0, 9.99, 10.01, 399, 401])
    settings = Settings(state_dir=tmp_path, **{f"retain_days_{kind}": 10})
    gone = retention.prune(store, None, settings, NOW)
    for other, table in KINDS.items():
        left = 2 if other == kind else 4
        assert (count(store, table), gone[other]) == (left, 5 - left), other
    assert retention.prune(store, None, settings, NOW) == dict.fromkeys(gone, 0)
    store.close()


def test_many_rows_go_in_small_transactions(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    fill(store, [500] * (retention.BATCH + 3) + [1])
    before = store.revision()
    gone = retention.prune(store, None, Settings(state_dir=tmp_path), NOW)
    assert gone.pop("states") == retention.BATCH + 2  # the last one is what the channel was doing
    assert set(gone.values()) == {retention.BATCH + 3}
    assert store.revision() - before == 2 * (len(gone) + 1) + 1  # and once for the sums of days
    assert count(store, Command) == 1
    store.close()


def test_the_state_at_the_beginning_of_the_kept_time_stays(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    fill(store, [401, 400.5, 3])
    with store.write() as session:
        session.add(Channel(id="d", node_id="n", name="d", created_at=0))
        session.flush()
        session.add(ChannelState(id="long ago", channel_id="d", at=1, phase="ready"))
        session.add(Outbox(id="w", event_id="w", kind="k", way="email", address="a", created_at=1, due_at=1))
        session.add(SecretLink(id="open", kind="feed", user_id="u", prefix="x", sha256="s", created_at=1))
    gone = retention.prune(store, None, Settings(state_dir=tmp_path), NOW)
    with store.read() as session:
        assert set(session.scalars(select(ChannelState.id))) == {"x1", "x2", "long ago"}
        assert set(session.scalars(select(Outbox.id))) == {"x2", "w"}  # one that waits is not dropped in silence
        assert set(session.scalars(select(SecretLink.id))) == {"x2", "open"}
    assert (gone["states"], gone["messages"], gone["links"]) == (1, 2, 2)
    store.close()


def test_logs_of_old_launches_go_but_what_may_still_run_stays(tmp_path: Path) -> None:
    logs = LogStore(tmp_path / "logs")
    for name, age in (("old", 20), ("young", 5), ("newest", 30)):
        launched = NOW - 4 * DAY if name == "newest" else NOW - age * DAY
        logs.append("n", "c", Launch(name, launched, "m", None, "", ended=True), 0, b"output\n")
        logs.append("n", f"only-{name}", Launch(name, NOW - age * DAY, "m", None, ""), 0, b"output\n")
        for path in (tmp_path / "logs" / "n").glob(f"*/{name}.*"):
            os.utime(path, ((NOW - age * DAY) / 1000,) * 2)
    store = make_store(tmp_path)
    gone = retention.prune(store, logs, Settings(state_dir=tmp_path, retain_days_logs=10), NOW)
    assert gone["logs"] == 1
    assert [one["id"] for one in logs.launches("n", "c")] == ["newest", "young"]
    assert not list((tmp_path / "logs" / "n" / "c").glob("old*"))
    assert [one["id"] for one in logs.launches("n", "only-old")] == ["old"]  # it has not been said to have ended
    store.close()


def pruned_at(store: Any) -> int | None:
    with store.read() as session:
        return session.get(Leader, 1).pruned_at


def test_a_clock_that_jumps_costs_two_days_a_night(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Counted from night to night: the first run only notes the time, a jump is followed slowly and said, a restart in it
    prunes nothing, and a clock that is put right is followed at once."""
    store = make_store(tmp_path)
    assert retention.counted_from(store, NOW, True) is None
    assert [retention.counted_from(store, NOW + days * DAY, False) for days in (1, 2, 4)] == [
        NOW + DAY, NOW + 2 * DAY, NOW + 4 * DAY,
    ]  # fmt: skip
    assert not caplog.records
    ahead = NOW + 300 * DAY
    assert retention.counted_from(store, ahead, True) is None
    assert pruned_at(store) == NOW + 4 * DAY
    assert retention.counted_from(store, ahead, False) == NOW + 6 * DAY
    assert retention.counted_from(store, ahead + DAY, False) == NOW + 8 * DAY
    assert [r.message.split(":")[0] for r in caplog.records] == [
        "the clock is 296.0 days after the last pruning",
        "the clock is 296.0 days after the last pruning, and may have jumped",
        "the clock is 295.0 days after the last pruning, and may have jumped",
    ]
    assert retention.counted_from(store, NOW + 5 * DAY, False) == NOW + 5 * DAY
    store.close()


def test_a_night_with_a_wrong_clock_deletes_hardly_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    fill(store, [1, 399.5, 399, 300])
    retention.counted_from(store, NOW - DAY, True)
    monkeypatch.setattr(retention.usage_days, "add_up", lambda *_: 0)
    nightly = retention.Nightly(store, None, Settings(state_dir=tmp_path), lambda: NOW + 90 * DAY)
    monkeypatch.setattr(nightly, "_end", Nights(2))  # soon after the start, and one night
    nightly._run()
    assert count(store, Audit) == 3  # what 399.5 days made 400.5
    assert count(store, Usage) == 3
    store.close()


class Nights:
    """An event that lets so many nights pass at once, and is set then."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, _seconds: float) -> bool:
        self.left -= 1
        return self.left < 0


def test_the_next_night() -> None:
    for hour, minute in ((0, 0), (2, 59), (3, 0), (12, 0), (23, 59)):
        now = round(datetime(2027, 1, 15, hour, minute).astimezone().timestamp() * 1000)
        night = retention.next_night(now)
        assert now < night <= now + DAY + 3_600_000  # a night at which clocks go back is longer
        at = datetime.fromtimestamp(night / 1000)
        assert (at.hour, at.minute) == (3, 0)


def test_the_thread_ends_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    fill(store, [500])
    retention.counted_from(store, NOW - DAY, True)
    monkeypatch.setattr(retention, "FIRST_SECONDS", 0.01)
    nightly = retention.Nightly(store, None, Settings(state_dir=tmp_path), lambda: NOW)
    nightly.start()
    while count(store, JoinToken):
        pass
    nightly.stop()
    assert not nightly._thread.is_alive()
    assert count(store, Audit) == 0
    store.close()

"""PostgreSQL's own: the exclusion constraint alone against a race, a server that starts anew, `migrate` and `serve`."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import text

from controller.fleet import planner_store
from controller.store.session import Store
from controller.store.tables import Channel, Leader, Node, NodeModel, User
from tests.controller.fleet.test_serve import environment, refused, serving
from tests.parts import wait_until
from tests.postgres import PostgreSQL

DATABASES = ("postgresql",)
BOOK = (
    "INSERT INTO reservations (id, channel_id, kind, starts_at, ends_at, status, holder_id, booked_by, note, "
    "participants, version, created_at, reason, committed) "
    "VALUES (%s, 'c', 'exclusive', %s, %s, 'approved', 'u', 'u', '', '[]', 1, 0, '', false)"
)


@pytest.fixture
def store(database_url: str):
    it = Store(database_url)
    with it.write() as session:
        session.add_all([User(id="u", name="u", created_at=0), Node(id="n", name="n", created_at=0)])
        session.flush()
        session.add(Channel(id="c", node_id="n", name="c", created_at=0))
    yield it
    it.close()


def test_the_constraint_needs_no_lock_of_ours(store: Store, postgresql: PostgreSQL) -> None:
    """Whoever writes past the controller meets the rule all the same; what the constraint itself then does (it may end
    one of two that wait for each other) is a refusal as well."""
    database = store.engine.url.database

    def writer(seed: int) -> Counter[str]:
        chance, said = random.Random(seed), Counter()
        where = {"host": str(postgresql.folder), "user": "postgres", "dbname": database, "autocommit": True}
        with psycopg.connect(**where) as connection:  # type: ignore[arg-type]
            for turn in range(60):
                start = chance.randrange(300)
                try:
                    connection.execute(BOOK, (f"{seed}-{turn}", start, start + chance.randint(1, 5)))
                    said["made"] += 1
                except (psycopg.errors.ExclusionViolation, psycopg.errors.DeadlockDetected):
                    said["refused"] += 1
        return said

    with ThreadPoolExecutor(8) as pool:
        said = sum(pool.map(writer, range(8)), Counter())
    assert said["made"] + said["refused"] == 8 * 60
    with store.read() as session:
        rows = session.execute(text("SELECT starts_at, ends_at FROM reservations ORDER BY starts_at")).all()
    assert len(rows) == said["made"] > 20
    assert all(a.ends_at <= b.starts_at for a, b in itertools.pairwise(rows))


def test_writes_come_one_after_the_other(store: Store) -> None:
    """What was looked at in a write stays so: no two count the same hours."""

    def add(turn: int) -> None:
        with store.write() as session:
            count = session.execute(text("SELECT count(*) FROM users")).scalar_one()
            session.add(User(id=f"u{turn}", name=f"person {count}", created_at=0))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    with store.read() as session:
        names = session.execute(text("SELECT name FROM users WHERE id <> 'u'")).scalars().all()
    assert sorted(names) == sorted(f"person {n}" for n in range(1, 41))


@pytest.mark.parametrize(("outer", "inner"), [("n/a", "n/a"), ("n/a", ""), ("", "n/a"), ("", "")])
def test_only_writes_about_different_channels_go_side_by_side(store: Store, outer: str, inner: str) -> None:
    before = store.revision()
    with store.write("n/a"), store.write("n/b"):
        pass  # neither waits for the other
    done: list[str] = []

    def write() -> None:
        with store.write(inner):
            pass
        done.append("inner")

    with ThreadPoolExecutor(1) as pool:
        with store.write(outer) as session:
            asked = text(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"  # other tests use this server as well
            )
            assert session.execute(asked).scalar_one() == 0  # a transaction begins with its first statement
            waiting = pool.submit(write)
            wait_until(lambda: session.execute(asked).scalar_one(), 20, "the other one waits")
            done.append("outer")
        waiting.result(20)
    assert done == ["outer", "inner"]
    assert store.revision() == before + 4


def test_a_read_is_one_view_and_writes_nothing(store: Store) -> None:
    with store.read() as session:
        before = session.execute(text("SELECT count(*) FROM users")).scalar_one()
        with store.write() as other:
            other.add(User(id="v", name="v", created_at=0))
        assert session.execute(text("SELECT count(*) FROM users")).scalar_one() == before
        with pytest.raises(Exception, match="read-only transaction"):
            session.execute(text("DELETE FROM users"))


def test_connections_that_were_ended_are_made_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.store.session._IDLE_SECONDS", -1.0)
    assert store.revision() == 1
    with store.write() as session:
        ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        session.execute(text(ends + "pg_backend_pid()"))
    assert store.revision() == 2
    with store.read() as session:
        session.execute(text("SELECT 1"))


def test_names_are_sorted_as_on_sqlite(store: Store) -> None:
    with store.write() as session:
        names = ["b", "A", "a", "Z", "é", "a-b", "a.b", "a b", "_"]
        session.add_all([User(id=f"s{i}", name=name, created_at=0) for i, name in enumerate(names)])
        session.add(NodeModel(node_id="n", name="x", path="/x", size_bytes=1, format="gguf", seen_at=0))
    with store.read() as session:
        found = session.execute(text("SELECT name FROM users WHERE id LIKE 's%' ORDER BY name")).scalars().all()
        by_database = "SELECT name FROM users WHERE id LIKE 's%' ORDER BY name COLLATE \"default\""
        human = session.execute(text(by_database)).scalars().all()
    assert found == sorted(names)
    if "TEST_POSTGRESQL" not in os.environ:  # another build may know no collation but C's
        assert human != found, "the suite's server sorts otherwise by itself, or this proves nothing"


def test_an_engines_last_words_are_kept_whatever_they_hold(store: Store) -> None:
    with store.write() as session:
        session.add_all([User(id=f"w{n}", name=f"segfault\0at {n}", created_at=0) for n in range(3)])
    with store.read() as session:
        assert session.get_one(User, "w1").name == "segfault\u2400at 1"


def test_the_epoch_grows_and_carries_the_databases_time(store: Store) -> None:
    first = planner_store.next_epoch(store, 5)
    assert planner_store.next_epoch(store, 5) == first + 1
    with store.read() as session:
        row = session.get_one(Leader, 1)
        now = session.execute(text("SELECT extract(epoch FROM clock_timestamp()) * 1000")).scalar_one()
    assert abs(float(now) - row.renewed_at) < 60_000


@pytest.mark.system
def test_migrate_then_serve(postgresql: PostgreSQL, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with postgresql.database("template1") as url:
        said = {"SLOTSERVE_DATABASE_URL": url}
        assert "has not been migrated: run `slotserve migrate`" in refused(folder, **said)
        for _ in range(2):
            done = slotserve(folder, "migrate", **said)
            assert done.returncode == 0, done.stderr
            assert "is up to date" in done.stdout
        with serving(folder, **said) as (_, ports):
            assert httpx.get(f"http://127.0.0.1:{ports['http']}/healthz").status_code == 200
        store = Store(url)
        with store.write() as session:
            assert session.get_one(Leader, 1).epoch == 1
            session.execute(text("ALTER TABLE reservations DROP CONSTRAINT reservations_no_overlap"))
        store.close()
        assert "the overlap rule reservations_no_overlap is missing" in refused(folder, **said)
    gone = refused(folder, **said)
    assert "cannot be reached" in gone
    assert "does not exist" in gone
    wrong = slotserve(folder, "migrate", SLOTSERVE_DATABASE_URL="mysql://db/slots")
    assert wrong.returncode != 0
    assert "SLOTSERVE_DATABASE_URL: use sqlite:///path, or postgresql://" in wrong.stderr


def slotserve(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "slotserve"), *words],
        env=environment(folder, **more), capture_output=True, text=True, timeout=60,
    )  # fmt: skip

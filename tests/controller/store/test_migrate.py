"""The migrated schema is the declared one, the overlap rule is in the database, and faults are told in words: on both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Namespace
from unittest.mock import patch

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text, update
from sqlalchemy.exc import IntegrityError

from controller.store import migrate, overlap
from controller.store.session import Store, driver_url
from controller.store.tables import Base, Channel, Node, Reservation, User
from tests.parts import BOTH
from tests.postgres import PostgreSQL

DATABASES = BOTH


@pytest.fixture(params=BOTH)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty database."""
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'odd %41 name.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(request.getfixturevalue("postgresql").database("template1"))
        it = Store(url)
        stack.callback(it.close)
        yield it


@pytest.fixture
def filled(database_url: str) -> Iterator[Store]:
    """A migrated one with two channels and a booking of "c"."""
    store = Store(database_url)
    with store.write() as session:
        session.add_all([User(id="u", name="u", created_at=0), Node(id="n", name="n", created_at=0)])
        session.flush()
        session.add_all([Channel(id=c, node_id="n", name=c, created_at=0) for c in ("c", "d")])
        session.flush()
        session.add(booking("a", 100, 200))
    yield store
    store.close()


@pytest.fixture
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A migrated database that may be harmed."""
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'slotserve.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(request.getfixturevalue("postgresql").database())
        it = Store(url)
        stack.callback(it.close)
        migrate.upgrade(it)
        yield it


def booking(name: str, start: int, end: int, status: str = "approved", channel: str = "c") -> Reservation:
    return Reservation(
        id=name, channel_id=channel, kind="exclusive", starts_at=start, ends_at=end, status=status, holder_id="u",
        booked_by="u", created_at=0,
    )  # fmt: skip


def test_migrated_schema_is_the_declared_one(store: Store) -> None:
    migrate.upgrade(store)
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    assert migrate.check(store) == []
    assert store.revision() == 0


def test_upgrade_twice_changes_nothing(filled: Store) -> None:
    migrate.upgrade(filled)
    assert filled.revision() == 1


def test_failed_upgrade_leaves_nothing_behind(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "SQLITE", ("CREATE NONSENSE",))
    monkeypatch.setattr(overlap, "POSTGRESQL", ("CREATE NONSENSE",))
    with pytest.raises(migrate.MigrationError, match="syntax error"):
        migrate.upgrade(store)
    with store.engine.connect() as connection:
        assert inspect(connection).get_table_names() == []


@pytest.mark.parametrize(
    ("start", "end", "status", "channel", "free"),
    [
        (200, 300, "approved", "c", True),  # back to back
        (0, 100, "pending", "c", True),
        (199, 300, "approved", "c", False),
        (0, 101, "pending", "c", False),
        (120, 130, "approved", "c", False),
        (0, 1000, "pending", "c", False),
        (100, 200, "approved", "d", True),
        (100, 200, "cancelled", "c", True),
        (100, 200, "ended_early", "c", True),
        (300, 300, "approved", "c", False),  # empty windows are refused, whoever asks
        (300, 200, "rejected", "c", False),
    ],
)
def test_database_itself_refuses_overlaps(
    filled: Store, start: int, end: int, status: str, channel: str, free: bool
) -> None:
    def insert() -> None:
        with filled.write() as session:
            session.add(booking("b", start, end, status, channel))

    if free:
        insert()
        return
    with pytest.raises(IntegrityError) as err:
        insert()
    assert overlap.refused(err.value) == (start < end)


@pytest.mark.parametrize(
    "change",
    [
        {"ends_at": 201},
        {"starts_at": 150},
        {"channel_id": "c", "starts_at": 150},
        {"starts_at": 100, "ends_at": 101},
    ],
)
def test_moving_or_extending_into_a_neighbour_is_refused(filled: Store, change: dict[str, object]) -> None:
    with filled.write() as session:
        session.add(booking("b", 200, 300))
        session.add(booking("z", 400, 500, channel="d"))
    which = "z" if "channel_id" in change else "b" if "starts_at" in change else "a"
    with pytest.raises(IntegrityError) as err, filled.write() as session:
        session.execute(update(Reservation).where(Reservation.id == which).values(**change))
    assert overlap.refused(err.value)


def test_taking_up_a_cancelled_booking_again_is_refused(filled: Store) -> None:
    with filled.write() as session:
        session.add(booking("b", 150, 250, "cancelled"))
    with pytest.raises(IntegrityError) as err, filled.write() as session:
        session.execute(update(Reservation).where(Reservation.id == "b").values(status="approved"))
    assert overlap.refused(err.value)
    with filled.write() as session:  # its own place may be written again
        session.execute(update(Reservation).where(Reservation.id == "a").values(status="pending", ends_at=190))


DAMAGES = (
    ("sqlite", "DROP TRIGGER reservations_no_overlap_insert", "double bookings"),
    ("sqlite", "DROP TRIGGER reservations_no_overlap_update", "reservations_no_overlap_update is missing"),
    ("postgresql", "ALTER TABLE reservations DROP CONSTRAINT reservations_no_overlap", "double bookings"),
    ("postgresql", "ALTER TABLE reservations DROP CONSTRAINT reservations_window", "reservations_window is missing"),
    ("both", "DROP TABLE usage", "table usage is missing"),
    ("both", "DELETE FROM leader", "leader has lost its row"),
    ("both", "UPDATE alembic_version SET version_num = '9999'", "newer than this program"),
    ("both", "DROP TABLE alembic_version", "slotserve migrate"),
)


@pytest.mark.parametrize(
    ("damaged", "damage", "words"),
    [(kind, damage, words) for where, damage, words in DAMAGES for kind in BOTH if where in (kind, "both")],
    indirect=["damaged"],
)
def test_check_says_what_is_wrong(damaged: Store, damage: str, words: str) -> None:
    with damaged.engine.begin() as connection:
        connection.execute(text(damage))
    assert words in " ".join(migrate.check(damaged))


def test_check_of_no_database(tmp_path: Path) -> None:
    nowhere = Store(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    assert "cannot be reached" in migrate.check(nowhere)[0]


@pytest.mark.parametrize("damaged", BOTH, indirect=True)
def test_newer_database_is_not_touched(damaged: Store) -> None:
    with damaged.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrate.MigrationError, match="newer"):
        migrate.upgrade(damaged)


def test_nothing_listens(tmp_path: Path) -> None:
    nowhere = Store(f"postgresql://maya:secret@/slots?host={tmp_path}")
    for said in (*migrate.check(nowhere), refusal(nowhere)):
        assert "cannot be reached" in said
        assert "SLOTSERVE_DATABASE_URL" in said
        assert str(tmp_path) in said, "the server's own words are kept"
        assert "secret" not in said


def test_rights_that_are_missing_are_told_in_words(postgresql: PostgreSQL) -> None:
    """A user who may make tables but no extension; then a user who may not even make tables."""
    postgresql.run("DROP ROLE IF EXISTS maya", "CREATE ROLE maya LOGIN")
    with postgresql.database("template1") as url:
        name = url.partition("@/")[2].partition("?")[0]
        theirs = Store(postgresql.url(name, "maya"))
        assert "slotserve migrate" in migrate.check(theirs)[0]
        assert "lacks a right" in refusal(theirs)
        postgresql.run("GRANT ALL ON SCHEMA public TO maya", database=name)
        assert "have an administrator run CREATE EXTENSION btree_gist" in refusal(theirs)
        postgresql.run("CREATE EXTENSION btree_gist", database=name)
        migrate.upgrade(theirs)
        assert migrate.check(theirs) == []
        theirs.close()
    postgresql.run("DROP ROLE maya")


def test_a_database_that_is_not_there_is_told(postgresql: PostgreSQL) -> None:
    nowhere = Store(postgresql.url("nowhere"))
    assert 'database "nowhere" does not exist' in migrate.check(nowhere)[0]
    assert "PostgreSQL 12: SlotServe needs 13" in too_old(nowhere, (12, 9))
    assert too_old(nowhere, (13, 0)) == ""
    nowhere.close()


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://u:p%40@db.example:5433/slots?sslmode=require", "postgresql+psycopg"),
        ("postgres://db/slots", "postgresql+psycopg"),
        ("postgresql+psycopg://db/slots", "postgresql+psycopg"),
        ("sqlite:////var/lib/slots.db", "sqlite"),
    ],
)
def test_the_driver_is_ours(url: str, driver: str) -> None:
    parsed = driver_url(url)
    assert parsed.drivername == driver
    assert parsed.render_as_string(False).partition("://")[2] == url.partition("://")[2]


@pytest.mark.parametrize("url", ["mysql://db/slots", "postgresql+asyncpg://db/slots", "slots.db", "postgresql://h:x/d"])
def test_another_database_is_refused_in_words(url: str) -> None:
    with pytest.raises(ValueError, match=r"database URL|is not known"):
        Store(url)


def refusal(store: Store) -> str:
    with pytest.raises(migrate.MigrationError) as err:
        migrate.upgrade(store)
    return str(err.value)


def too_old(store: Store, version: tuple[int, ...]) -> str:
    with patch.object(store.engine.dialect, "server_version_info", version, create=True):
        return migrate._too_old(Namespace(dialect=store.engine.dialect))  # type: ignore[arg-type]

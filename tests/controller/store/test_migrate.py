"""The migrated schema is the declared one, the overlap rule is in the database, and faults are told in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError

from controller.store import migrate, overlap
from controller.store.session import Store
from controller.store.tables import Base, Channel, Node, Reservation, User


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    it = Store(f"sqlite:///{tmp_path / 'odd %41 name.db'}")
    yield it
    it.close()


@pytest.fixture
def filled(store: Store) -> Store:
    migrate.upgrade(store)
    with store.write() as session:
        session.add_all([User(id="u", name="u", created_at=0), Node(id="n", name="n", created_at=0)])
        session.flush()
        session.add_all([Channel(id=c, node_id="n", name=c, created_at=0) for c in ("c", "d")])
        session.flush()
        session.add(booking("a", 100, 200))
    return store


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
    with pytest.raises(Exception, match="syntax error"):
        migrate.upgrade(store)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0


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


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DROP TRIGGER reservations_no_overlap_insert", "double bookings"),
        ("DROP TABLE usage", "table usage is missing"),
        ("DELETE FROM leader", "leader has lost its row"),
        ("UPDATE alembic_version SET version_num = '9999'", "newer than this program"),
        ("DROP TABLE alembic_version", "slotserve migrate"),
    ],
)
def test_check_says_what_is_wrong(filled: Store, damage: str, words: str) -> None:
    with filled.engine.begin() as connection:
        connection.execute(text(damage))
    assert words in " ".join(migrate.check(filled))


def test_check_of_no_database(tmp_path: Path) -> None:
    nowhere = Store(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    assert "cannot be reached" in migrate.check(nowhere)[0]


def test_newer_database_is_not_touched(filled: Store) -> None:
    with filled.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrate.MigrationError, match="newer"):
        migrate.upgrade(filled)


def test_postgresql_rule_is_an_exclusion_constraint() -> None:
    words = " ".join(overlap.POSTGRESQL)
    assert "EXCLUDE USING gist" in words
    assert "int8range(starts_at, ends_at, '[)')" in words

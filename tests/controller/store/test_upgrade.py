"""From every revision there ever was: a filled database is upgraded, keeps its rows, and still refuses an overlap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Connection, MetaData, Table, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from controller.store import migrate, overlap
from controller.store.session import Store
from tests.parts import BOTH

REVISIONS = [s.revision for s in ScriptDirectory(str(migrate.SCRIPTS)).walk_revisions()]
FIRST = ("leader", "revision", "alembic_version")  # filled by the migrations themselves
BOOKING = {"starts_at": 100, "ends_at": 200, "status": "approved", "kind": "exclusive", "version": 1}


@pytest.fixture(params=BOTH)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'old.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(request.getfixturevalue("postgresql").database("template1"))
        it = Store(url)
        stack.callback(it.close)
        yield it


@pytest.mark.parametrize("revision", REVISIONS)
def test_filled_database_is_upgraded(store: Store, revision: str) -> None:
    migrate.upgrade(store, revision)
    with store.engine.execution_options(write=True).begin() as connection:
        old = MetaData()
        old.reflect(connection)
        for table in old.sorted_tables:
            if table.name not in FIRST:
                connection.execute(table.insert(), _row(table, "1"))
        before = _counts(connection, old)
    assert all(before.values()), before
    if revision != migrate.head():
        assert revision in migrate.check(store)[0]
    migrate.upgrade(store)
    assert migrate.check(store) == []
    with store.engine.connect() as connection:
        assert {name: count for name, count in _counts(connection, old).items() if count != before[name]} == {}

    now = MetaData()
    now.reflect(store.engine)
    _refused(store, now.tables["reservations"], {"starts_at": 150, "ends_at": 250})
    _refused(store, now.tables["reservations"], {"starts_at": 300, "ends_at": 300})
    with store.engine.execution_options(write=True).begin() as connection:
        second = _row(now.tables["reservations"], "2") | {"channel_id": "1", "holder_id": "1"}
        connection.execute(now.tables["reservations"].insert(), second | {"starts_at": 200, "ends_at": 300})
    with pytest.raises(IntegrityError) as err, store.engine.execution_options(write=True).begin() as connection:
        connection.execute(text("UPDATE reservations SET ends_at = 201 WHERE id = '1'"))
    assert overlap.refused(err.value)


def _refused(store: Store, table: Table, window: dict[str, int]) -> None:
    row = _row(table, "2") | {"channel_id": "1", "holder_id": "1"} | window
    with pytest.raises(IntegrityError) as err, store.engine.execution_options(write=True).begin() as connection:
        connection.execute(table.insert(), row)
    assert overlap.refused(err.value) == (window["starts_at"] < window["ends_at"])


def _counts(connection: Connection, tables: MetaData) -> dict[str, int]:
    return {name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables.tables}


def _row(table: Table, mark: str) -> dict[str, Any]:
    """A row with something in every column, whatever revision the table is of; keys, and what points at them, are `mark`."""
    row = {column.name: _value(column.type, mark) for column in table.columns}
    return row | {name: value for name, value in BOOKING.items() if name in row and table.name == "reservations"}


def _value(kind: TypeEngine[Any], mark: str) -> Any:
    if isinstance(kind, JSON):
        return {}
    return mark if kind.python_type is str else kind.python_type(1)

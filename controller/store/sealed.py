"""The columns that hold sealed texts, and bringing them up to the present key: at the start, as often as one likes."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select, update
from sqlalchemy.orm import InstrumentedAttribute

from controller.store.guard import changed
from controller.store.session import Store
from controller.store.tables import NotificationTarget

COLUMNS: tuple[InstrumentedAttribute[str] | InstrumentedAttribute[str | None], ...] = (
    NotificationTarget.url,
    NotificationTarget.secret,
)


def kept(store: Store) -> list[str]:
    """Everything that is kept in these columns, as it is kept."""
    with store.read() as session:
        return [text for c in COLUMNS for text in session.scalars(select(c).where(c.is_not(None))) if text]


def reseal(store: Store, fresh: Callable[[str], bool], again: Callable[[str], str | None]) -> tuple[int, int]:
    """(texts that were written anew, rows that nobody can open any more). `fresh(kept)`: whether a text may stay;
    `again(kept)`: the same text as it should be kept, None where it cannot be opened."""
    written, lost = 0, set[str]()
    with store.read() as session:
        found = [
            (column, row_id, kept)
            for column in COLUMNS
            for row_id, kept in session.execute(select(column.class_.id, column).where(column.is_not(None)))
            if not fresh(kept)
        ]
    if not found:
        return 0, 0
    with store.write() as session:
        for column, row_id, kept in found:
            text = again(kept)
            if text is None:
                lost.add(row_id)
                continue
            same = (column.class_.id == row_id) & (column == kept)  # unless it was changed meanwhile
            written += changed(session, update(column.class_).where(same).values({column.key: text}))
    return written, len(lost)

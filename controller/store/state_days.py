"""Hours of days that are over, by channel and what it did: sums that a year is read from instead of its every change.

A day is its two instants, so that zones with the same midnights share it. What a day came to is written once, when it
is over, and forgotten when something is written of it later (a node was cut off; the controller's clock had been ahead);
who finds no sums adds up the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from controller.spans import STATES, Hours
from controller.store.tables import ChannelDay, StateDay

Day = tuple[int, int]
LONGEST_MS = 48 * 3_600_000  # no day of any zone is longer


def there(session: Session, start: int, end: int) -> set[Day]:
    """The days within [start, end) that are there in sums, of whatever zone."""
    query = select(StateDay.start_at, StateDay.end_at).where(StateDay.start_at >= start, StateDay.end_at <= end)
    return {(row.start_at, row.end_at) for row in session.execute(query)}


def hours(
    session: Session, days: Collection[Day], channel_ids: Collection[str] | None = None
) -> dict[tuple[str, int], Hours]:
    """By (channel, beginning) of these days, all of which are there."""
    wanted = dict(days)
    states = [getattr(ChannelDay, state) for state in STATES]
    query = select(
        ChannelDay.channel_id, ChannelDay.start_at, ChannelDay.end_at, ChannelDay.reserved, ChannelDay.fallback, *states
    ).where(ChannelDay.start_at.in_(wanted))
    if channel_ids is not None:
        query = query.where(ChannelDay.channel_id.in_(channel_ids))
    found = {}
    for channel_id, start, end, reserved, fallback, *values in session.execute(query):
        if wanted[start] == end:  # and no shorter or longer day of another zone
            found[channel_id, start] = Hours(reserved, fallback, values)
    return found


def write(session: Session, days: Collection[Day], sums: Mapping[tuple[str, int], Hours]) -> None:
    """What these days came to, by (channel, beginning)."""
    ends = dict(days)
    session.execute(insert(StateDay), [{"start_at": start, "end_at": end} for start, end in days])
    rows = [
        {
            "start_at": start,
            "end_at": ends[start],
            "channel_id": channel_id,
            "reserved": found.reserved,
            "fallback": found.fallback,
            **found.states,
        }
        for (channel_id, start), found in sums.items()
    ]
    if rows:
        session.execute(insert(ChannelDay), rows)


def forget(session: Session, since: int | None = None) -> None:
    """Days that end after that instant are forgotten (None: all of them; they can be made again)."""
    if since is not None and session.scalar(select(StateDay.start_at).where(*_after(StateDay, since)).limit(1)) is None:
        return
    for table in (ChannelDay, StateDay):
        session.execute(delete(table).where(*([] if since is None else _after(table, since))))


def prune(session: Session, before: int) -> None:
    """Days that begin before that instant go."""
    for table in (ChannelDay, StateDay):
        session.execute(delete(table).where(table.start_at < before))


def _after(table: Any, since: int) -> tuple[Any, Any]:
    return table.start_at > since - LONGEST_MS, table.end_at > since

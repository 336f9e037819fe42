"""Requests that the gateways served, as they counted them: single ones, and sums of whole UTC days that are over.

Whatever is read is read from both: days in sums up to the first that has none yet (`summed_until`), single requests at
the edges and after. A request that a node reports late goes into the sums of its day as well, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, Subquery, case, cast, delete, func, insert, literal, null, select, union_all
from sqlalchemy.orm import Session

from controller.store.tables import ApiKey, Node, Usage, UsageDay, User

DAY_MS = 86_400_000
_WHO = ("user_id", "key_id", "node_id", "channel", "model")
_SUMS = (
    "requests",
    "failed",
    "seconds",
    "first_bytes",
    "answered",
    "bytes_in",
    "bytes_out",
    "prompt_tokens",
    "completion_tokens",
)
_REAL = ("seconds", "first_bytes")
_ONE = {
    "requests": literal(1),
    "failed": case((Usage.status >= 400, 1), else_=0),
    "seconds": Usage.duration,
    "first_bytes": case((Usage.first_byte > 0, Usage.first_byte), else_=0.0),
    "answered": case((Usage.first_byte > 0, 1), else_=0),
    "bytes_in": Usage.bytes_in,
    "bytes_out": Usage.bytes_out,
    "prompt_tokens": Usage.prompt_tokens,
    "completion_tokens": Usage.completion_tokens,
}  # what a single request counts


def totals(
    session: Session, start: int, end: int, user_id: str | None, limit: int, offset: int, by_key: bool = False
) -> Sequence[Row[Any]]:
    """Per person, channel and model, with `by_key` also per API key: (key_id, key, user_id, user, channel, model,
    requests, failed, seconds, first_byte_seconds, bytes_in, bytes_out, prompt_tokens, completion_tokens).

    First bytes are a mean over the requests that were answered by an engine; tokens None where no engine reported any."""
    found = _found(session, start, end, user_id).c
    key = (found.key_id, ApiKey.prefix) if by_key else ()
    query = (
        select(
            (found.key_id if by_key else null()).label("key_id"),
            (ApiKey.prefix if by_key else null()).label("key"),
            found.user_id,
            User.name.label("user"),
            (Node.name + "/" + found.channel).label("channel"),
            found.model,
            *(_summed(name, found[name]) for name in _SUMS),
            (func.sum(found.first_bytes) / func.nullif(func.sum(found.answered), 0)).label("first_byte_seconds"),
        )
        .outerjoin(User, User.id == found.user_id)
        .outerjoin(Node, Node.id == found.node_id)
        .group_by(found.user_id, User.name, Node.name, found.channel, found.model, *key)
        .order_by(found.user_id, Node.name, found.channel, found.model, *key)
        .limit(limit)
        .offset(offset)
    )
    return session.execute(query.outerjoin(ApiKey, ApiKey.id == found.key_id) if by_key else query).all()


def sums(
    session: Session, start: int, end: int, user_id: str | None = None, channel: tuple[str, str] | None = None
) -> Sequence[Row[Any]]:
    """One row a (user_id, node_id, channel, model): requests, failed, seconds, bytes_in, bytes_out, first_bytes (their
    sum), answered (how many that is of), prompt_tokens, completion_tokens. Without names: a year has a million requests
    and some hundred of these. `channel` = (node id, name)."""
    found = _found(session, start, end, user_id, channel).c
    who = [found[name] for name in _WHO if name != "key_id"]
    return session.execute(select(*who, *(_summed(name, found[name]) for name in _SUMS)).group_by(*who)).all()


def summed_until(session: Session) -> int:
    """The instant until when all days are there in sums; 0: none is."""
    last = session.scalar(select(func.max(UsageDay.day)))
    return 0 if last is None else last + DAY_MS


def next_day(session: Session, until: int) -> int | None:
    """The next day to be summed that has requests and is over by `until`."""
    first = session.scalar(select(func.min(Usage.at)).where(Usage.at >= summed_until(session)))
    return first - first % DAY_MS if first is not None and first < until - until % DAY_MS else None


def sum_days(session: Session, until: int, most: int) -> None:
    """Sums up the next days that are over by `until`, not more than so many. Done again it does nothing."""
    begin = next_day(session, until)
    if begin is None:
        return
    end = min(until - until % DAY_MS, begin + most * DAY_MS)
    day = (Usage.at - Usage.at % DAY_MS).label("day")
    columns = [getattr(Usage, name) for name in _WHO]
    query = select(day, *columns, *(_summed(name, _ONE[name]) for name in _SUMS))
    query = query.where(Usage.at >= begin, Usage.at < end).group_by(day, *columns)
    session.execute(insert(UsageDay).from_select(["day", *_WHO, *_SUMS], query))


def count_late(session: Session, row: Usage, done: int) -> None:
    """A request of a day that is added up already (until `done`, see `summed_until`) goes into its sums."""
    if row.at >= done:
        return
    failed, answered = int(row.status >= 400), int(row.first_byte > 0)
    one = {
        "requests": 1, "failed": failed, "seconds": row.duration, "first_bytes": max(0.0, row.first_byte),
        "answered": answered, "bytes_in": row.bytes_in, "bytes_out": row.bytes_out,
        "prompt_tokens": row.prompt_tokens, "completion_tokens": row.completion_tokens,
    }  # fmt: skip
    who = (row.at - row.at % DAY_MS, *(getattr(row, name) for name in _WHO))
    known = session.get(UsageDay, who)
    if known is None:
        session.add(UsageDay(**dict(zip(("day", *_WHO), who, strict=True)), **one))
        session.flush()
        return
    for name, value in one.items():
        if value is not None:
            setattr(known, name, (getattr(known, name) or 0) + value)


def forget_days(session: Session, before: int | None = None) -> None:
    """Sums of the days that begin before that instant go (None: all of them; they can be made again)."""
    session.execute(delete(UsageDay) if before is None else delete(UsageDay).where(UsageDay.day < before))


def _found(
    session: Session, start: int, end: int, user_id: str | None, channel: tuple[str, str] | None = None
) -> Subquery:
    """[start, end) as rows to add up: whole days in sums where there are any, single requests for the rest."""
    begin, stop = -(-start // DAY_MS) * DAY_MS, min(end - end % DAY_MS, summed_until(session))
    spans = [(start, end)] if begin >= stop else [(start, begin), (stop, end)]
    parts = []
    for first, last in spans:
        query = select(*(getattr(Usage, name) for name in _WHO), *(_ONE[name].label(name) for name in _SUMS))
        parts.append(_of(Usage, query.where(Usage.at >= first, Usage.at < last), user_id, channel))
    if begin < stop:
        days = select(*(getattr(UsageDay, name) for name in (*_WHO, *_SUMS)))
        parts.append(_of(UsageDay, days.where(UsageDay.day >= begin, UsageDay.day < stop), user_id, channel))
    return union_all(*parts).subquery()


def _of(table: Any, query: Any, user_id: str | None, channel: tuple[str, str] | None) -> Any:
    if user_id is not None:
        query = query.where(table.user_id == user_id)
    if channel is not None:
        query = query.where(table.node_id == channel[0], table.channel == channel[1])
    return query


def _summed(name: str, column: Any) -> Any:
    """PostgreSQL's sum of BIGINT is NUMERIC."""
    whole = func.sum(column)
    return (whole if name in _REAL else cast(whole, BigInteger)).label(name)

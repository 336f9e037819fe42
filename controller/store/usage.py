"""Requests that the gateways served, as they counted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, case, cast, func, null, select
from sqlalchemy.orm import Session

from controller.store.tables import ApiKey, Node, Usage, User


def totals(
    session: Session, start: int, end: int, user_id: str | None, limit: int, offset: int, by_key: bool = False
) -> Sequence[Row[Any]]:
    """Per person, channel and model, with `by_key` also per API key: (key_id, key, user_id, user, channel, model,
    requests, failed, seconds, first_byte_seconds, bytes_in, bytes_out, prompt_tokens, completion_tokens).

    First bytes are a mean over the requests that were answered by an engine; tokens None where no engine reported any."""
    key = (Usage.key_id, ApiKey.prefix) if by_key else ()
    answered = case((Usage.first_byte > 0, Usage.first_byte))
    query = (
        select(
            (Usage.key_id if by_key else null()).label("key_id"),
            (ApiKey.prefix if by_key else null()).label("key"),
            Usage.user_id,
            User.name.label("user"),
            (Node.name + "/" + Usage.channel).label("channel"),
            Usage.model,
            func.count().label("requests"),
            func.sum(case((Usage.status >= 400, 1), else_=0)).label("failed"),
            func.sum(Usage.duration).label("seconds"),
            cast(func.sum(Usage.bytes_in), BigInteger).label("bytes_in"),  # PostgreSQL's sum is NUMERIC
            cast(func.sum(Usage.bytes_out), BigInteger).label("bytes_out"),
            func.avg(answered).label("first_byte_seconds"),
            cast(func.sum(Usage.prompt_tokens), BigInteger).label("prompt_tokens"),
            cast(func.sum(Usage.completion_tokens), BigInteger).label("completion_tokens"),
        )
        .outerjoin(User, User.id == Usage.user_id)
        .outerjoin(Node, Node.id == Usage.node_id)
        .where(Usage.at >= start, Usage.at < end)
        .group_by(Usage.user_id, User.name, Node.name, Usage.channel, Usage.model, *key)
        .order_by(Usage.user_id, Node.name, Usage.channel, Usage.model, *key)
        .limit(limit)
        .offset(offset)
    )
    if by_key:
        query = query.outerjoin(ApiKey, ApiKey.id == Usage.key_id)
    return session.execute(query.where(Usage.user_id == user_id) if user_id else query).all()


def sums(
    session: Session, start: int, end: int, user_id: str | None = None, channel: tuple[str, str] | None = None
) -> Sequence[Row[Any]]:
    """One row a (user_id, node_id, channel, model): requests, failed, seconds, bytes_in, bytes_out, first_bytes (their
    sum), answered (how many that is of), prompt_tokens, completion_tokens. One scan, without names: a year has a million
    requests and some hundred of these. `channel` = (node id, name)."""
    query = (
        select(
            Usage.user_id,
            Usage.node_id,
            Usage.channel,
            Usage.model,
            func.count().label("requests"),
            func.sum(case((Usage.status >= 400, 1), else_=0)).label("failed"),
            func.sum(Usage.duration).label("seconds"),
            cast(func.sum(Usage.bytes_in), BigInteger).label("bytes_in"),
            cast(func.sum(Usage.bytes_out), BigInteger).label("bytes_out"),
            func.coalesce(func.sum(case((Usage.first_byte > 0, Usage.first_byte))), 0.0).label("first_bytes"),
            func.count(case((Usage.first_byte > 0, 1))).label("answered"),
            cast(func.sum(Usage.prompt_tokens), BigInteger).label("prompt_tokens"),
            cast(func.sum(Usage.completion_tokens), BigInteger).label("completion_tokens"),
        )
        .where(Usage.at >= start, Usage.at < end)
        .group_by(Usage.user_id, Usage.node_id, Usage.channel, Usage.model)
    )
    if user_id is not None:
        query = query.where(Usage.user_id == user_id)
    if channel is not None:
        query = query.where(Usage.node_id == channel[0], Usage.channel == channel[1])
    return session.execute(query).all()

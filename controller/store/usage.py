"""Requests that the gateways served, as they counted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, case, cast, func, select
from sqlalchemy.orm import Session

from controller.store.tables import Node, Usage, User


def totals(session: Session, start: int, end: int, user_id: str | None, limit: int, offset: int) -> Sequence[Row[Any]]:
    """Per person, channel and model: (user_id, user, channel, model, requests, failed, seconds, bytes_in, bytes_out)."""
    query = (
        select(
            Usage.user_id,
            User.name.label("user"),
            (Node.name + "/" + Usage.channel).label("channel"),
            Usage.model,
            func.count().label("requests"),
            func.sum(case((Usage.status >= 400, 1), else_=0)).label("failed"),
            func.sum(Usage.duration).label("seconds"),
            cast(func.sum(Usage.bytes_in), BigInteger).label("bytes_in"),  # PostgreSQL's sum is NUMERIC
            cast(func.sum(Usage.bytes_out), BigInteger).label("bytes_out"),
        )
        .outerjoin(User, User.id == Usage.user_id)
        .outerjoin(Node, Node.id == Usage.node_id)
        .where(Usage.at >= start, Usage.at < end)
        .group_by(Usage.user_id, User.name, Node.name, Usage.channel, Usage.model)
        .order_by(Usage.user_id, Node.name, Usage.channel, Usage.model)
        .limit(limit)
        .offset(offset)
    )
    return session.execute(query.where(Usage.user_id == user_id) if user_id else query).all()

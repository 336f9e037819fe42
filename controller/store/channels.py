"""Channels and the nodes they belong to: by name, by page, and what an administrator sets."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from sqlalchemy import Select, String, and_, bindparam, or_, select
from sqlalchemy.orm import Session

from controller.store.tables import Channel, Node

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
Row = tuple[Channel, Node]


def find(session: Session, node: str, name: str, with_gone: bool = True) -> Row | None:
    """A channel of a node that has not been removed; one no longer declared is still found."""
    row = session.execute(_by_name(with_gone), {"node": node, "channel": name}).one_or_none()
    return (row[0], row[1]) if row is not None else None


@cache
def _by_name(with_gone: bool) -> Select[*tuple[Any, ...]]:
    """Made once: to put a statement together takes longer than to run it."""
    query: Select[*tuple[Any, ...]] = (
        select(Channel, Node)
        .join(Node)
        .where(
            Node.name == bindparam("node", type_=String),
            Channel.name == bindparam("channel", type_=String),
            Node.removed_at.is_(None),
        )
    )
    return query if with_gone else query.where(Channel.gone_at.is_(None))


def by_full_name(session: Session, full_name: str) -> Row | None:
    """`node/channel`."""
    node, slash, name = full_name.partition("/")
    return find(session, node, name) if slash else None


def by_id(session: Session, channel_id: str) -> Row | None:
    row = session.execute(select(Channel, Node).join(Node).where(Channel.id == channel_id)).one_or_none()
    return (row[0], row[1]) if row is not None else None


def page(session: Session, limit: int, after: tuple[str, str] | None = None, node: str | None = None) -> list[Row]:
    """By node and name, those of removed nodes left out."""
    query = (
        select(Channel, Node).join(Node).where(Node.removed_at.is_(None)).order_by(Node.name, Channel.name).limit(limit)
    )
    if after is not None:
        query = query.where(or_(Node.name > after[0], and_(Node.name == after[0], Channel.name > after[1])))
    if node is not None:
        query = query.where(Node.name == node)
    return [(channel, owner) for channel, owner in session.execute(query)]


def of_nodes(session: Session, node_ids: list[str]) -> list[Row]:
    """Every channel of these nodes that is still declared."""
    query = (
        select(Channel, Node)
        .join(Node)
        .where(Channel.node_id.in_(node_ids), Channel.gone_at.is_(None))
        .order_by(Node.name, Channel.name)
    )
    return [(channel, node) for channel, node in session.execute(query)]


def names_of_nodes(session: Session, node_ids: list[str]) -> dict[str, list[str]]:
    """The full names of the same, by node id: of a thousand nodes at once, so no objects are made of the rows."""
    query = (
        select(Node.id, Node.name, Channel.name)
        .join_from(Channel, Node)
        .where(Channel.node_id.in_(node_ids), Channel.gone_at.is_(None))
        .order_by(Node.name, Channel.name)
    )
    found: dict[str, list[str]] = {}
    for node_id, node, channel in session.execute(query):
        found.setdefault(node_id, []).append(f"{node}/{channel}")
    return found


def places(session: Session, channel_ids: set[str]) -> dict[str, tuple[str, str | None]]:
    """id -> (`node/channel`, what has become of one that is not there any more: `node_removed` or `channel_gone`)."""
    query = (
        select(Channel.id, Node.name, Channel.name, Node.removed_at, Channel.gone_at)
        .join(Node)
        .where(Channel.id.in_(channel_ids))
    )
    return {
        i: (f"{node}/{name}", "node_removed" if removed is not None else "channel_gone" if gone is not None else None)
        for i, node, name, removed, gone in session.execute(query)
    }


def full_names(session: Session, channel_ids: set[str]) -> dict[str, str]:
    """id -> `node/channel`."""
    return {i: name for i, (name, _) in places(session, channel_ids).items()}

"""Nodes as an administrator sees them: added (with a one-time token), cordoned, removed."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from controller.errors import Invalid
from controller.said import say
from controller.store.channels import NAME
from controller.store.tables import Channel, JoinToken, Node

TOKEN_MS = 15 * 60_000


def find(session: Session, name: str) -> Node | None:
    """A node that has not been removed."""
    return session.scalars(select(Node).where(Node.name == name, Node.removed_at.is_(None))).one_or_none()


def page(session: Session, limit: int, after: str | None = None) -> list[Node]:
    """By name, removed ones left out."""
    query = select(Node).where(Node.removed_at.is_(None)).order_by(Node.name).limit(limit)
    return list(session.scalars(query.where(Node.name > after) if after else query))


def certificates(session: Session) -> list[tuple[str, dict[str, Any] | None]]:
    """(name, what it last said of its certificates) of every enrolled node that may connect."""
    rows = session.execute(
        select(Node.name, Node.certificate).where(
            Node.removed_at.is_(None), Node.disabled_at.is_(None), Node.certificate_serial.is_not(None)
        )
    )
    return [(name, said) for name, said in rows]


def invite(session: Session, name: str, actor_id: str | None, now: int) -> tuple[Node, str, int]:
    """The node (made, or taken up again after a removal), its new one-time token and when that ends.

    Older tokens of the name stop counting. Raises Invalid.
    """
    if not NAME.fullmatch(name):
        raise Invalid.field(
            "name", say("must be 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a-z or 0-9")
        )
    node = session.scalars(select(Node).where(Node.name == name)).one_or_none()
    if node is None:
        node = Node(name=name, created_at=now)
        session.add(node)
    if node.removed_at is not None:
        node.removed_at, node.cordoned, node.disabled_at = None, False, None
        node.drain_until, node.cordon_reason = None, ""
    session.execute(
        update(JoinToken).where(JoinToken.node_name == name, JoinToken.used_at.is_(None)).values(expires_at=now)
    )
    token = secrets.token_urlsafe(32)
    session.add(
        JoinToken(
            node_name=name,
            sha256=hashlib.sha256(token.encode()).hexdigest(),
            created_at=now,
            expires_at=now + TOKEN_MS,
            created_by=actor_id,
        )
    )
    session.flush()
    return node, token, now + TOKEN_MS


def remove(session: Session, node: Node, now: int) -> None:
    """The node may not connect any more; its channels are gone, history is kept."""
    node.removed_at, node.certificate_serial = now, None
    session.execute(update(Channel).where(Channel.node_id == node.id, Channel.gone_at.is_(None)).values(gone_at=now))
    session.execute(
        update(JoinToken).where(JoinToken.node_name == node.name, JoinToken.used_at.is_(None)).values(expires_at=now)
    )

"""True commands on their way to nodes: taken from the table, sent once and before their deadline, answered once.

A command is marked `sent` before it is written to the stream: should either side fall in between, it is lost and
never carried out twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select, update

from controller.store.session import Store
from controller.store.tables import Command, Node

ANSWER_WITHIN_MS = 60_000  # after the deadline: a switch that was begun in time may take so long to be told


@dataclass(frozen=True, slots=True)
class Due:
    """A command to send now."""

    id: str
    node: str
    kind: str
    channel: str
    deadline: int


class Commands:
    """Calls go to the database: use a worker thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def take(self, connected: Collection[str], now: int) -> list[Due]:
        """Those waiting for a connected node, now marked sent; those past their deadline are marked late."""
        with self._store.read() as session:
            if not session.scalars(select(Command.id).where(Command.state.in_(("waiting", "sent"))).limit(1)).first():
                return []
            waiting = session.execute(
                select(Command, Node.name).join(Node).where(Command.state == "waiting").order_by(Command.id)
            ).all()
            silent = session.scalars(
                select(Command.id).where(Command.state == "sent", Command.deadline + ANSWER_WITHIN_MS <= now)
            ).all()
        late = [c.id for c, _ in waiting if c.deadline <= now]
        due = [
            Due(c.id, name, c.kind, c.channel, c.deadline)
            for c, name in waiting
            if c.deadline > now and name in connected
        ]
        if not (late or due or silent):
            return []
        with self._store.write() as session:
            _mark(session, late, "waiting", "late", "the node was not connected before the deadline")
            _mark(session, list(silent), "sent", "late", "the node did not answer")
            taken = _mark(session, [d.id for d in due], "waiting", "sent", "")
        return [d for d in due if d.id in taken]

    def answered(self, node_id: str, command_id: str, ok: bool, reason: str) -> None:
        """What the node made of it."""
        with self._store.write() as session:
            session.execute(
                update(Command)
                .where(Command.id == command_id, Command.node_id == node_id, Command.state.in_(("sent", "late")))
                .values(state="done" if ok else "refused", answer=reason)
            )


def _mark(session, ids: list[str], old: str, new: str, answer: str) -> set[str]:
    taken = set()
    for command_id in ids:
        changed = session.execute(
            update(Command).where(Command.id == command_id, Command.state == old).values(state=new, answer=answer)
        )
        if changed.rowcount == 1:
            taken.add(command_id)
    return taken

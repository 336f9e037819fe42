"""The catalogue: one entry a model name, with the nodes that hold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from controller.store.tables import Channel, Node, NodeModel


@dataclass(slots=True)
class Entry:
    """A model and where it lies: rows with their nodes, by node name."""

    name: str
    held: list[tuple[NodeModel, Node]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """The size where it is complete (nodes that disagree: the largest)."""
        whole = [m.size_bytes for m, _ in self.held if not m.incomplete]
        return max(whole or [m.size_bytes for m, _ in self.held])


def page(session: Session, limit: int, after: str | None = None) -> list[Entry]:
    """Entries by name."""
    query = select(NodeModel.name).join(Node).where(NodeModel.gone_at.is_(None), Node.removed_at.is_(None))
    query = query.distinct().order_by(NodeModel.name).limit(limit)
    names = list(session.scalars(query.where(NodeModel.name > after) if after else query))
    found = entries(session, names)
    return [found[name] for name in names]


def entries(session: Session, names: Iterable[str]) -> dict[str, Entry]:
    """Entries of those names that are in the catalogue."""
    query = (
        select(NodeModel, Node)
        .join(Node)
        .where(NodeModel.name.in_(list(names)), NodeModel.gone_at.is_(None), Node.removed_at.is_(None))
        .order_by(NodeModel.name, Node.name)
    )
    found: dict[str, Entry] = {}
    for row, node in session.execute(query):
        found.setdefault(row.name, Entry(row.name)).held.append((row, node))
    return found


def find(session: Session, name: str) -> Entry | None:
    return entries(session, [name]).get(name)


def on_channel(session: Session, channel: Channel, name: str) -> NodeModel | None:
    """The model as this channel's folders hold it."""
    row = session.get(NodeModel, (channel.node_id, name))
    if row is None or row.gone_at is not None or channel.name not in row.channels:
        return None
    return row


def exceeds(size_bytes: int, channel: Channel) -> bool:
    """Whether the files are larger than the channel's GPU memory; unknown memory, or no GPU, is never exceeded."""
    return channel.gpu_memory_bytes > 0 and size_bytes > channel.gpu_memory_bytes

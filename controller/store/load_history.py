"""The newest loads of models, for people: how long each took, and which failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controller.store.tables import Load, Node


@dataclass(frozen=True, slots=True)
class PastLoad:
    model: str
    node: str
    preset: str | None
    ok: bool
    seconds: float
    at: int
    gpu_memory_bytes: int | None


def newest(session: Session, models: Collection[str], most: int = 5) -> dict[tuple[str, str], list[PastLoad]]:
    """The newest `most` loads of every (model, node name), failed ones too, newest first. One statement."""
    place = (
        func.row_number()
        .over(partition_by=(Load.node_id, Load.model), order_by=(Load.at.desc(), Load.id.desc()))
        .label("place")
    )
    ranked = select(Load, place).where(Load.model.in_(list(models))).subquery()
    query = (
        select(
            ranked.c.model,
            Node.name,
            ranked.c.preset,
            ranked.c.ok,
            ranked.c.seconds,
            ranked.c.at,
            ranked.c.gpu_memory_bytes,
        )
        .join(Node, Node.id == ranked.c.node_id)
        .where(ranked.c.place <= most)
        .order_by(ranked.c.at.desc())
    )
    found: dict[tuple[str, str], list[PastLoad]] = {}
    for row in session.execute(query):
        found.setdefault((row[0], row[1]), []).append(PastLoad(*row))
    return found


def gpu_memory(session: Session, models: Collection[str]) -> dict[tuple[str, str | None], int]:
    """How much GPU memory (model, preset) took when it was last loaded and a node could say. One statement."""
    place = (
        func.row_number()
        .over(partition_by=(Load.model, Load.preset), order_by=(Load.at.desc(), Load.id.desc()))
        .label("place")
    )
    told = Load.model.in_(list(models)), Load.ok.is_(True), Load.gpu_memory_bytes.is_not(None)
    ranked = select(Load.model, Load.preset, Load.gpu_memory_bytes, place).where(*told).subquery()
    rows = session.execute(select(ranked).where(ranked.c.place == 1))
    return {(r.model, r.preset): r.gpu_memory_bytes for r in rows}

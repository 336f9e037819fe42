"""Presets: named engine parameters of a model. Deleted ones keep their row, so that history still reads."""

from __future__ import annotations

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from controller.store.tables import Preset


def get(session: Session, preset_id: str) -> Preset | None:
    """One that has not been deleted."""
    row = session.get(Preset, preset_id)
    return row if row is not None and row.deleted_at is None else None


def find(session: Session, model: str, name: str) -> Preset | None:
    return session.scalars(
        select(Preset).where(Preset.model == model, Preset.name == name, Preset.deleted_at.is_(None))
    ).one_or_none()


def page(
    session: Session, limit: int, after: tuple[str, str, str] | None = None, model: str | None = None
) -> list[Preset]:
    """By model and name; `after` is (model, name, id) of the last one shown."""
    query = (
        select(Preset).where(Preset.deleted_at.is_(None)).order_by(Preset.model, Preset.name, Preset.id).limit(limit)
    )
    if model is not None:
        query = query.where(Preset.model == model)
    if after is not None:
        query = query.where(tuple_(Preset.model, Preset.name, Preset.id) > tuple_(*after))
    return list(session.scalars(query))

"""Presets: named engine parameters of a model. Deleted ones keep their row, so that history still reads."""

from __future__ import annotations

from sqlalchemy import and_, or_, select, tuple_
from sqlalchemy.orm import Session

from controller.store.tables import Channel, Node, Preset, Reservation, holding


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


def running_with(session: Session, row: Preset, now: int) -> list[Reservation]:
    """Reservations that run with a preset."""
    return list(
        session.scalars(
            select(Reservation).where(
                Reservation.status == "approved",
                Reservation.starts_at <= now,
                Reservation.ends_at > now,
                Reservation.model == row.model,
                Reservation.preset == row.name,
            )
        )
    )


def uses(session: Session, row: Preset, now: int) -> list[str]:
    """What names a preset: channels' defaults and overrides, bookings that have not ended."""
    default = and_(Channel.default_model == row.model, Channel.default_preset == row.name)
    override = and_(Channel.override_model == row.model, Channel.override_preset == row.name)
    where = select(Node.name, Channel.name).join(Node).where(Node.removed_at.is_(None), or_(default, override))
    found = [f"channel {node}/{name}" for node, name in session.execute(where.order_by(Node.name, Channel.name))]
    held = select(Reservation.id).where(
        holding(Reservation.status),
        Reservation.ends_at > now,
        Reservation.model == row.model,
        Reservation.preset == row.name,
    )
    return found + [f"booking {i}" for i in session.scalars(held.order_by(Reservation.starts_at).limit(20))]

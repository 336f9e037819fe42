"""Load times out of the store: the newest successful loads of a model on a node, one statement for any number of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session

from controller.scheduling.load_times import LAST, estimate
from controller.store.tables import Load, NodeModel


class LoadTimes:
    """The newest loads of some models on some nodes; `seconds` gives the estimate for one target."""

    def __init__(self, rows: Iterable[tuple[str, str, str | None, float]]) -> None:
        self._by_model: dict[tuple[str, str], list[tuple[str | None, float]]] = {}
        for node_id, model, preset, seconds in rows:
            self._by_model.setdefault((node_id, model), []).append((preset, seconds))

    def seconds(self, node_id: str, model: str, preset: str | None, size_bytes: int, disk_read_mbps: float) -> float:
        """The estimate for a target on a node."""
        loads = self._by_model.get((node_id, model), ())
        return estimate(
            [seconds for name, seconds in loads if name == preset],
            [seconds for _, seconds in loads],
            size_bytes,
            disk_read_mbps,
        )


def read_load_times(session: Session, node_ids: Collection[str], models: Collection[str]) -> LoadTimes:
    """The newest five successful loads of every (node, model, preset) among these. One statement."""
    rows = session.execute(_newest(), {"nodes": list(node_ids), "models": list(models)})
    return LoadTimes((r.node_id, r.model, r.preset, r.seconds) for r in rows)


@cache
def _newest() -> Select[*tuple[Any, ...]]:
    """Made once: to put the statement together takes longer than to run it."""
    newest = (
        select(
            Load.node_id,
            Load.model,
            Load.preset,
            Load.seconds,
            Load.at,
            func.row_number()
            .over(partition_by=(Load.node_id, Load.model, Load.preset), order_by=(Load.at.desc(), Load.id.desc()))
            .label("place"),
        )
        .where(
            Load.ok.is_(True),
            Load.node_id.in_(bindparam("nodes", expanding=True)),
            Load.model.in_(bindparam("models", expanding=True)),
        )
        .subquery()
    )
    return (
        select(newest.c.node_id, newest.c.model, newest.c.preset, newest.c.seconds)
        .where(newest.c.place <= LAST)
        .order_by(newest.c.at.desc())
    )


def load_seconds(session: Session, node_id: str, model: str, preset: str | None, disk_mbps: float) -> float:
    """How long (model, preset) will take to load on a node, in seconds. A model that is not known there counts as of
    size 0. Two statements."""
    size = session.execute(
        select(NodeModel.size_bytes).where(NodeModel.node_id == node_id, NodeModel.name == model)
    ).scalar_one_or_none()
    return read_load_times(session, (node_id,), (model,)).seconds(node_id, model, preset, size or 0, disk_mbps)

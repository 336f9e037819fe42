"""Who leads and what all controllers have in common, and a number that grows with every change. One row each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from controller.store.tables.base import Base


class Leader(Base):
    """One row: who plans. On SQLite the epoch grows at each start."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str] = mapped_column(Text)
    renewed_at: Mapped[int] = mapped_column(BigInteger)
    fleet_address: Mapped[str] = mapped_column(Text, default="", server_default="")  # where agents find it
    # Digests of what every controller of the database must have alike: {"ca": …, "session_key": …}.
    secrets: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    # The instant from which the last pruning counted its days back; NULL: there was none. A clock that jumps moves it slowly.
    pruned_at: Mapped[int | None] = mapped_column(BigInteger)


class Revision(Base):
    """One row: a number that grows with every change a page or the planner could see."""

    __tablename__ = "revision"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)

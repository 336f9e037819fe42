"""Guarded writes: an UPDATE that names the state it expects; nothing changed = somebody was faster."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, Executable
from sqlalchemy.orm import Session


def changed(session: Session, statement: Executable) -> int:
    """Runs an UPDATE or DELETE and says how many rows it met."""
    return cast("CursorResult[Any]", session.execute(statement)).rowcount

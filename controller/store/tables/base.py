"""What every table is made with: ids, and names that sort alike in both databases."""

from __future__ import annotations

import secrets
import time
from typing import Any

from sqlalchemy import JSON, String
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeEngine


def sorted_text(length: int) -> TypeEngine[str]:
    """A name that lists are sorted and paged by: the same order (by code point) whatever the database's collation."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def new_id() -> str:
    """20 hexadecimal digits; ids made later sort later (to the millisecond)."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(5)[1:]}"


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}

"""Several controllers on one database must be one to nodes and browsers: the same CA, the same key for sessions.

The database keeps digests of both; a controller that has others, or would make its own, does not start. On SQLite there
is one controller, and nothing to compare.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sqlalchemy import select

from controller.store.session import Store
from controller.store.tables import Leader

FILES = {"ca": "ca/ca.crt", "session_key": "session.key"}


def differing(store: Store, state_dir: Path) -> str:
    """Why this controller cannot serve this database, in words; empty when it can. Before anything is made."""
    if store.sqlite:
        return ""
    known = _known(store)
    wrong = [FILES[name] for name, digest in known.items() if name in FILES and _digest(state_dir, name) != digest]
    if not wrong:
        return ""
    there = all((state_dir / name).exists() for name in wrong)
    return (
        f"{state_dir}: {' and '.join(wrong)} {'differ from' if there else 'are not those of'} the controllers of this "
        f"database; copy the folder ca and the file session.key from the state folder of one of them (mode 0600)"
    )


def remember(store: Store, state_dir: Path) -> None:
    """Notes what this controller has, where the database knows of none (or of what has since been replaced here)."""
    if store.sqlite:
        return
    mine = {name: digest for name in FILES if (digest := _digest(state_dir, name))}
    if _known(store) != mine:
        with store.write() as session:
            row = session.get(Leader, 1)
            if row is not None:
                row.secrets = mine


def _known(store: Store) -> dict[str, str]:
    with store.read() as session:
        return dict(session.scalar(select(Leader.secrets).where(Leader.id == 1)) or {})


def _digest(state_dir: Path, name: str) -> str:
    try:
        return hashlib.sha256((state_dir / FILES[name]).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""

"""Several controllers on one database must be one to nodes and browsers: the same CA, the same key for sessions, and the
same key for what is sealed in the database.

The database keeps digests of these; a controller that has others, or would make its own, does not start. On SQLite there
is one controller, and nothing to compare.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import select

from controller import vault
from controller.settings import Settings
from controller.store.session import Store
from controller.store.tables import Leader

FILES = {"ca": "ca/ca.crt", "session_key": "session.key", "secrets_key": vault.FILE}


def differing(store: Store, settings: Settings) -> str:
    """Why this controller cannot serve this database, in words; empty when it can. Before anything is made."""
    wrong, state = _wrong(store, settings), settings.state_dir
    if not wrong:
        return ""
    there = all((state / FILES[name]).exists() for name in wrong)
    told = (
        f"{state}: {' and '.join(FILES[name] for name in wrong)} {'differ from' if there else 'are not those of'} the "
        f"controllers of this database; copy the folder ca and the files session.key and {vault.FILE} from the state "
        "folder of one of them (mode 0600)"
    )
    if "secrets_key" in wrong and settings.secrets_key:
        told += f"; {vault.VARIABLE} is set here: give each of them the same"
    return told


def files_that_differ(store: Store, settings: Settings) -> str:
    """The same for everybody's eyes: no folder, no remedy."""
    wrong = [FILES[name] for name in _wrong(store, settings)]
    return (
        f"{' and '.join(wrong)} differ from the other controllers'; `slotserve doctor` here says what to do"
        if wrong
        else ""
    )


def remember(store: Store, settings: Settings) -> None:
    """Notes what this controller has, where the database knows of none (or of what has since been replaced here)."""
    if store.sqlite:
        return
    mine = {name: digest for name in FILES if (digest := _digest(settings, name))}
    if _known(store) != mine:
        with store.write() as session:
            row = session.get(Leader, 1)
            if row is not None:
                row.secrets = mine


def _wrong(store: Store, settings: Settings) -> list[str]:
    if store.sqlite:
        return []
    return [name for name, digest in _known(store).items() if name in FILES and _digest(settings, name) != digest]


def _known(store: Store) -> dict[str, str]:
    with store.read() as session:
        return dict(session.scalar(select(Leader.secrets).where(Leader.id == 1)) or {})


def _digest(settings: Settings, name: str) -> str:
    if name == "secrets_key":
        found = vault.there(settings)
        return found.fingerprint() if found else ""
    try:
        return hashlib.sha256((settings.state_dir / FILES[name]).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""

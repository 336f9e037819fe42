"""The table of key hashes that every node's gateway checks by itself: made from the store, sent as what changed.

Revoked keys, and keys of people who are disabled, are simply not in it; an expiry is carried along, for the gateway
knows the time.
"""

from __future__ import annotations

from sqlalchemy import select

from controller.store.session import Store
from controller.store.tables import ApiKey, User
from protos import fleet_pb2

Table = dict[str, tuple[str, str, str, str, int]]  # id -> sha256, user id, user name, role, expires at ms


def load_table(store: Store, now: int) -> Table:
    """Every key that opens a gateway now."""
    with store.read() as session:
        rows = session.execute(
            select(ApiKey.id, ApiKey.sha256, ApiKey.user_id, User.name, User.role, ApiKey.expires_at)
            .join(User, User.id == ApiKey.user_id)
            .where(ApiKey.revoked_at.is_(None), User.disabled_at.is_(None))
        ).all()
    return {i: (h, u, n, r, e or 0) for i, h, u, n, r, e in rows if e is None or e > now}


def whole(table: Table) -> fleet_pb2.KeyTable:
    """The table for a node that has just connected."""
    return fleet_pb2.KeyTable(whole=True, keys=[_key(i, table) for i in sorted(table)])


def changes(old: Table, new: Table) -> fleet_pb2.KeyTable | None:
    """What turns `old` into `new`; None where nothing does."""
    added = sorted(i for i in new if old.get(i) != new[i])
    removed = sorted(old.keys() - new.keys())
    if not added and not removed:
        return None
    return fleet_pb2.KeyTable(keys=[_key(i, new) for i in added], removed_ids=removed)


def _key(key_id: str, table: Table) -> fleet_pb2.Key:
    sha256, user_id, user_name, role, expires = table[key_id]
    return fleet_pb2.Key(
        id=key_id, sha256=sha256, user_id=user_id, user_name=user_name, role=role, expires_at_ms=expires
    )

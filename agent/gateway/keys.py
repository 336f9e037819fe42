"""API keys as the gateway knows them: by the SHA-256 of the key, never the key itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.admission import Caller


@dataclass(frozen=True, slots=True)
class Key:
    """One valid key and the person behind it. `expires_at` in node time, None = never."""

    id: str
    caller: Caller
    sha256: str
    expires_at: int | None = None


class Keys:
    """The table of keys; replaced whole."""

    def __init__(self) -> None:
        self._by_hash: dict[str, Key] = {}
        self.known = False  # whether a table was ever given

    def __len__(self) -> int:
        return len(self._by_hash)

    def replace(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self._by_hash = {
            sha: Key(
                id=str(row.get("id", "")),
                caller=Caller(str(row["user_id"]), str(row.get("user_name") or ""), str(row.get("role") or "user")),
                sha256=sha,
                expires_at=row.get("expires_at_ms") or None,
            )
            for sha, row in rows.items()
        }
        self.known = True

    def find(self, presented: bytes | None, now: int) -> Key | None:
        """The key's entry, or None for no, an unknown or an expired one."""
        return self.find_hash(hash_of(presented), now) if presented else None

    def find_hash(self, sha256: str, now: int) -> Key | None:
        """The same by the key's hash."""
        key = self._by_hash.get(sha256)
        if key is None or (key.expires_at is not None and key.expires_at <= now):
            return None
        return key

    def still_valid(self, key: Key, now: int) -> bool:
        """Whether a key that was let in earlier may go on: not revoked, expired or of a disabled person meanwhile."""
        current = self._by_hash.get(key.sha256)
        return (
            current is not None
            and current.caller.user_id == key.caller.user_id
            and (current.expires_at is None or current.expires_at > now)
        )


def hash_of(presented: bytes) -> str:
    return hashlib.sha256(presented).hexdigest()


def presented(authorization: bytes | None, x_api_key: bytes | None) -> bytes | None:
    """The key in a request's headers: `Authorization: Bearer …` first, else `x-api-key`."""
    if authorization is not None and authorization[:7].lower() == b"bearer ":
        return authorization[7:].strip()
    return x_api_key.strip() if x_api_key is not None else None

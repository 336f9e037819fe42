"""Keys that are made at the first start and kept in a file of the state folder that only this user reads."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def kept(path: Path, make: Callable[[], bytes], good: Callable[[bytes], bool]) -> bytes:
    """The key of a file; one that is not there, or is not `good`, is made. Of several starts at once the first one wins."""
    found = _read(path)
    if found is not None and good(found):
        return found
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = make()
    fresh = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, key)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(fresh, path)
    except FileExistsError:
        current = _read(path)
        if current is not None and good(current):
            return current
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    return key


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None

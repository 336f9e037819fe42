"""Files of the state folder: written whole (temporary file, fsync, rename) and private."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, data: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Replaces `path` with `data`; a reader sees the old file or the new one, also after a power cut when `sync`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:  # however it ends, no scratch file stays; raised again
        Path(name).unlink(missing_ok=True)
        raise
    if sync:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

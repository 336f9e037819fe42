"""What engines compile (kernels, graphs, shaders): a folder a channel, kept over launches, for it would be made anew at
every start. Bounded: one that has grown over its limit is put aside before the next start and removed.

All or nothing: a cache with holes is worse than none, and engines fill a new one by themselves.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from pathlib import Path

log = logging.getLogger(__name__)
ASIDE = ".old-"


class CacheFolder:
    """`limit` in bytes, 0: nothing is kept. `size`: as measured last, None before."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.size: int | None = None

    def measure(self) -> None:
        """May take seconds: there are many small files. For a thread, while no engine runs or whenever one has ended."""
        self.size = size_of(self.path)

    def measure_aside(self) -> None:
        """`measure` in a thread of its own; also removes what was put aside."""
        threading.Thread(target=self._look, name="engine-cache", daemon=True).start()

    def before_start(self) -> None:
        """No engine runs: what is too large is put aside, at once."""
        if self.size is None or self.size <= self.limit:
            return
        aside = self.path.with_name(f"{self.path.name}{ASIDE}{secrets.token_hex(4)}")
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        except OSError as err:
            log.warning("engine cache not removed folder=%s error=%s", self.path, err)
            return
        log.warning(
            "engine cache removed, over its limit folder=%s bytes=%s limit=%s", self.path, self.size, self.limit
        )
        self.size = 0
        self.measure_aside()

    def _look(self) -> None:
        for old in self.path.parent.glob(f"{self.path.name}{ASIDE}*"):
            shutil.rmtree(old, ignore_errors=True)
        self.measure()


def size_of(folder: Path) -> int:
    """Bytes on the disk below a folder; links count as themselves. What vanishes meanwhile counts nothing."""
    total, todo = 0, [os.fspath(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    try:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                    except OSError:
                        continue
        except OSError:
            continue
    return total

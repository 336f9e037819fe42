"""Whether a model lies on a disk that rotates: from there it loads slowly, and people are told to move it to an SSD."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

SYS_BLOCK = Path("/sys/dev/block")
VIRTUAL = re.compile(r"/virtio\d|/xvd|/vd[a-z]+$|/nbd\d|/rbd\d|/loop\d")


@lru_cache(maxsize=64)
def rotates(device: int, sys_block: Path = SYS_BLOCK) -> bool:
    """Of a device number (`st_dev`); False where that is not known, as for network disks and those of virtual machines."""
    try:
        return _rotates((sys_block / f"{os.major(device)}:{os.minor(device)}").resolve())
    except OSError:
        return False


def _rotates(block: Path) -> bool:
    below = list((block / "slaves").glob("*"))
    if below:  # a volume or an array: as what it is made of
        return any(_rotates(disk.resolve()) for disk in below)
    disk = block.parent if (block / "partition").exists() else block
    if VIRTUAL.search(str(disk)):
        return False  # they say that they rotate, whatever is behind them
    flag = disk / "queue" / "rotational"
    return flag.exists() and flag.read_text().strip() == "1"

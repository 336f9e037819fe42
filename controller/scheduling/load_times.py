"""How long a target will take to load on a node: what its last loads took, or what its size says before the first.

A load's duration is process start to ready. All weight files of a split model or a folder count as its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.scheduling.types import Seconds

LAST = 5
START_SECONDS: Seconds = 15.0
MEGABYTE = 1_000_000


def estimate(
    same_preset: Sequence[Seconds], any_preset: Sequence[Seconds], size_bytes: int, disk_read_mbps: float
) -> Seconds:
    """Seconds to load: the mean of the newest five successful loads with the same preset, where there are none of those
    with any preset, where there are none at all size / speed + 15 s. Both sequences newest first; never rounded."""
    newest = list(same_preset[:LAST]) or list(any_preset[:LAST])
    if newest:
        return sum(newest) / len(newest)
    return max(size_bytes, 0) / (disk_read_mbps * MEGABYTE) + START_SECONDS

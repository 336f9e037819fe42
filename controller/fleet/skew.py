"""Which agents this controller works with: as old as two minor versions, never newer. Upgrades begin with the controller."""

from __future__ import annotations

import re

OLDER_MINORS = 2
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def refusal(agent: str, controller: str) -> str:
    """Why an agent of that version is turned away, in words for both sides; empty where it is not."""
    theirs, ours = _parts(agent), _parts(controller)
    if theirs is None or ours is None:
        return (
            f"the agent says that it is version {agent!r}; this controller is {controller}: install a release on both"
        )
    if theirs > ours:
        return (
            f"the agent is version {agent}, newer than this controller ({controller}): upgrade the controller first, or put "
            f"{controller} on the node"
        )
    if theirs[0] != ours[0] or ours[1] - theirs[1] > OLDER_MINORS:
        return (
            f"the agent is version {agent}, more than {OLDER_MINORS} minor versions older than this controller ({controller}): "
            "upgrade the node"
        )
    return ""


def _parts(version: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None

"""Which agents this controller works with: as old as two minor versions, never newer. Upgrades begin with the controller."""

from __future__ import annotations

import re

from controller.said import say

OLDER_MINORS = 2
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def refusal(agent: str, controller: str) -> str:
    """Why an agent of that version is turned away, in words for both sides; empty where it is not."""
    theirs, ours = _parts(agent), _parts(controller)
    if theirs is None or ours is None:
        return say(
            "the agent says that it is version %(agent)s; this controller is %(controller)s: install a release on both",
            agent=repr(agent),
            controller=controller,
        )
    if theirs > ours:
        return say(
            "the agent is version %(agent)s, newer than this controller (%(controller)s): upgrade the controller first, or "
            "put %(controller)s on the node",
            agent=agent,
            controller=controller,
        )
    if theirs[0] != ours[0] or ours[1] - theirs[1] > OLDER_MINORS:
        return say(
            "the agent is version %(agent)s, more than %(minors)s minor versions older than this controller "
            "(%(controller)s): upgrade the node",
            agent=agent,
            minors=OLDER_MINORS,
            controller=controller,
        )
    return ""


def _parts(version: str) -> tuple[int, int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None

"""What can be wrong with the place of a booking: no contact with its node, maintenance of the node, a channel that is no
longer there. One sentence each (kept with the booking, `problem`) and a code (`flags`)."""

from __future__ import annotations

from controller.said import say
from controller.store.tables import Node, Reservation
from controller.times import text_of

_AWAY = "no contact with node"
_DRAINED = "maintenance of node"
_GONE = {
    "channel_gone": say("the node no longer declares this channel"),
    "node_removed": say("the node of this channel was removed"),
}


def no_contact(node: str) -> str:
    """Nothing is heard of the node."""
    return f"{_AWAY} {node}"


def drained(node: Node) -> str:
    """The node is drained; only for one that is."""
    why = f": {node.cordon_reason}" if node.cordon_reason else ""
    return f"{_DRAINED} {node.name} until {text_of(node.drain_until)}{why}"


def flag(problem: str) -> str | None:
    """The code of a sentence of ours."""
    return "node_away" if problem.startswith(_AWAY) else "node_drained" if problem.startswith(_DRAINED) else None


def told(row: Reservation, gone: str | None) -> tuple[str | None, list[str]]:
    """(what is wrong in words, its codes); `gone`: what has become of a channel that is not there any more."""
    if gone:
        return _GONE[gone], [gone]
    code = flag(row.problem or "")
    return row.problem or None, [code] if code else []


def closed(node: Node, at: int) -> bool:
    """Whether the node takes no booking that begins at that instant."""
    return node.cordoned and (node.drain_until is None or at < node.drain_until)

"""A request for which no channel of this node is there: where the model is to be had in the fleet, in words, and, by
setting, the nodes to which the request is relayed.

Looked into only when the node itself has said no: a request that is served here never comes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.admission import Admission, Caller
from agent.core.directory import NOWHERE, Directory, Elsewhere, Place, look
from agent.core.routing import AUTO, listed
from agent.core.types import Access, Millis
from agent.gateway.errors import Refusal, of_admission

if TYPE_CHECKING:
    from agent.gateway.keys import Key
    from agent.gateway.server import Gateway

UNKNOWN = "model_not_found"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The refusal with all that is known, and the places to relay to instead, the best first (none: it is refused)."""

    refusal: Refusal
    places: tuple[Place, ...] = ()


def read(message: Mapping[str, Any], node: str = "") -> Directory:
    """A `directory` message; `node`: this one, whose own places are left out. Raises KeyError, TypeError, ValueError."""
    places = (_place(row) for row in message["places"] if row["node"] != node)
    as_of = message.get("as_of_ms")
    return Directory.of(places, None if as_of is None else int(as_of))


def read_members(message: Mapping[str, Any]) -> frozenset[str] | None:
    """Of the same message: which nodes may relay to this one. None: not said."""
    text = str(message.get("members") or "")
    return frozenset(text[at : at + 32] for at in range(0, len(text), 32)) if text else None


def instead(
    gateway: Gateway, key: Key, model: str | None, named: str | None, admission: Admission, relayed: bool
) -> Verdict:
    """What becomes of a request that no channel here serves. `relayed`: another node has sent it; it goes no further."""
    param = "model" if admission.code == UNKNOWN else None
    refusal = of_admission(admission, param)
    if relayed:
        if admission.code == UNKNOWN and gateway.node:
            refusal.message = f"Node {gateway.node} was asked: {refusal.message}"
        return Verdict(refusal)
    if named is not None or model in (None, "", AUTO):
        return Verdict(refusal)
    found = look(gateway.directory, key.caller, str(model), gateway.clock.now_ms(), gateway.next_turn())
    if found is NOWHERE or not found.words:
        return Verdict(refusal)
    unknown = admission.code == UNKNOWN
    if unknown or found.served:
        refusal.message = f"{refusal.message} {found.words}"
        refusal.elsewhere = found.rows()
        if unknown:
            refusal.until = found.next_at
    return Verdict(refusal, _relays(gateway, found, admission) if gateway.relays is not None else ())


def models(directory: Directory, caller: Caller, now: Millis, known: Sequence[str]) -> list[dict[str, Any]]:
    """What other nodes serve the caller now, as `GET /v1/models` lists it (`known`: listed already)."""
    items = []
    for name in sorted(set(directory.by_name) - set(known)):
        found = [p for p in look(directory, caller, name, now).served if p.relay]
        if found:
            place = found[0]
            items.append({**listed(name, place.label, place.end), "node": place.node})
    return items


def unreachable(places: Sequence[Place], refusal: Refusal | None = None) -> Refusal:
    """None of the nodes that have the model could be reached."""
    where = ", ".join(dict.fromkeys(p.address for p in places))
    message = (
        f"The model is served on {where}, which cannot be reached from this node just now; call it there, or again."
    )
    if refusal is not None and refusal.code != UNKNOWN:
        message = f"{refusal.message} ({message})"
    return Refusal(503, "node_unreachable", message, retry_after=5)


def _relays(gateway: Gateway, found: Elsewhere, admission: Admission) -> tuple[Place, ...]:
    """Where the request may go: to whoever serves it, and, where this node does not know the model at all, to whoever
    has it but not for the caller or not yet, for the words and the wait that only that node knows."""
    if admission.own:
        return ()  # the caller's own reservation here is getting ready
    places = found.served
    if not places and admission.code == UNKNOWN:
        places = found.known
    return tuple(p for p in places if p.relay and p.node != gateway.node)


def _place(row: Mapping[str, Any]) -> Place:
    end = row.get("until_ms")
    return Place(
        node=str(row["node"]),
        channel=str(row["channel"]),
        url=str(row.get("url") or ""),
        relay=str(row.get("relay") or ""),
        model=str(row["model"]),
        preset=row.get("preset") or None,
        ready=bool(row.get("ready")),
        start=int(row["from_ms"]),
        end=int(end) if end else None,
        windows=tuple(
            Access(
                reservation_id="",
                kind="exclusive" if w["kind"] == "exclusive" else "model",
                holder_id=str(w["holder_id"]),
                participant_ids=frozenset(str(p) for p in w.get("participant_ids") or ()),
                holder_name="",
                start=int(w["start"]),
                end=int(w["end"]),
            )
            for w in row.get("windows") or ()
            if int(w["start"]) < int(w["end"])
        ),
    )

"""Where else in the fleet a model is to be had: what the controller last said of other nodes, asked for one caller.

A place is a stretch of time in which a channel of another node has a model. Only what the caller may use counts as
served; of the rest he hears until when it is reserved, never by whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.admission import Caller, may_use
from agent.core.types import Access, Millis
from agent.core.words import moment, when

MOST_NAMED = 3  # places in one message


@dataclass(frozen=True, slots=True)
class Place:
    """`ready`: it answered when this was said. [start, end): the stretch; `end` None: not known. `url`: what people call;
    `relay`: host:port for other gateways, "" where it takes no relays. `windows`: reservations meanwhile."""

    node: str
    channel: str
    url: str
    relay: str
    model: str
    preset: str | None
    ready: bool
    start: Millis
    end: Millis | None = None
    windows: tuple[Access, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.node}/{self.channel}"

    @property
    def address(self) -> str:
        """The place for people: where it is, and what to call."""
        return f"{self.label} ({self.url})" if self.url else self.label

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model, f"{self.model}:{self.preset}") if self.preset else (self.model,)


@dataclass(frozen=True, slots=True)
class Directory:
    """`as_of`: when it was last known to be true; None: the controller is there, and says what changes."""

    by_name: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    as_of: Millis | None = None

    @staticmethod
    def of(places: Iterable[Place], as_of: Millis | None = None) -> Directory:
        by_name: dict[str, list[Place]] = {}
        for place in places:
            for name in place.names:
                by_name.setdefault(name, []).append(place)
        return Directory({name: tuple(found) for name, found in by_name.items()}, as_of)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What a caller may hear of a name. `served`: answer him now, his own reservations first. `known`: have the model or
    are about to, but not for him, or not yet. `words`: sentences, "" where nobody has it; `next_at`: when he may have it
    where he may not now."""

    served: tuple[Place, ...] = ()
    known: tuple[Place, ...] = ()
    words: str = ""
    next_at: Millis | None = None

    def rows(self) -> list[dict[str, Any]]:
        """For programs: the same places."""
        return [
            {
                "node": p.node,
                "channel": p.label,
                "gateway_url": p.url or None,
                "served": p in self.served,
                "until": None if p.end is None else moment(p.end),
            }
            for p in (*self.served, *self.known)[:MOST_NAMED]
        ]


NOWHERE = Elsewhere()


def look(directory: Directory, caller: Caller, name: str, now: Millis, turn: int = 0) -> Elsewhere:
    """Where `caller` finds `name` now and next. `turn` grows with each request: equal places are taken in turns."""
    own: list[Place] = []
    free: list[Place] = []
    waiting: list[Place] = []
    shut: list[tuple[Millis, Place]] = []
    later: list[tuple[Millis, Place]] = []
    for place in directory.by_name.get(name, ()):
        if place.end is not None and place.end <= now:
            continue
        access = _access(place, now)
        opens = opens_at(place, caller, max(place.start, now))
        if place.start > now:
            if opens is not None:
                later.append((opens, place))
        elif access is not None and not may_use(access, caller):
            shut.append((_shut_until(place, caller, now), place))
            if opens is not None:
                later.append((opens, place))
        elif access is not None and access.kind == "exclusive":
            continue
        elif not place.ready:
            waiting.append(place)
        else:
            (free if access is None else own).append(place)
    served = (*_in_turn(own, turn), *_in_turn(free, turn))
    shut.sort(key=lambda x: (x[0], x[1].label))
    following = min(later, key=lambda x: (x[0], x[1].label), default=None)
    words = _words(served, waiting, shut, following, now)
    if words and directory.as_of is not None:
        words += f" (As known at {when(directory.as_of, now)}; the controller is not reached since.)"
    return Elsewhere(
        served,
        (*waiting, *(p for _, p in shut)),
        words,
        None if served or following is None else following[0],
    )


def opens_at(place: Place, caller: Caller, now: Millis) -> Millis | None:
    """The first instant from `now` on at which the caller may use the place; None: not while it has the model."""
    at = _shut_until(place, caller, now)
    return at if place.end is None or at < place.end else None


def _shut_until(place: Place, caller: Caller, now: Millis) -> Millis:
    """`now`, or the end of the reservations of others that follow each other from then on."""
    at = now
    while (access := _access(place, at)) is not None and not may_use(access, caller):
        at = access.end
    return at


def _access(place: Place, at: Millis) -> Access | None:
    return next((w for w in place.windows if w.start <= at < w.end), None)


def _in_turn(places: list[Place], turn: int) -> list[Place]:
    first = turn % len(places) if places else 0
    return places[first:] + places[:first]


def _words(
    served: tuple[Place, ...],
    waiting: list[Place],
    shut: list[tuple[Millis, Place]],
    following: tuple[Millis, Place] | None,
    now: Millis,
) -> str:
    if served:
        named = [p.address + (f" until {when(p.end, now)}" if p.end else "") for p in served[:MOST_NAMED]]
        more = f" and {len(served) - MOST_NAMED} more" if len(served) > MOST_NAMED else ""
        return f"It is served now on {', '.join(named)}{more}."
    said = []
    if waiting:
        said.append(f"It is not ready yet on {', '.join(p.address for p in waiting[:MOST_NAMED])}.")
    if shut:
        named = [f"{p.address}, reserved until {when(until, now)}" for until, p in shut[:MOST_NAMED]]
        said.append(f"It is on {'; on '.join(named)}.")
    if following is not None:
        at, place = following
        said.append(f"It is to be had next on {place.address} from {when(at, now)} on.")
    return " ".join(said)

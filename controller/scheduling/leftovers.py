"""Processes that are still on a bare card shortly before the booking's end, and at it: who is told what, and when. Pure.

Called whenever there is something new to look at; what is due is due once, for its id says which booking, end and look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from controller.scheduling.types import Millis
from controller.words import N_

WARN: Millis = 10 * 60_000
LOOK_BACK: Millis = 5 * 60_000  # a controller that was away that long past an end no longer tells of it


@dataclass(frozen=True, slots=True)
class Process:
    """A process on the card that is no engine of ours."""

    pid: int
    user: str
    command: str


@dataclass(frozen=True, slots=True)
class ExclusiveBooking:
    """An approved one, or one that has just ended (`end` is when it really did)."""

    id: str
    start: Millis
    end: Millis


@dataclass(frozen=True, slots=True)
class Due:
    """`when`: before the end the holder is told; at the end the next holder and the administrators as well. `id` makes it
    once: an extended booking is looked at again at its new end. `text` has the place %(processes)s."""

    id: str
    reservation_id: str
    when: Literal["before_end", "at_end"]
    text: str
    processes: str


def due(booking: ExclusiveBooking, now: Millis, processes: Sequence[Process]) -> Due | None:
    """What is to be told now, if anything: from 10 minutes before the end on (a booking that is shorter: from its start),
    and from the end on, while processes are there."""
    if not processes or now < booking.start:
        return None
    names = said(processes)
    if booking.end - WARN <= now < booking.end:
        text = N_(
            "Your time on the card ends soon, and these processes are still there: %(processes)s. Stop them by then."
        )
        return Due(f"card:{booking.id}:{booking.end}:before", booking.id, "before_end", text, names)
    if booking.end <= now < booking.end + LOOK_BACK:
        text = N_(
            "The time on the card is over, and these processes are still there: %(processes)s. Nothing else can start."
        )
        return Due(f"card:{booking.id}:{booking.end}:after", booking.id, "at_end", text, names)
    return None


def next_look(booking: ExclusiveBooking, now: Millis) -> Millis | None:
    """The next instant at which `due` may say something new without new processes."""
    return next((at for at in (max(booking.start, booking.end - WARN), booking.end) if at > now), None)


def said(processes: Sequence[Process]) -> str:
    """`python (pid 4711, of lin), …`"""
    return ", ".join(f"{p.command or 'a process'} (pid {p.pid}{', of ' + p.user if p.user else ''})" for p in processes)

"""The timetable of a channel: the target rules run forward over the next two days.

A step begins at every instant at which target, why, fallback, reservation or who-may-call changes. After the first step
the target decided last counts as what runs. Past the last step its target stays and the channel is not reserved.
"""

from __future__ import annotations

from collections.abc import Container

from controller.scheduling.targets import NEVER, Rulebook
from controller.scheduling.types import ChannelInput, Decision, Millis, PlanStep, Reservation

HOUR: Millis = 3_600_000
HORIZON_HOURS = 48


def horizon_end(now: Millis) -> Millis:
    """The whole hour at which the timetable ends: more than 48 and at most 49 hours ahead."""
    return (now // HOUR + HORIZON_HOURS + 1) * HOUR


def timetable(channel: ChannelInput, now: Millis) -> tuple[PlanStep, ...]:
    """The steps from `now` to the horizon, at least one. The first step's `at` is `now`; who knows since when it holds
    replaces it."""
    return look_ahead(channel, now)[1]


def look_ahead(channel: ChannelInput, now: Millis) -> tuple[Decision, tuple[PlanStep, ...]]:
    """The decision for `now` and the timetable that follows from it, at the price of one.

    A reservation that begins before the horizon is carried with its true end; nothing begins at or past the horizon.
    """
    horizon = horizon_end(now)
    book = Rulebook(channel)
    look = book.look
    current, committed, present = channel.current, channel.committed, book.present

    target, why, fallback, reservation, committed, until = look(now, current, committed, present)
    decision = Decision(target, why, fallback, reservation, committed, None if until >= NEVER else until)
    running = reservation if why == "reserved" or why == "exclusive" else None
    steps = [PlanStep(now, target, why, fallback, reservation, running)]

    last_target, last_why, last_fallback, last_reservation = target, why, fallback, reservation
    while until < horizon:
        at = until
        nothing: Container[str] = ()
        present = nothing if target is None else (target.identity,)
        target, why, fallback, reservation, committed, until = look(at, target, committed, present)
        if (
            target is not last_target
            or why != last_why
            or reservation is not last_reservation
            or fallback is not last_fallback
        ):
            running = reservation if why == "reserved" or why == "exclusive" else None
            steps.append(PlanStep(at, target, why, fallback, reservation, running))
            last_target, last_why, last_fallback, last_reservation = target, why, fallback, reservation
    return decision, tuple(steps)


def reaches_past(reservations: tuple[Reservation, ...], now: Millis) -> bool:
    """Whether the timetable changes at the next whole hour because a reservation lies past the horizon."""
    return bool(reservations) and reservations[-1].end > horizon_end(now)

"""Which target a channel should have at an instant, why, and when the answer can next change. The first rule wins:

1. a reservation runs: its target (exclusive: nothing);
2. the next one is close, now >= start - lead: its target already (exclusive: nothing);
3. the gap is too short to load the idle choice, which is not there yet: straight to the next one's target (exclusive:
   what runs stays until rule 2);
4. an override is in force: it;
5. the default, or nothing.

What rule 2 or 3 has chosen once stays chosen until that reservation begins, is changed, or another comes before it.
The timetable (plan.py) asks the same `Rulebook`, so that plan and look cannot disagree. Comparisons are exact: instants
are whole milliseconds, durations are rounded to microseconds first, so that 0.1 + 0.2 s is 300 ms and not a bit more.
"""

from __future__ import annotations

from collections.abc import Container

from controller.scheduling.types import ChannelInput, Decision, Millis, Reservation, Seconds, Target, Why

NEVER: Millis = 1 << 62
Look = tuple[Target | None, Why, Target | None, Reservation | None, str | None, Millis]


def decide(channel: ChannelInput, now: Millis) -> Decision:
    """The answer for `now`. Total: any input has exactly one answer.

    A reservation that has ended by `now` is passed over; `channel.present` is taken to contain `channel.current`.
    """
    book = Rulebook(channel)
    target, why, fallback, reservation, committed, until = book.look(
        now, channel.current, channel.committed, book.present
    )
    return Decision(target, why, fallback, reservation, committed, None if until >= NEVER else until)


def micros(seconds: Seconds) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)


class Rulebook:
    """The rules of one channel, ready to be asked for instants that do not go back."""

    __slots__ = (
        "_buffer",
        "_clear",
        "_close",
        "_default",
        "_index",
        "_lead",
        "_load",
        "_override",
        "_override_ends",
        "_prepared",
        "_reservations",
        "present",
    )

    def __init__(self, channel: ChannelInput) -> None:
        rules = channel.rules
        self._reservations = channel.reservations
        self._default = channel.default
        self._buffer = micros(rules.buffer)
        self._lead = micros(rules.lead)
        self._clear = micros(rules.stop_timeout) + self._buffer
        self._override = None if channel.override is None else channel.override.target
        self._override_ends = override_ends(channel)
        self._index = 0
        self._prepared = -1  # index that _load and _close belong to
        self._load = 0
        self._close: Millis = 0
        current = channel.current
        self.present: Container[str] = (
            channel.present
            if current is None or current.identity in channel.present
            else channel.present | {current.identity}
        )

    def look(self, now: Millis, current: Target | None, committed: str | None, present: Container[str]) -> Look:
        """(target, why, fallback, reservation, committed, until): `Decision` as a plain tuple, `until` NEVER for none.

        `current` is the target decided last, `present` the identities there are, `committed` the reservation that
        rule 2 or 3 has chosen already.
        """
        reservations = self._reservations
        index = self._index
        count = len(reservations)
        while index < count and reservations[index].end <= now:
            index += 1
        self._index = index

        default = self._default
        ends = self._override_ends
        idle = self._override if now < ends else default
        if index == count:
            if now < ends:
                return idle, "override", None, None, None, ends
            return idle, "default" if idle is not None else "idle", None, None, None, NEVER

        following = reservations[index]
        start = following.start
        target = following.target

        # Rule 1
        if start <= now:
            if target is None:
                return None, "exclusive", None, following, None, following.end
            if default is None or default.identity == target.identity:
                return target, "reserved", None, following, None, following.end
            return target, "reserved", default, following, None, following.end

        if index != self._prepared:
            self._prepare(index, following)

        # Rule 2
        close = self._close
        if now >= close:
            if target is None:
                return None, "clearing", None, following, following.id, start
            if default is None or default.identity == target.identity:
                return target, "preload", None, following, following.id, start
            return target, "preload", default, following, following.id, start

        # Rule 3, and what it or rule 2 has chosen before
        if committed == following.id:
            return self._kept(now, idle, current, following)
        if idle is not None and idle.identity not in present and (start - now) * 1000 < self._short(idle):
            return self._kept(now, idle, current, following)

        # Rules 4 and 5
        if now < ends:
            return idle, "override", None, None, None, close if close < ends else ends
        return idle, "default" if idle is not None else "idle", None, None, None, close

    def _prepare(self, index: int, following: Reservation) -> None:
        """Works out load time and rule 2's instant of a reservation that has become the next one."""
        self._prepared = index
        if following.target is None:
            self._load = 0
            lead = self._clear
        else:
            self._load = micros(following.target.load_seconds)
            lead = max(self._load + self._buffer, self._lead)
        self._close = following.start - lead // 1000

    def _short(self, idle: Target) -> int:
        """Microseconds that the gap must have for the idle choice to be worth loading."""
        return micros(idle.load_seconds) + self._load + 2 * self._buffer

    def _kept(self, now: Millis, idle: Target | None, current: Target | None, following: Reservation) -> Look:
        """The next reservation has been chosen and rule 2's instant has not come.

        `why` is the rule that holds: short_gap where the gap is too short, else (an estimate, a lead or the idle choice
        has changed since) preload. That is asked anew when the idle choice changes or the gap has shrunk enough.
        """
        close = self._close
        target = following.target
        if target is None:  # exclusive: what runs goes on until it must be cleared
            return current, "short_gap", self._fallback(current), following, following.id, close
        until = min(close, self._override_ends) if now < self._override_ends else close
        why: Why = "preload"
        if idle is not None:
            short = self._short(idle)
            if (following.start - now) * 1000 < short:
                why = "short_gap"
            else:
                until = min(until, following.start + -short // 1000 + 1)
        return target, why, self._fallback(target), following, following.id, until

    def _fallback(self, target: Target | None) -> Target | None:
        """The default, where it is another target that could serve in this one's place."""
        default = self._default
        if default is None or target is None or default.identity == target.identity:
            return None
        return default


def override_ends(channel: ChannelInput) -> Millis:
    """The instant from which the override is not in force; 0 where there is none or it is spent."""
    override = channel.override
    if override is None or (channel.last_begun is not None and channel.last_begun > override.set_at):
        return 0
    ends = NEVER if override.until is None else override.until
    for reservation in channel.reservations:
        if reservation.start > override.set_at:
            return min(ends, reservation.start)
    return ends

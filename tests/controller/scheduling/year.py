"""A channel's life in simulated time: people book, cancel, end early and extend, administrators override, estimates drift.

At each instant at which something happens, just before it and at once after, the rules' answer is compared with a second
statement of them (`say`), written as plainly as they can be said and sharing nothing with the product's code. What the
engine does with the answers (stop, load, serve) is followed as well, so that the hours in which nobody was served can be
counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Override, Reservation, Rules, Target

SECOND = 1000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
START = 1_800_000_000_000


def say(channel: ChannelInput, begun: list[int], now: int) -> tuple[Target | None, str]:
    """(target, why) as the rules are told to people. `begun`: instants at which reservations took effect."""
    rules, buffer = channel.rules, channel.rules.buffer * SECOND
    for one in channel.reservations:
        if one.start <= now < one.end:
            return one.target, "reserved" if one.kind == "model" else "exclusive"
    override = channel.override
    in_force = (
        override is not None
        and (override.until is None or now < override.until)
        and not any(at > override.set_at for at in begun if at <= now)
    )
    idle = override.target if override is not None and in_force else channel.default
    coming = sorted((r for r in channel.reservations if r.start > now), key=lambda r: r.start)
    if coming:
        following = coming[0]
        left = following.start - now
        if following.target is None:
            if left <= rules.stop_timeout * SECOND + buffer:
                return None, "clearing"
            load = 0.0
        else:
            load = following.target.load_seconds * SECOND
            if left <= max(load + buffer, rules.lead * SECOND):
                return following.target, "preload"
        there = channel.present | ({channel.current.identity} if channel.current else set())
        too_short = (
            idle is not None and idle.identity not in there and left < idle.load_seconds * SECOND + load + 2 * buffer
        )
        if too_short or channel.committed == following.id:
            # Once chosen, it stays chosen, also where the gap is no longer too short: then it is simply prepared.
            kept = channel.current if following.target is None else following.target
            still = idle is not None and left < idle.load_seconds * SECOND + load + 2 * buffer
            return kept, "short_gap" if still or following.target is None else "preload"
    if in_force and override is not None:
        return override.target, "override"
    return channel.default, "default" if channel.default else "idle"


@dataclass
class Hours:
    """Milliseconds of the channel's life. `late`: reserved, its model not ready; `loading`: outside reservations, a
    switch or load that a target asked for; `unplanned`: nothing served though a model should, for no such reason."""

    served: int = 0
    reserved: int = 0
    exclusive: int = 0
    late: int = 0
    loading: int = 0
    empty: int = 0
    unplanned: int = 0


@dataclass
class Engine:
    """What runs: `model` is being loaded until `ready_at`, then serves."""

    model: str | None = None
    ready_at: int = 0

    def follow(self, target: Target | None, now: int, rnd: random.Random) -> None:
        wanted = target.identity if target else None
        if wanted == self.model:
            return
        stop = 0 if self.model is None else rnd.randrange(2, 12) * SECOND
        took = 0 if target is None else round(target.load_seconds * rnd.uniform(0.8, 1.25) * SECOND)
        self.model, self.ready_at = wanted, now + stop + took


@dataclass
class Life:
    """One channel. `run(until)` advances it; a disagreement raises AssertionError that names the seed."""

    seed: int
    bookings_a_day: float = 6.0
    now: int = START
    hours: Hours = field(default_factory=Hours)
    looks: int = 0
    restarts: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        self.rnd = random.Random(self.seed)
        rnd = self.rnd
        self.targets = [Target(m, None, m, float(rnd.choice((8, 20, 45, 60, 90, 300, 600)))) for m in "ABCDE"]
        rules = Rules(
            buffer=float(rnd.choice((0, 60, 60, 120))),
            lead=float(rnd.choice((0, 180, 180, 600))),
            stop_timeout=float(rnd.choice((5, 30, 30))),
        )
        default = rnd.choice([*self.targets[:2], None])
        self.channel = ChannelInput((), default, rules=rules)
        self.engine = Engine()
        self.begun: list[int] = []

    def run(self, until: int) -> None:
        following = self.now
        while self.now < until:
            following += round(self.rnd.expovariate(self.bookings_a_day * 2.5 / DAY))
            self.advance(min(following, until))
            if self.now < until:
                self.happen()
                self.look()

    def advance(self, until: int) -> None:
        """From due instant to due instant; just before each, the answer is still the same."""
        while True:
            due = self.look()
            at = until if due is None else min(due, until)
            if at - 1 > self.now:
                self.check(at - 1)
            self.count(at)
            self.now = at
            self.pass_by()
            if at >= until:
                return

    def look(self) -> int | None:
        decision = self.check(self.now)
        before = self.engine.model
        self.engine.follow(decision.target, self.now, self.rnd)
        self.restarts += self.engine.model != before
        there = frozenset({decision.target.identity}) if decision.target else frozenset()
        self.channel = replace(self.channel, current=decision.target, committed=decision.committed, present=there)
        assert decision.until is None or decision.until > self.now, self.where("the same instant twice")
        return decision.until

    def check(self, at: int):
        self.looks += 1
        decision = decide(self.channel, at)
        wanted = say(self.channel, self.begun, at)
        assert (decision.target, decision.why) == wanted, self.where(f"at {at}: {decision} is not {wanted}")
        return decision

    def where(self, what: str) -> str:
        return f"seed {self.seed}, {(self.now - START) / DAY:.3f} days in: {what}\n{self.channel}"

    def pass_by(self) -> None:
        now = self.now
        self.begun += [r.start for r in self.channel.reservations if r.start == now]
        rows = tuple(r for r in self.channel.reservations if r.end > now)
        last = max(self.begun, default=None)
        self.channel = replace(self.channel, reservations=rows, last_begun=last)
        self.begun = self.begun[-1:]

    def happen(self) -> None:
        """Something that people do."""
        rnd, rows = self.rnd, self.channel.reservations
        kind = rnd.choices(
            ("book", "end", "extend", "override", "clear", "default", "estimate"), (60, 12, 8, 4, 4, 2, 10)
        )[0]
        if kind == "book":
            self.book()
        elif kind == "end" and rows:
            gone = rnd.choice(rows)
            self.change(r for r in rows if r is not gone)
        elif kind == "extend" and rows:
            one = rnd.choice(rows)
            end = one.end + rnd.choice((15, 30, 60)) * 60 * SECOND
            if not any(r.start < end and one.end < r.end for r in rows if r is not one):
                self.change(replace(r, end=end) if r is one else r for r in rows)
        elif kind == "override":
            lasts = rnd.choice((None, rnd.randrange(1, 12) * HOUR))
            until = None if lasts is None else self.now + lasts
            target = rnd.choice((*self.targets, None))
            self.channel = replace(self.channel, override=Override(target, self.now, until))
        elif kind == "clear":
            self.channel = replace(self.channel, override=None)
        elif kind == "default":
            self.channel = replace(self.channel, default=rnd.choice((*self.targets, None)))
        elif kind == "estimate":
            self.estimate()

    def book(self) -> None:
        rnd = self.rnd
        ahead = rnd.choice((0, rnd.randrange(HOUR), rnd.randrange(DAY), rnd.randrange(7 * DAY)))
        start = self.now + ahead
        ends = [r.end for r in self.channel.reservations]
        if ends and rnd.random() < 0.3:
            start = rnd.choice(ends) + rnd.choice((0, 0, rnd.randrange(600) * SECOND))  # back to back, or nearly
        end = start + rnd.choice((5, 30, 60, 120, 240, 480)) * 60 * SECOND
        if any(r.start < end and start < r.end for r in self.channel.reservations):
            return
        self.made += 1
        target = rnd.choice((*self.targets, self.targets[0], None))
        kind = "model" if target else "exclusive"
        row = Reservation(f"{self.seed}-{self.made}", start, end, kind, target)  # type: ignore[arg-type]
        if start == self.now:
            self.begun.append(start)
        self.change((*self.channel.reservations, row))

    def change(self, rows) -> None:
        ordered = tuple(sorted(rows, key=lambda r: r.start))
        committed = self.channel.committed
        if committed not in {r.id for r in ordered}:
            committed = None
        last = max(self.begun, default=None)
        self.channel = replace(self.channel, reservations=ordered, committed=committed, last_begun=last)

    def estimate(self) -> None:
        """A model's mean load time is another one now."""
        at = self.rnd.randrange(len(self.targets))
        fresh = replace(self.targets[at], load_seconds=float(self.rnd.choice((5, 15, 60, 120, 400, 900))))
        self.targets[at] = fresh

        def timed(target: Target | None) -> Target | None:
            return fresh if target is not None and target.identity == fresh.identity else target

        channel = self.channel
        self.channel = replace(
            channel,
            reservations=tuple(replace(r, target=timed(r.target)) for r in channel.reservations),
            default=timed(channel.default),
            current=timed(channel.current),
            override=channel.override and replace(channel.override, target=timed(channel.override.target)),
        )

    def count(self, until: int) -> None:
        """Adds the time up to `until` to what it was."""
        span = until - self.now
        ready = min(max(self.engine.ready_at, self.now), until)
        waiting, serving = ready - self.now, until - ready
        running = next((r for r in self.channel.reservations if r.start <= self.now < r.end), None)
        hours = self.hours
        if running is not None and running.target is None:
            hours.exclusive += span
        elif running is not None:
            hours.reserved += serving
            hours.late += waiting
        elif self.channel.current is None:
            hours.empty += span
        else:
            hours.loading += waiting
            if self.engine.model == self.channel.current.identity:
                hours.served += serving
            else:
                hours.unplanned += serving

"""Whatever happens: one target at every instant, bookings served, no flapping, and the plan is what ticking gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduling.plan import horizon_end, look_ahead, timetable
from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Decision, Override, PlanStep, Reservation, Rules, Target

NOW = 1_800_000_000_000
SPAN = 1500  # seconds that a history lasts
WHYS = {"reserved", "exclusive", "preload", "clearing", "short_gap", "override", "default", "idle"}

whole_seconds = st.integers(0, 200).map(float)
names = st.sampled_from("ABCD")
targets = st.builds(lambda name, load: Target(name, None, name.lower(), load), names, whole_seconds)
some_target = st.none() | targets
rules = st.builds(
    Rules,
    buffer=st.integers(0, 70).map(float),
    lead=st.sampled_from((0.0, 30.0, 180.0, 400.0)),
    stop_timeout=st.integers(0, 40).map(float),
)


@st.composite
def bookings(draw: st.DrawFn) -> tuple[Reservation, ...]:
    """Sorted and apart, often back to back, the first one possibly running."""
    at, made = draw(st.integers(-300, 300)), []
    for number in range(draw(st.integers(0, 4))):
        at += draw(st.sampled_from((0, 0, 1, 60, 120, 200, 300)) | st.integers(0, 500))
        length = draw(st.integers(1, 500))
        target = draw(some_target)
        made.append(booking(f"r{number}", at, at + length, target))
        at += length
    return tuple(r for r in made if r.end > NOW)


def booking(name: str, start: int, end: int, target: Target | None) -> Reservation:
    return Reservation(name, NOW + start * 1000, NOW + end * 1000, "model" if target else "exclusive", target)


overrides = st.none() | st.builds(
    lambda target, set_at, lasts: Override(
        target, NOW + set_at * 1000, None if lasts is None else NOW + (set_at + lasts) * 1000
    ),
    some_target,
    st.integers(-400, 0),
    st.none() | st.integers(1, 1200),
)


@st.composite
def channels(draw: st.DrawFn) -> ChannelInput:
    reservations = draw(bookings())
    following = next((r.id for r in reservations if r.start > NOW), None)
    return ChannelInput(
        reservations,
        draw(some_target),
        draw(overrides),
        draw(st.none() | st.integers(-500, 0).map(lambda s: NOW + s * 1000)),
        draw(st.sampled_from((None, following))),
        draw(some_target),
        draw(st.frozensets(st.sampled_from("abcd"), max_size=2)),
        draw(rules),
    )


def acted(channel: ChannelInput, decision: Decision) -> ChannelInput:
    identity = {decision.target.identity} if decision.target else ()
    return replace(channel, current=decision.target, committed=decision.committed, present=frozenset(identity))


@given(channels())
@settings(max_examples=150, deadline=None)
def test_the_plan_equals_ticking_second_by_second(channel: ChannelInput) -> None:
    steps = list(timetable(channel, NOW))
    assert steps[0].at == NOW
    assert all(a.at < b.at for a, b in pairwise(steps))
    index = 0
    for second in range(SPAN + 1500):
        now = NOW + second * 1000
        while index + 1 < len(steps) and steps[index + 1].at <= now:
            index += 1
        decision = decide(channel, now)
        running = decision.reservation if decision.why in ("reserved", "exclusive") else None
        ticked = PlanStep(
            steps[index].at, decision.target, decision.why, decision.fallback, decision.reservation, running
        )
        assert steps[index] == ticked, f"{second} s after the plan was made"
        channel = acted(channel, decision)


@given(channels(), st.integers(0, 3_600_000))
@settings(max_examples=150, deadline=None)
def test_steps_differ_and_the_horizon_is_a_whole_hour(channel: ChannelInput, off: int) -> None:
    now = NOW + off
    decision, steps = look_ahead(channel, now)
    assert decision == decide(channel, now)
    assert all(a[1:] != b[1:] for a, b in pairwise(steps)), "a step changes something"
    end = horizon_end(now)
    assert end % 3_600_000 == 0
    assert 48 * 3_600_000 < end - now <= 49 * 3_600_000
    assert all(s.at < end for s in steps)


@given(channels())
@settings(max_examples=300, deadline=None)
def test_one_answer_and_it_holds_until_it_says(channel: ChannelInput) -> None:
    """Between two changes of the input nothing changes before `until`; asked at `until`, the answer moves on."""
    now, end = NOW, NOW + 3 * SPAN * 1000
    while now < end:
        decision = decide(channel, now)
        assert decision.why in WHYS
        running = next((r for r in channel.reservations if r.start <= now < r.end), None)
        if running is not None:
            assert (decision.target, decision.reservation) == (running.target, running)
        assert decision.fallback is None or (
            decision.target is not None and decision.fallback.identity != decision.target.identity
        )
        channel = acted(channel, decision)
        until = end if decision.until is None else decision.until
        assert until > now
        for instant in {now + 1, (now + until) // 2, until - 1} - {now, until}:
            if now < instant < until:
                later = decide(channel, instant)
                assert later._replace(until=None) == decision._replace(until=None)
                assert later.until == decision.until
        now = until


@dataclass
class World:
    """A channel over time: each event is one change of the input."""

    channel: ChannelInput
    made: int = 0

    def book(self, now: int, start: int, length: int, target: Target | None) -> None:
        begin, end = now + start * 1000, now + (start + length) * 1000
        if any(r.start < end and begin < r.end for r in self.channel.reservations):
            return
        self.made += 1
        new = Reservation(f"n{self.made}", begin, end, "model" if target else "exclusive", target)
        rows = sorted((*self.channel.reservations, new), key=lambda r: r.start)
        self.channel = replace(self.channel, reservations=tuple(rows))

    def end(self, now: int, index: int) -> None:
        rows = self.channel.reservations
        if rows:
            gone = rows[index % len(rows)]
            begun = [gone.start] if gone.start <= now else []
            last = max([*begun, self.channel.last_begun or 0]) or None
            self.channel = replace(self.channel, reservations=tuple(r for r in rows if r is not gone), last_begun=last)

    def pass_to(self, now: int) -> None:
        begun = [r.start for r in self.channel.reservations if r.start <= now]
        last = max([*begun, self.channel.last_begun or 0]) or None
        rows = tuple(r for r in self.channel.reservations if r.end > now)
        self.channel = replace(self.channel, reservations=rows, last_begun=last)

    def reload_times(self, load: dict[str, float]) -> None:
        def timed(target: Target | None) -> Target | None:
            return target and replace(target, load_seconds=load.get(target.identity, target.load_seconds))

        c = self.channel
        self.channel = replace(
            c,
            reservations=tuple(replace(r, target=timed(r.target)) for r in c.reservations),
            default=timed(c.default),
            override=c.override and replace(c.override, target=timed(c.override.target)),
        )


estimates = st.tuples(st.just("estimate"), st.dictionaries(st.sampled_from("abcd"), whole_seconds))
rule_changes = st.tuples(st.just("rules"), rules)
events = st.one_of(
    st.tuples(st.just("book"), st.integers(0, 600), st.integers(1, 500), some_target),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("override"), some_target, st.none() | st.integers(1, 600)),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("default"), some_target),
    st.tuples(st.just("present"), st.frozensets(st.sampled_from("abcd"), max_size=2)),
    estimates,
    rule_changes,
)


def happen(world: World, now: int, event: tuple) -> None:
    kind, rest = event[0], event[1:]
    if kind == "book":
        world.book(now, *rest)
    elif kind == "end":
        world.end(now, *rest)
    elif kind == "estimate":
        world.reload_times(*rest)
    elif kind == "override":
        target, lasts = rest
        until = None if lasts is None else now + lasts * 1000
        world.channel = replace(world.channel, override=Override(target, now, until))
    else:
        name = {"clear": "override"}.get(kind, kind)
        world.channel = replace(world.channel, **{name: rest[0]})


@given(channels(), st.lists(st.tuples(st.integers(0, 90), events), max_size=25))
@settings(max_examples=200, deadline=None)
def test_random_histories(channel: ChannelInput, history: list[tuple[int, tuple]]) -> None:
    world, now = World(channel), NOW
    announced: int | None = NOW
    chosen: Reservation | None = None
    for wait, event in [*history, (90, ("clear", None))]:
        for _ in range(wait):
            decision = decide(world.channel, now)
            running = [r for r in world.channel.reservations if r.start <= now < r.end]
            if running:
                assert decision.target == running[0].target
            if announced is None or now < announced:
                assert decision.target == world.channel.current, "changed at an instant that was not announced"
            world.channel = acted(world.channel, decision)
            announced = decision.until
            chosen = decision.reservation if decision.committed else None
            now += 1000
            world.pass_to(now)
        if chosen is not None and (event[0] in ("estimate", "rules") or event[0] in ("override", "clear", "default")):
            before = decide(world.channel, now)
            happen(world, now, event)
            after = decide(world.channel, now)
            if before.committed == chosen.id:
                kept = world.channel.current if chosen.target is None and after.why == "short_gap" else chosen.target
                assert after.committed == chosen.id
                assert after.target == kept, "what was chosen stays chosen"
        else:
            happen(world, now, event)
        announced = now

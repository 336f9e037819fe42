"""What scheduling costs: one look, the plans of a big fleet, and how long planning ever holds the event loop.

    python -m tests.bench.bench_scheduling        (BENCH_JSON=FILE writes the figures as JSON as well)

Everything is made up with a fixed seed; each figure is the median of several runs. Times are processor time of the
one thread that works: on an idle machine the same as by the clock, and not changed by what else a machine does.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from controller.fleet.live import Live
from controller.fleet.planner import Planner
from controller.fleet.snapshot import ChannelState, NodeState
from controller.scheduling.plan import look_ahead, timetable
from controller.scheduling.targets import decide
from controller.scheduling.types import ChannelInput, Reservation, Target, identity_of
from controller.settings import Settings
from controller.store import migrate
from controller.store.launches import Launch
from controller.store.session import Store
from tests.bench.report import report
from tests.controller.scheduling.year import DAY, START, Life

HOUR = 3_600_000
NOW = 1_800_000_000_000
CHANNELS, A_NODE, BOOKINGS, RUNS = 8_000, 8, 20, 5
YEAR_CHANNELS = 100
MODELS = [f"model-{n}" for n in range(6)]
LAUNCHES = [
    Launch(
        identity=identity_of(model, None, "llama.cpp", ["-c", "32768"], {}),
        model=model,
        preset=None,
        engine="llama.cpp",
        args=["-c", "32768"],
        env={},
        load_timeout_seconds=None,
        load_seconds=30.0 + 40 * n,
    )
    for n, model in enumerate(MODELS)
]
TARGETS = [Target(entry["model"], None, entry["identity"], entry["load_seconds"]) for entry in LAUNCHES]


def channel(bookings: int, seed: int) -> ChannelInput:
    """A channel with so many bookings over the next 48 hours, one in ten exclusive, with gaps between them."""
    rnd = random.Random(seed)
    share = 48 * HOUR // bookings
    rows = []
    for n in range(bookings):
        start = NOW + n * share + rnd.randrange(share // 3)
        target = None if rnd.random() < 0.1 else rnd.choice(TARGETS[1:])
        end = start + rnd.randrange(share // 4, share // 2)
        rows.append(Reservation(f"{seed}-{n}", start, end, "model" if target else "exclusive", target, f"user-{n}"))
    first = TARGETS[0]
    return ChannelInput(tuple(rows), first, current=first, present=frozenset({first.identity}))


def nodes(inputs: list[ChannelInput]) -> Iterator[NodeState]:
    """The same channels as the planner gets them, eight a node."""
    by_identity = {entry["identity"]: entry for entry in LAUNCHES}
    for begin in range(0, len(inputs), A_NODE):
        state = NodeState(f"n{begin}", f"n{begin}", {}, 0, None)
        for n, one in enumerate(inputs[begin : begin + A_NODE]):
            versions = {r.id: 1 for r in one.reservations}
            state.channels.append(ChannelState(f"{begin}/{n}", f"c{n}", one, by_identity, None, None, None, versions))
        yield state


def looks() -> float:
    """Microseconds of one look at a channel with 50 bookings, over the whole two days."""
    one, count = channel(50, 1), 2_000
    instants = [NOW + n * 48 * HOUR // count for n in range(count)]

    def run() -> float:
        began = time.thread_time()
        for instant in instants:
            decide(one, instant)
        return (time.thread_time() - began) / count * 1e6

    return median(run)


def fleet(inputs: list[ChannelInput]) -> float:
    """Seconds for the 48 h plans of the whole fleet."""

    def run() -> float:
        began = time.thread_time()
        for one in inputs:
            look_ahead(one, NOW)
        return time.thread_time() - began

    return median(run)


def planned(inputs: list[ChannelInput]) -> tuple[float, float]:
    """(seconds, longest hold of the loop in ms) of the planner's own decide step on the loop: plans, keys, bytes, hashes.

    A task that does nothing but sleep 0 measures how long the loop is ever kept from it.
    """

    async def run() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(f"sqlite:///{Path(folder) / 'bench.db'}")
            migrate.upgrade(store)
            planner = Planner(store, Live(), Settings(), lambda: NOW)
            holds: list[float] = []
            done = asyncio.Event()

            async def other_work() -> None:
                last = time.thread_time()
                while not done.is_set():
                    await asyncio.sleep(0)
                    now = time.thread_time()
                    holds.append(now - last)
                    last = now

            task = asyncio.create_task(other_work())
            await asyncio.sleep(0)
            spent = 0.0
            batch: list[NodeState] = []
            for state in nodes(inputs):
                batch.append(state)
                if len(batch) == 32:
                    began = time.thread_time()
                    await planner.decide(batch, NOW)
                    spent += time.thread_time() - began
                    batch = []
                    await asyncio.sleep(0)
            began = time.thread_time()
            await planner.decide(batch, NOW)
            spent += time.thread_time() - began
            done.set()
            await task
            store.close()
            return spent, max(holds) * 1000

    results = [asyncio.run(run()) for _ in range(RUNS)]
    return statistics.median(r[0] for r in results), statistics.median(r[1] for r in results)


def median(run: Callable[[], float]) -> float:
    return statistics.median(run() for _ in range(RUNS))


def year() -> list[dict[str, object]]:
    """A year of 100 channels: every answer at every instant compared with a second statement of the rules."""
    began, lives = time.thread_time(), [Life(seed, bookings_a_day=1.5) for seed in range(YEAR_CHANNELS)]
    for life in lives:
        life.run(START + 365 * DAY)  # raises where a rule does not hold
    whole = YEAR_CHANNELS * 365 * DAY / 100

    def share(name: str) -> float:
        return float(sum(getattr(life.hours, name) for life in lives) / whole)

    looks, made = sum(life.looks for life in lives), sum(life.made for life in lives)
    rows: list[dict[str, object]] = [
        {"name": f"a year of {YEAR_CHANNELS} channels, {made} bookings: instants compared", "value": looks, "unit": ""},
        {"name": "of them against a rule", "value": 0, "unit": "", "goal": "0"},
        {"name": "the channels' time: reserved, its model ready", "value": share("reserved"), "unit": "%"},
        {"name": "  reserved, its model not ready yet", "value": share("late"), "unit": "%"},
        {"name": "  bare cards", "value": share("exclusive"), "unit": "%"},
        {"name": "  open to all, a model ready", "value": share("served"), "unit": "%"},
        {"name": "  open to all, switching or loading", "value": share("loading"), "unit": "%"},
        {"name": "  empty, as wanted", "value": share("empty"), "unit": "%"},
        {"name": "  idle for no reason", "value": share("unplanned"), "unit": "%", "goal": "0"},
    ]
    rows[0]["peer"] = f"{time.thread_time() - began:.0f} s"
    return rows


def main() -> None:
    inputs = [channel(BOOKINGS, seed) for seed in range(CHANNELS)]
    gc.freeze()  # as the controller does with what there is at its start
    steps = sum(len(timetable(one, NOW)) for one in inputs)
    seconds, hold = planned(inputs)
    report(
        "scheduling",
        [
            {"name": "one look, 50 bookings", "value": looks(), "unit": "us", "goal": "< 10"},
            {
                "name": f"48 h plans, {CHANNELS} channels x {BOOKINGS} bookings ({steps} steps)",
                "value": fleet(inputs),
                "unit": "s",
                "goal": "< 1.5",
            },
            {"name": "the same with bytes and digests", "value": seconds, "unit": "s", "goal": "< 1.5"},
            {"name": "longest hold of the loop meanwhile", "value": hold, "unit": "ms", "goal": "< 10"},
        ],
    )
    report("a year in simulated time", year())


if __name__ == "__main__":
    main()

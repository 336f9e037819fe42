"""What reading the books costs: a million requests of a year, and a year of what 80 channels did, in sums, on both databases.

    python -m tests.bench.bench_usage        (BENCH_JSON=FILE writes the figures as JSON as well; ROWS=N for fewer)

The figures of what is asked are with the days that are over summed up, as the controller does every night, and once
without (what a fleet's first night finds). Each is the best of three, as wall-clock time with everything on one machine;
the made-up people use two models on three channels each. Where PostgreSQL is missing, SQLite alone is measured.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import insert, text

from controller import usage_days, usage_view
from controller.settings import Settings
from controller.store import migrate, usage
from controller.store.session import Store
from controller.store.tables import Channel, ChannelState, Node, Usage, User
from tests import postgres
from tests.bench.report import report

ROWS = int(os.environ.get("ROWS", "1000000"))
NOW, DAY = 1_800_000_000_000, 86_400_000
YEAR = 365 * DAY
NODES, CHANNELS, PEOPLE = 20, 4, 100
CHANGES = 30  # of a channel a day
PHASES = ("loading", "ready", "draining", "off", "retry_wait")


def main() -> None:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ss-bench-") as name:
        folder = Path(name)
        rows += measured("SQLite", f"sqlite:///{folder / 'usage.db'}")
        binaries = postgres.find_postgresql()
        if binaries is not None:
            server = postgres.start(binaries, folder)
            try:
                with server.database("template1") as url:
                    rows += measured("PostgreSQL", url)
            finally:
                postgres.stop(folder)
    report(f"usage of a year: {ROWS:,} requests ({os.cpu_count()} processors)", rows)


def measured(kind: str, url: str) -> list[dict[str, Any]]:
    store = Store(url)
    migrate.upgrade(store)
    fill(store)
    zone = ZoneInfo("Europe/Berlin")

    def summary(days: int, person: str | None = None) -> Callable[[Any], Any]:
        return lambda session: usage_view.summary(session, NOW - days * DAY, NOW, NOW, zone, person)

    figures = (
        (
            "requests by person, channel and model, a month",
            1,
            lambda s: usage.totals(s, NOW - 30 * DAY, NOW, None, 1000, 0),
        ),
        ("requests by person, channel and model, a year", 5, lambda s: usage.totals(s, NOW - YEAR, NOW, None, 1000, 0)),
        ("the whole summary, a month", 1, summary(30)),
        ("the whole summary, a year", 2, summary(365)),
        ("one person's summary, a year", 2, summary(365, "u001")),
    )
    direct = min(_timed(store, summary(365)) for _ in range(2))
    began = time.perf_counter()
    usage_days.add_up(store, Settings(notify_zone=zone.key), NOW)
    summing = time.perf_counter() - began
    found = [
        {"name": f"{kind}: the whole summary, a year, without sums of days", "value": direct, "unit": "s"},
        {"name": f"{kind}: summing up a year's days, two zones, once", "value": summing, "unit": "s"},
    ]
    for name, goal, what in figures:
        best = min(_timed(store, what) for _ in range(3))
        found.append({"name": f"{kind}: {name}", "value": best, "unit": "s", "goal": f"< {goal}"})
    store.close()
    return found


def fill(store: Store) -> None:
    rnd = random.Random(7)
    people = [{"id": f"u{n:03}", "name": f"person {n}", "role": "user", "created_at": 1} for n in range(PEOPLE)]
    nodes = [{"id": f"n{n:02}", "name": f"gpu{n:02}", "created_at": 1} for n in range(NODES)]
    channels = [
        {"id": f"{n['id']}c{c}", "node_id": n["id"], "name": f"c{c}", "created_at": 1}
        for n in nodes
        for c in range(CHANNELS)
    ]
    uses = {p["id"]: [(rnd.choice(channels), f"org/model-{rnd.randrange(20)}") for _ in range(3)] for p in people}
    with store.write() as session:
        for table, rows in ((User, people), (Node, nodes), (Channel, channels)):
            session.execute(insert(table), rows)
    for batch in _batches(ROWS):
        with store.write() as session:
            session.execute(insert(Usage), [_request(rnd, n, uses) for n in batch])
    for channel in channels:
        changes = 365 * CHANGES * ROWS // 1_000_000
        states = [
            {
                "id": f"{channel['id']}{n:06}", "channel_id": channel["id"], "at": NOW - YEAR + n * YEAR // max(1, changes),
                "phase": PHASES[n % len(PHASES)], "fallback": False, "reason": "",
            }
            for n in range(changes)
        ]  # fmt: skip
        with store.write() as session:
            if states:
                session.execute(insert(ChannelState), states)
    with store.engine.connect() as connection:
        connection.execute(text("ANALYZE"))
        connection.commit()


def _request(rnd: random.Random, n: int, uses: dict[str, list[tuple[dict[str, Any], str]]]) -> dict[str, Any]:
    person = f"u{rnd.randrange(PEOPLE):03}"
    channel, model = rnd.choice(uses[person])
    return {
        "id": f"r{n:08}", "node_id": channel["node_id"], "channel": channel["name"], "model": model, "key_id": f"k{person}",
        "user_id": person, "at": NOW - YEAR + n * YEAR // ROWS, "duration": 1.5, "first_byte": 0.2,
        "status": 200 if rnd.random() < 0.97 else 503, "outcome": "ok", "bytes_in": 1000, "bytes_out": 20_000,
        "prompt_tokens": 500, "completion_tokens": 200,
    }  # fmt: skip


def _batches(count: int, size: int = 20_000) -> Iterator[range]:
    for start in range(0, count, size):
        yield range(start, min(count, start + size))


def _timed(store: Store, what: Callable[[Any], Any]) -> float:
    with store.read() as session:
        began = time.perf_counter()
        what(session)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()

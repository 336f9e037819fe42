"""What booking costs: bookings a second through REST on PostgreSQL, a week's timeline, free slots across a fleet.

    python -m tests.bench.bench_booking        (BENCH_JSON=FILE writes the figures as JSON as well)

The database is a PostgreSQL of our own that syncs to disk as in operation. Bookings are made by 16 clients, each a
person with a key, over HTTP against a real `slotserve serve`; all of it (clients, controller, database) shares the
machine, and the processor time of each says which of them is the limit. Where PostgreSQL is missing, nothing is measured.
"""

from __future__ import annotations

import http.client
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from controller.context import Context
from controller.fleet.live import Live
from controller.settings import Settings
from controller.store.session import Store
from controller.times import text_of
from controller.web import create_app
from tests import booking_world, postgres
from tests.bench.report import report
from tests.booking_world import HOUR, PEOPLE, WEEK, Statements
from tests.parts import start, wait_until

CLIENTS, SECONDS, RUNS, CHANNELS = 16, 8.0, 15, 200
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
NOW = 1_800_000_000_000


def main() -> None:
    binaries = postgres.find_postgresql()
    if binaries is None:
        print(f"booking: PostgreSQL is not installed (Debian: {postgres.PACKAGE}); nothing is measured")
        return
    with tempfile.TemporaryDirectory(prefix="ss-bench-") as name:
        folder = Path(name)
        server = postgres.start(binaries, folder, DURABLE)
        try:
            with server.database() as url:
                bookings = booked(url, folder, server.pid)
            with server.database() as url:
                week = timeline(url, folder)
            with server.database() as url:
                slots = free_slots(url, folder)
        finally:
            postgres.stop(folder)
    report(
        f"booking on PostgreSQL ({os.cpu_count()} processors, everything on one machine)", [*bookings, *week, *slots]
    )


def booked(url: str, folder: Path, database: int) -> list[dict[str, Any]]:
    """Bookings a second, and whose processor time each takes."""
    now = time.time_ns() // 1_000_000
    secrets = prepare(url, now, CHANNELS, 0, 0)
    state = folder / "state"
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
    env |= {f"SLOTSERVE_{n}_LISTEN": "127.0.0.1:0" for n in ("HTTP", "FLEET", "ENROL")}
    env |= {"SLOTSERVE_STATE_DIR": str(state), "SLOTSERVE_DATABASE_URL": url, "SLOTSERVE_LOG_LEVEL": "warning"}
    env |= {"SLOTSERVE_MAX_DAYS_AHEAD": "0"}
    child = start([Path(sys.executable).parent / "slotserve", "serve"], folder / "serve.log", env)
    try:
        wait_until((state / "ports.json").exists, 30, "the controller is ready")
        port = json.loads((state / "ports.json").read_text())["http"]
        answers, results = multiprocessing.get_context("fork").Pipe()
        before, began = used(child.pid, database), time.monotonic()
        clients = multiprocessing.get_context("fork").Process(target=attack, args=(port, secrets, now, results))
        clients.start()
        said = answers.recv()
        clients.join()
        took = time.monotonic() - began
        after = used(child.pid, database)
    finally:
        child.stop()
    assert set(said["statuses"]) == {201}, said["statuses"]
    made = said["statuses"][201]
    shares = {who: (after[who] - before[who]) / made * 1000 for who in after} | {"clients": said["cpu"] / made * 1000}
    limit = max(shares, key=lambda who: shares[who])
    busy = "; ".join(f"{who} {ms:.1f} ms" for who, ms in shares.items())
    return [
        row("bookings made", made / said["seconds"], "/s", "> 100", f"processor time a booking: {busy}"),
        row("their median", statistics.median(said["times"]) * 1000, "ms", "", f"{CLIENTS} clients at once"),
        row("the limit", f"{limit}, {(after[limit] - before[limit]) / took:.0%} of one processor" if limit in after else limit, "", ""),
    ]  # fmt: skip


def attack(port: int, secrets: list[str], now: int, results: Any) -> None:
    """16 clients for some seconds: each books free hours, one after the other, on channels of its own."""
    statuses: dict[int, int] = {}
    times: list[float] = []
    lock = threading.Lock()
    end = time.monotonic() + SECONDS

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {secrets[number]}", "Content-Type": "application/json"}
        mine = range(number, CHANNELS, CLIENTS)
        for turn in itertools.count():
            channel, hour = mine[turn % len(mine)], 2 + 2 * (turn // len(mine))
            body = {
                "channel": f"gpu{channel // 10:03}/ch{channel % 10}", "model": booking_world.MODELS[turn % 20],
                "starts_at": text_of(now + hour * HOUR), "ends_at": text_of(now + (hour + 1) * HOUR),
            }  # fmt: skip
            began = time.monotonic()
            if began >= end:
                return
            connection.request("POST", "/api/v1/reservations", json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            with lock:
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
                times.append(time.monotonic() - began)

    began = time.monotonic()
    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.send(
        {"statuses": statuses, "times": times, "seconds": time.monotonic() - began, "cpu": time.process_time()}
    )


def timeline(url: str, folder: Path) -> list[dict[str, Any]]:
    """A week of all channels as a page would ask for it: the channels, and every booking of the week."""
    get = client(url, folder, CHANNELS, 2_000, 20_000)
    week = f"/reservations?from={text_of(NOW)}&to={text_of(NOW + WEEK)}&limit=1000"

    def ask() -> int:
        place, seen = "", 0
        while True:
            page = get(week + place)
            seen += len(page["items"])
            if not page["next"]:
                return seen
            place = f"&cursor={page['next']}"

    assert ask() == 2_000
    return figures(f"week of {CHANNELS} channels, 2,000 bookings of 20,000", ask, get.store, "< 100")


def free_slots(url: str, folder: Path) -> list[dict[str, Any]]:
    """The ten nearest free windows for a model that every one of 500 channels has, each with twenty bookings to come."""
    get = client(url, folder, 500, 10_000, 20_000)

    def ask() -> int:
        return len(get("/slots?model=org/model-1&minutes=240&limit=10")["items"])

    assert ask() == 10
    return figures("free slots over 500 channels, 10,000 bookings", ask, get.store, "< 200")


def figures(name: str, ask: Callable[[], int], store: Store, goal: str) -> list[dict[str, Any]]:
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1000)
    with Statements(store) as sent:
        ask()
    store.close()
    peer = f"fastest {min(took):.0f} ms; {sent.count} statements, sign-in among them"
    return [row(name, statistics.median(took), "ms", goal, peer)]


class client:
    """The application without a network: `get(path)` is the answer's JSON, as one person."""

    def __init__(self, url: str, folder: Path, channels: int, in_week: int, stored: int) -> None:
        secret = prepare(url, NOW, channels, in_week, stored)[0]
        self.store = Store(url)
        app = create_app(Context(Settings(state_dir=folder / "web"), self.store, Live(), clock=lambda: NOW))
        self._client, self._headers = app.test_client(), {"Authorization": f"Bearer {secret}"}

    def __call__(self, path: str) -> Any:
        answer = self._client.get(f"/api/v1{path}", headers=self._headers)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return answer.get_json()


def prepare(url: str, now: int, channels: int, in_week: int, stored: int) -> list[str]:
    """Fills the database; the people's keys."""
    store = Store(url)
    booking_world.fill(store, now, channels, in_week, stored)
    secrets = [f"sk-ss-bench-{n}" for n in range(PEOPLE)]
    for n, secret in enumerate(secrets):
        booking_world.key(store, f"u{n:03}", secret, now)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    store.close()
    return secrets


def used(controller: int, database: int) -> dict[str, float]:
    """Processor seconds so far of the controller, and of PostgreSQL with its backends."""

    def seconds(process: psutil.Process) -> float:
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system + times.children_user + times.children_system

    server = psutil.Process(database)
    backends = sum(seconds(p) for p in (server, *server.children()))
    return {"controller": seconds(psutil.Process(controller)), "database": backends}


def row(name: str, value: Any, unit: str, goal: str, peer: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "peer": peer}


if __name__ == "__main__":
    main()

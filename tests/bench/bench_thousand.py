"""`make bench-thousand`: one controller with 1,000 agents of 8 channels, 100,000 bookings stored, 20,000 in the next 48 h.

    python -m tests.bench.bench_thousand [PART …]     parts: idle booking together restart leader (all of them, in order)

All on this machine (tests/bench/thousand.py says with what); what the agents' own process takes of the processor is
said beside what the controller takes. `leader` is two controllers on a PostgreSQL and is left out where there is none;
the others are SQLite. AGENTS=200 makes everything smaller.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests import postgres
from tests.bench.bench_fleet import lives
from tests.bench.report import report
from tests.bench.thousand import AGENTS, AHEAD, CHANNELS, REAL, STORED, Agents, Thousand, cpu, until
from tests.system.cluster import rfc3339
from tests.system.conftest import sim_model

IDLE_SECONDS, ROUNDS, TOGETHER, LEAD_SECONDS = 30, 300, 500 * AGENTS // 1000, 100
SETTINGS = {"SLOTSERVE_TICK_SECONDS": "3", "SLOTSERVE_SWITCH_BUFFER_SECONDS": "5", "SLOTSERVE_LOG_LEVEL": "info"}
Rows = list[dict[str, Any]]


def main(wanted: list[str]) -> None:
    if unknown := set(wanted) - PARTS.keys() - {"leader"}:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join((*PARTS, 'leader'))}")
    parts = [part for name, part in PARTS.items() if not wanted or name in wanted]
    if parts:
        measure("SQLite", "", parts)
    if not wanted or "leader" in wanted:
        binaries = postgres.find_postgresql()
        if binaries is None:
            print(f"leader: PostgreSQL is not installed (Debian: {postgres.PACKAGE}); not measured")
            return
        with tempfile.TemporaryDirectory(prefix="ss-bench-") as name, contextlib.ExitStack() as stack:
            server = postgres.start(binaries, Path(name))
            stack.callback(postgres.stop, Path(name))
            measure("two controllers, PostgreSQL", stack.enter_context(server.database()), [leader])


def measure(what: str, url: str, parts: list[Callable[[Thousand, Agents], Rows]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for model in ("base", "other"):
            sim_model(Path(name), model, load_seconds=0.3)
        with Thousand(Path(name), SETTINGS, url) as c:
            c.set_default("base")
            c.until_ready("base")
            c.start_others()
            if url:
                c.start_second()
            agents = Agents(c)
            try:
                rows = [row for part in [connected, *parts] for row in part(c, agents)]
            finally:
                agents.process.stop()
    load = f"{AGENTS} agents x {CHANNELS} channels, {STORED} bookings stored, {AHEAD} in the next 48 h"
    report(f"{load} ({what}, light agents)", rows)


def connected(c: Thousand, agents: Agents) -> Rows:
    """All of them dial at once."""
    began = time.time()
    taken = agents.all_beyond(0, 240) - began
    until(c.agreed, 60, "all plans are acknowledged", 1.0)
    return [row("first connection of all, until each has its plan", taken, "s", "")]


def idle(c: Thousand, agents: Agents) -> Rows:
    """Nothing happens but heartbeats."""
    time.sleep(10)
    controller, light = psutil.Process(c.controller.pid), psutil.Process(agents.process.pid)
    before, before_light = cpu(controller), cpu(light)
    agents.lines()
    time.sleep(IDLE_SECONDS)
    used, used_light = cpu(controller) - before, cpu(light) - before_light
    pushed = sum(1 for line in agents.lines() if line.what == "plan")
    peer = f"the {AGENTS} agents' own process {100 * used_light / IDLE_SECONDS:.0f} %; {pushed} plans pushed"
    return [
        row("idle: of a core", 100 * used / IDLE_SECONDS, "%", "< 25", peer),
        row("idle: resident", controller.memory_info().rss / 1e6, "MB", "< 400"),
    ]


def booking(c: Thousand, agents: Agents) -> Rows:
    """Booking sent -> its agent's acknowledgement written, one after the other."""
    controller, before = psutil.Process(c.controller.pid), cpu(psutil.Process(c.controller.pid))
    taken = []
    with _client(c) as client:
        for k in range(ROUNDS):
            node = f"z{(k * 37) % AGENTS:04}"
            agents.lines()
            start = time.time() + 46 * 3600 + 60 * (k % 60)  # within what is planned
            body = {"channel": f"{node}/c{k % CHANNELS}", "kind": "model", "model": "third"}
            body |= {"starts_at": rfc3339(start), "ends_at": rfc3339(start + 1800)}
            began = time.time()
            answer = client.post("/reservations", json=body)
            if answer.status_code == 409:
                continue  # somebody is there
            answer.raise_for_status()
            taken.append((agents.plan_of(node, 10) - began) * 1000)
    peer = f"{(cpu(controller) - before) / len(taken) * 1000:.0f} ms of the controller's processor time each"
    centiles = statistics.quantiles(taken, n=100)
    return [
        row(f"booking sent -> acknowledged, median of {len(taken)}", statistics.median(taken), "ms", "< 50", peer),
        row("booking sent -> acknowledged, 99th percentile", centiles[98], "ms", "< 200", f"worst {max(taken):.0f} ms"),
    ]


def together(c: Thousand, agents: Agents) -> Rows:
    """Many bookings that begin at the same second: when their plans were there, and what the real agents did."""
    start = round(time.time()) + LEAD_SECONDS + TOGETHER / 20
    agents.lines()
    with _client(c) as client:
        made: dict[str, float] = {}
        for k in range(TOGETHER):
            node = f"z{k * AGENTS // TOGETHER:04}"
            body = {"channel": f"{node}/c{k % CHANNELS}", "kind": "model", "model": "third"}
            body |= {"starts_at": rfc3339(start), "ends_at": rfc3339(start + 600)}
            made[node] = time.time()
            client.post("/reservations", json=body).raise_for_status()
        for name in REAL:
            mine = {"channel": f"{name}/main", "kind": "exclusive"}
            mine |= {"starts_at": rfc3339(start), "ends_at": rfc3339(start + 60)}
            client.post("/reservations", json=mine).raise_for_status()
    booked = time.time()
    missing = dict(made)
    last = 0.0
    while missing and time.time() < start:
        for line in agents.lines():
            if any(abs(s - start * 1000) < 1000 for s in line.steps) and missing.pop(line.node, None):
                last = line.at
        time.sleep(0.2)
    peer = f"the bookings took {booked - min(made.values()):.1f} s to make"
    due = start - float(c.env["SLOTSERVE_STOP_TIMEOUT_SECONDS"]) - float(c.env["SLOTSERVE_SWITCH_BUFFER_SECONDS"])
    engines = {pid: psutil.Process(pid) for pid in c.real_engines()}
    gone: dict[int, float] = {}
    while len(gone) < len(engines) and time.time() < start + 5:
        for pid, engine in engines.items():
            if pid not in gone and not lives(engine):
                gone[pid] = time.time() - due
        time.sleep(0.002)
    return [
        row(f"{TOGETHER} begin together: last plan there before it is due", start - last, "s", "> 60", peer),
        row("of them without their plan", len(missing), "", "0"),
        row("a real agent's engine gone after the instant, worst of 3", max(gone.values()) * 1000, "ms", "< 100"),
    ]


def restart(c: Thousand, agents: Agents) -> Rows:
    """The controller is killed and started again: all agents come back at once."""
    pids, before = c.real_engines(), _digests(agents)
    epoch = max(line.epoch for line in agents.plans.values())
    killed = time.time()
    c.controller.stop(signal.SIGKILL)
    c.start_controller()
    started = time.time() - killed
    taken = agents.all_beyond(epoch, 120) - killed
    until(c.agreed, 60, "all plans are acknowledged", 0.5)
    peer = f"{started:.1f} s of it until the new process was ready"
    return [
        row("controller killed and started: all in agreement after the kill", taken, "s", "< 15", peer),
        *_untouched(c, agents, pids, before),
    ]


def leader(c: Thousand, agents: Agents) -> Rows:
    """The leader is killed: another leads, and has all agents."""
    pids, before = c.real_engines(), _digests(agents)
    epoch = max(line.epoch for line in agents.plans.values())
    killed = time.time()
    c.controller.stop(signal.SIGKILL)
    until(lambda: "slotserve_leader 1.0" in httpx.get(f"{c.second_url}/metrics", timeout=30).text, 120, "it leads", 0.1)
    leads = time.time() - killed
    taken = agents.all_beyond(epoch, 120) - killed
    until(lambda: c.agreed(c.second_url), 60, "all plans are acknowledged", 0.5)
    return [
        row("leader killed: another leads", leads, "s", "< 30"),
        row("leader killed: all agents have the new leader's plan", taken, "s", ""),
        *_untouched(c, agents, pids, before),
    ]


PARTS: dict[str, Callable[[Thousand, Agents], Rows]] = {
    "idle": idle,
    "booking": booking,
    "together": together,
    "restart": restart,
}


def _untouched(c: Thousand, agents: Agents, pids: list[int], before: dict[str, str]) -> Rows:
    now = _digests(agents)
    return [
        row("plans that are other ones because of it", sum(now[n] != before[n] for n in before), "", "0"),
        row("processes restarted by it", sum(a != b for a, b in zip(c.real_engines(), pids, strict=True)), "", "0"),
    ]


def _digests(agents: Agents) -> dict[str, str]:
    agents.lines()
    return {name: line.digest for name, line in agents.plans.items()}


def _client(c: Thousand) -> httpx.Client:
    return httpx.Client(base_url=f"{c.url}/api/v1", headers={"Authorization": f"Bearer {c.keys['maya']}"}, timeout=30)


def row(name: str, value: float, unit: str, goal: str, peer: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "peer": peer}


if __name__ == "__main__":
    main(sys.argv[1:])

"""`make bench-thousand`: one controller with 1,000 agents of 8 channels, 100,000 bookings stored, 20,000 in the next 48 h.

The agents are light (tests/bench/light_agents.py) and speak the real contract over mutual TLS from one other process;
three real agents with simulated engines are there as well. SQLite, all on this machine: what the agents' process takes
of the processor is said beside what the controller takes.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controller.fleet.ca import CertificateAuthority
from controller.store import migrate
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel, Reservation, User
from tests.bench.bench_fleet import lives
from tests.bench.report import report
from tests.system.cluster import BIN, Cluster, Process, rfc3339
from tests.system.conftest import SIMULATED, sim_model

AGENTS = int(os.environ.get("AGENTS", "1000"))
CHANNELS = 8
STORED, AHEAD = 100_000 * AGENTS // 1000, 20_000 * AGENTS // 1000
REAL = ("n1", "n2", "n3")  # the first is the cluster's own
HOUR = 3_600_000
IDLE_SECONDS, ROUNDS, TOGETHER, LEAD_SECONDS = 30, 100, 500 * AGENTS // 1000, 100


class Thousand(Cluster):
    """The cluster of the tests with a database that is full before the controller starts, and more real agents."""

    others: tuple[Process, ...] = ()

    def start_others(self) -> None:
        """The real agents beside the first one, each with a default that is ready."""
        own = (self.root / "node.toml").read_text()
        for name in REAL[1:]:
            file = self.root / f"{name}.toml"
            file.write_text(own.replace('node = "n1"', f'node = "{name}"').replace(self.gateway_url[7:], "127.0.0.1:0"))
            env = self.env | {"SLOTSERVE_AGENT_STATE_DIR": str(self.root / name), "SLOTSERVE_NODE_FILE": str(file)}
            agent = Process(name, [str(BIN / "slotserve-agent"), "run"], env, self.root)
            join = self.post("/nodes", {"name": name})["join"]
            subprocess.run([str(BIN / "slotserve-agent"), "enrol", join], env=env, check=True, capture_output=True)
            agent.start()
            self.others += (agent,)
        for name in REAL[1:]:
            path = f"/channels/{name}/main"
            self.until(lambda p=path: self.request("GET", p).status_code == 200, 30, "it is there")  # type: ignore[misc]
            self._good(self.request("PATCH", path, {"default_model": "base"}))
            self.until(lambda p=path: self.get(p)["phase"] == "ready", 60, "it is ready")  # type: ignore[misc]

    def __exit__(self, *raised: Any) -> None:
        for agent in self.others:
            agent.stop()
            command = [str(BIN / "slotserve-agent"), "stop-engines"]
            subprocess.run(command, env=agent.env, capture_output=True, timeout=60, check=False)
        super().__exit__(*raised)

    def real_engines(self) -> list[int]:
        """Pids of the real agents' engines."""
        states = [self.root / "a", *(self.root / name for name in REAL[1:])]
        return [json.loads((s / "channels" / "main" / "run.json").read_text())["engine_pid"] for s in states]

    def start_controller(self) -> None:
        if not (self.root / "c").exists():
            (self.root / "c").mkdir(mode=0o700)
            fill(self.root / "c", self.root / "light")
        super().start_controller()


def fill(state: Path, light: Path) -> None:
    """The database and the agents' certificates."""
    light.mkdir()
    ca = CertificateAuthority(state / "ca")
    (light / "ca.crt").write_text(ca.certificate_pem())
    store = Store(f"sqlite:///{state / 'slotserve.db'}")
    migrate.upgrade(store)
    now, rnd = time.time_ns() // 1_000_000, random.Random(1)
    with store.write() as session:
        session.add_all(User(id=f"u{n}", name=f"person-{n}", created_at=now) for n in range(50))
        for n in range(AGENTS):
            issued = ca.sign_csr(*csr(light, f"z{n:04}"))
            session.add(Node(id=f"n{n}", name=f"z{n:04}", created_at=now, certificate_serial=issued.enrolment))
            (light / f"z{n:04}.crt").write_text(issued.pem)
        session.flush()
        places = []
        for n in range(AGENTS):
            for model in ("base", "other", "third"):
                session.add(
                    NodeModel(
                        node_id=f"n{n}",
                        name=model,
                        path=f"/{model}",
                        size_bytes=10**9,
                        format="gguf",
                        seen_at=now,
                        channels=[f"c{c}" for c in range(CHANNELS)],
                    )
                )
            for c in range(CHANNELS):
                places.append(f"n{n}c{c}")
                session.add(
                    Channel(
                        id=places[-1],
                        node_id=f"n{n}",
                        name=f"c{c}",
                        created_at=now,
                        engines=["simulated"],
                        default_model="base",
                    )
                )
        session.flush()
        rows = []
        each, past = AHEAD // len(places) + 1, (STORED - AHEAD) // len(places) + 1
        for i, place in enumerate(places):
            for k in range(past):
                start = now - (k + 1) * 8 * HOUR
                rows.append(booking(f"p{i}-{k}", place, start, start + 2 * HOUR, "finished", now))
            if i * AHEAD // len(places) != (i + 1) * AHEAD // len(places) or each > 1:
                for k in range(AHEAD // len(places) + (rnd.random() < (AHEAD % len(places)) / len(places))):
                    start = now + 4 * HOUR + k * 12 * HOUR + rnd.randrange(6 * HOUR)
                    rows.append(booking(f"f{i}-{k}", place, start, start + 2 * HOUR, "approved", now))
        session.execute(Reservation.__table__.insert(), rows)
    store.close()


def csr(folder: Path, name: str) -> tuple[str, str]:
    from agent.enrolment import _request

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(pem)
    return _request(key, name), name


def booking(id_: str, channel: str, start: int, end: int, status: str, now: int) -> dict[str, Any]:
    return {
        "id": id_,
        "channel_id": channel,
        "kind": "model",
        "model": "other",
        "starts_at": start,
        "ends_at": end,
        "status": status,
        "holder_id": f"u{hash(id_) % 50}",
        "booked_by": "u0",
        "created_at": now,
        "approved_at": now,
        "note": "",
        "reason": "",
        "participants": [],
        "version": 1,
        "committed": False,
        "maintenance": False,
        "problem": "",
    }


class Agents:
    """The light agents' process and what they have noted."""

    def __init__(self, c: Cluster) -> None:
        self.folder = c.root / "light"
        args = [sys.executable, "-m", "tests.bench.light_agents", str(self.folder), f"127.0.0.1:{c.ports['fleet']}"]
        self.process = Process("light", args, dict(c.env), c.root)
        self.process.start()
        self._at = 0

    def lines(self) -> list[tuple[float, str, int, int, str, list[int]]]:
        """What was noted since the last call."""
        path = self.folder / "agents.log"
        if not path.exists():
            return []
        with path.open() as file:
            file.seek(self._at)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self._at += len(text)
        found = []
        for line in text.splitlines():
            at, name, epoch, generation, what, *steps = line.split(" ")
            instants = [int(s) for s in steps[0].split(",")] if steps and steps[0] else []
            found.append((float(at), name, int(epoch), int(generation), what, instants))
        return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for model in ("base", "other"):
            sim_model(Path(name), model, load_seconds=0.3)
        channel = {"main": {"folder": Path(name), "engines": ["simulated"]}}
        real = {
            "SLOTSERVE_TICK_SECONDS": "3",
            "SLOTSERVE_SWITCH_BUFFER_SECONDS": "5",
            "SLOTSERVE_LOG_LEVEL": "info",
        }
        cluster = Thousand(SIMULATED, channel, real)
        with cluster as c:
            c.set_default("base")
            c.until_ready("base")
            c.start_others()
            agents = Agents(c)
            try:
                rows = measure(c, agents)
            finally:
                agents.process.stop()
    report(
        f"{AGENTS} agents x {CHANNELS} channels, {STORED} bookings stored, {AHEAD} in the next 48 h (SQLite, light agents)",
        rows,
    )


def measure(c: Thousand, agents: Agents) -> list[dict[str, Any]]:
    began = time.monotonic()
    until(lambda: online(c) == AGENTS + len(REAL), 180, "all agents are connected", 1.0)
    first = time.monotonic() - began
    until(lambda: agreed(c), 180, "all plans are acknowledged", 1.0)
    rows = [row("first connection of all, until in agreement", time.monotonic() - began, "s", "")]
    print(f"connected after {first:.1f} s, in agreement after {time.monotonic() - began:.1f} s", file=sys.stderr)
    time.sleep(10)
    controller, light = psutil.Process(c.controller.pid), psutil.Process(agents.process.pid)
    before, before_light = cpu(controller), cpu(light)
    agents.lines()
    time.sleep(IDLE_SECONDS)
    used, used_light = cpu(controller) - before, cpu(light) - before_light
    pushed = sum(1 for line in agents.lines() if line[4] == "plan")
    rows.append(row("idle: of a core", 100 * used / IDLE_SECONDS, "%", "< 25"))
    rows[-1]["peer"] = (
        f"the {AGENTS} agents' own process {100 * used_light / IDLE_SECONDS:.0f} %; {pushed} plans pushed"
    )
    rows.append(row("idle: resident", controller.memory_info().rss / 1e6, "MB", "< 400"))
    rows += bookings(c, agents)
    rows += together(c, agents)
    rows += restarted(c, agents)
    return rows


def bookings(c: Cluster, agents: Agents) -> list[dict[str, Any]]:
    """Booking sent -> its agent's acknowledgement written, one after the other."""
    headers = {"Authorization": f"Bearer {c.keys['maya']}"}
    taken = []
    with httpx.Client(base_url=f"{c.url}/api/v1", headers=headers, timeout=30) as client:
        for k in range(ROUNDS):
            node = f"z{(k * 37) % AGENTS:04}"
            agents.lines()
            start = time.time() + 46 * 3600 + 60 * k
            body = {"channel": f"{node}/c{k % CHANNELS}", "kind": "model", "model": "third"}
            body |= {"starts_at": rfc3339(start), "ends_at": rfc3339(start + 1800)}
            began = time.time()
            answer = client.post("/reservations", json=body)
            if answer.status_code == 409:
                continue  # somebody is there
            if answer.is_error:
                raise RuntimeError(answer.text)
            taken.append(plan_of(agents, node, 10) - began)
    ordered = sorted(t * 1000 for t in taken)
    worst = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [
        row(f"booking sent -> acknowledged, median of {len(ordered)}", statistics.median(ordered), "ms", "< 50"),
        row("booking sent -> acknowledged, 99th percentile", worst, "ms", "< 200"),
    ]


def together(c: Thousand, agents: Agents) -> list[dict[str, Any]]:
    """Many bookings that begin at the same second: when their plans were there, and what the real agent did."""
    start = round(time.time()) + LEAD_SECONDS + TOGETHER / 20
    agents.lines()
    headers = {"Authorization": f"Bearer {c.keys['maya']}"}
    with httpx.Client(base_url=f"{c.url}/api/v1", headers=headers, timeout=30) as client:
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
        for at, node, _, _, what, steps in agents.lines():
            if what == "plan" and any(abs(s - start * 1000) < 1000 for s in steps) and missing.pop(node, None):
                last = at
        time.sleep(0.2)
    rows = [
        row(f"{TOGETHER} begin together: last plan there before it is due", start - last, "s", "> 60"),
        row("of them without their plan", len(missing), "", "0"),
    ]
    rows[0]["peer"] = f"the bookings took {booked - min(made.values()):.1f} s to make"
    due = start - float(c.env["SLOTSERVE_STOP_TIMEOUT_SECONDS"]) - float(c.env["SLOTSERVE_SWITCH_BUFFER_SECONDS"])
    engines = [psutil.Process(pid) for pid in c.real_engines()]
    gone: dict[int, float] = {}
    while len(gone) < len(engines) and time.time() < start + 5:
        for engine in engines:
            if engine.pid not in gone and not lives(engine):
                gone[engine.pid] = time.time() - due
        time.sleep(0.002)
    rows.append(
        row("a real agent's engine gone after the instant, worst of 3", max(gone.values()) * 1000, "ms", "< 100")
    )
    return rows


def restarted(c: Thousand, agents: Agents) -> list[dict[str, Any]]:
    """The controller is killed and started: all agents come back at once."""
    pids = c.real_engines()
    c.controller.stop(signal.SIGKILL)
    agents.lines()
    c.start_controller()
    began = time.time()
    until(lambda: online(c) == AGENTS + len(REAL), 120, "all agents are back", 0.5)
    until(lambda: agreed(c), 120, "all plans are acknowledged", 0.5)
    taken = time.time() - began
    said = agents.lines()
    pushed = {name for _, name, _, _, what, _ in said if what == "plan"}
    rows = [row("controller killed: all reconnected and in agreement after its start", taken, "s", "< 15")]
    rows[0]["peer"] = f"{len(pushed)} plans pushed anew (a new epoch)"
    rows.append(row("processes restarted by it", float(c.real_engines() != pids), "", "0"))
    return rows


def online(c: Cluster) -> int:
    text = httpx.get(f"{c.url}/metrics", timeout=30).text
    return len(re.findall(r"^slotserve_node_online\{[^}]*\} 1", text, re.M))


def agreed(c: Cluster) -> bool:
    cursor, count = "", 0
    while True:
        page = c.get(f"/nodes?limit=1000{f'&cursor={cursor}' if cursor else ''}")
        count += sum(1 for n in page["items"] if n["plan"]["accepted"] and n["online"])
        cursor = page["next"]
        if not cursor:
            return count == AGENTS + len(REAL)


def plan_of(agents: Agents, node: str, seconds: float) -> float:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for at, name, _, _, what, _ in agents.lines():
            if name == node and what == "plan":
                return at
        time.sleep(0.002)
    raise TimeoutError(f"{node} got no plan")


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def until(true: Callable[[], Any], seconds: float, what: str, pause: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(pause)


def row(name: str, value: float, unit: str, goal: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal}


if __name__ == "__main__":
    main()

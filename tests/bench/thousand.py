"""What `bench_thousand` measures with: a database that is full before the controller starts, light agents, real ones.

The light agents (tests/bench/light_agents.py) speak the real contract over mutual TLS from one other process; three
real agents with simulated engines are there as well.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.enrolment import _request
from controller.fleet.ca import CertificateAuthority
from controller.store import migrate
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel, Reservation, User
from tests.parts import free_port
from tests.system.cluster import BIN, Cluster, Process
from tests.system.conftest import SIMULATED

AGENTS = int(os.environ.get("AGENTS", "1000"))
CHANNELS = 8
STORED, AHEAD = 100_000 * AGENTS // 1000, 20_000 * AGENTS // 1000
REAL = ("n1", "n2", "n3")  # the first is the cluster's own
HOUR = 3_600_000
START_SECONDS = 120  # a controller that has so much to plan, on a machine that does other things as well


class Thousand(Cluster):
    """The cluster of the tests with the full database, and more real agents. With a PostgreSQL's URL: two controllers,
    `second` beside the first one, with the lease's length as it comes."""

    others: tuple[Process, ...] = ()
    start_seconds = START_SECONDS

    def __init__(self, models: Path, settings: dict[str, str], database_url: str = "") -> None:
        super().__init__(SIMULATED, {"main": {"folder": models, "engines": ["simulated"]}}, settings)
        self.database_url = database_url
        self.fleet = [free_port(), free_port()]
        if database_url:
            self.env |= {"SLOTSERVE_DATABASE_URL": database_url, "SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{self.fleet[0]}"}
            self.env["SLOTSERVE_FLEET_PEERS"] = f"127.0.0.1:{self.fleet[1]}"
        self.second_url = f"http://127.0.0.1:{free_port()}"
        own = {
            "SLOTSERVE_STATE_DIR": str(self.root / "c2"),
            "SLOTSERVE_HTTP_LISTEN": self.second_url[7:],
            "SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{self.fleet[1]}",
            "SLOTSERVE_FLEET_PEERS": f"127.0.0.1:{self.fleet[0]}",
        }
        self.second = Process("second", [str(BIN / "slotserve"), "serve"], self.env | own, self.root)

    def start_controller(self) -> None:
        if not (self.root / "c").exists():
            (self.root / "c").mkdir(mode=0o700)
            fill(self.root / "c", self.root / "light", self.database_url)
        super().start_controller()

    def start_second(self) -> None:
        for name in ("ca", "session.key", "secrets.key"):
            command = ["cp", "-a", str(self.root / "c" / name), str(self.root / "c2" / name)]
            (self.root / "c2").mkdir(mode=0o700, exist_ok=True)
            subprocess.run(command, check=True)
        self.second.start()
        until(lambda: httpx.get(self.second_url + "/readyz").status_code == 200, START_SECONDS, "the second is ready")

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
            self.until_known("base", f"{name}/main")
            self._good(self.request("PATCH", path, {"default_model": "base"}))
            self.until(lambda p=path: self.get(p)["phase"] == "ready", 60, "it is ready")  # type: ignore[misc]

    def __exit__(self, *raised: Any) -> None:
        for agent in self.others:
            agent.stop()
            command = [str(BIN / "slotserve-agent"), "stop-engines"]
            subprocess.run(command, env=agent.env, capture_output=True, timeout=60, check=False)
        self.second.stop()
        super().__exit__(*raised)

    def real_engines(self) -> list[int]:
        """Pids of the real agents' engines."""
        states = [self.root / "a", *(self.root / name for name in REAL[1:])]
        return [json.loads((s / "channels" / "main" / "run.json").read_text())["engine_pid"] for s in states]

    def agreed(self, url: str = "") -> bool:
        """Whether every node is connected and has acknowledged its plan, by what REST says."""
        headers = {"Authorization": f"Bearer {self.keys['root']}"}
        count, cursor = 0, ""
        while True:
            page = httpx.get(
                f"{url or self.url}/api/v1/nodes?limit=1000{f'&cursor={cursor}' if cursor else ''}",
                headers=headers,
                timeout=60,
            )
            page.raise_for_status()
            count += sum(1 for n in page.json()["items"] if n["plan"]["accepted"] and n["online"])
            cursor = page.json()["next"]
            if not cursor:
                return count == AGENTS + len(REAL)


def fill(state: Path, light: Path, url: str = "") -> None:
    """The database and the agents' certificates."""
    light.mkdir()
    ca = CertificateAuthority(state / "ca")
    (light / "ca.crt").write_text(ca.certificate_pem())
    store = Store(url or f"sqlite:///{state / 'slotserve.db'}")
    migrate.upgrade(store)
    now = time.time_ns() // 1_000_000
    places = [f"n{n}c{c}" for n in range(AGENTS) for c in range(CHANNELS)]
    with store.write() as session:
        session.add_all(User(id=f"u{n}", name=f"person-{n}", created_at=now) for n in range(50))
        for n in range(AGENTS):
            issued = ca.sign_csr(*csr(light, f"z{n:04}"))
            session.add(Node(id=f"n{n}", name=f"z{n:04}", created_at=now, certificate_serial=issued.enrolment))
            (light / f"z{n:04}.crt").write_text(issued.pem)
        session.flush()
        names = [f"c{c}" for c in range(CHANNELS)]
        for n in range(AGENTS):
            for model in ("base", "other", "third"):
                seen = {"path": f"/{model}", "size_bytes": 10**9, "format": "gguf", "seen_at": now, "channels": names}
                session.add(NodeModel(node_id=f"n{n}", name=model, **seen))
            for c, name in enumerate(names):
                own = {"created_at": now, "engines": ["simulated"], "default_model": "base"}
                session.add(Channel(id=f"n{n}c{c}", node_id=f"n{n}", name=name, **own))
        session.flush()
        session.execute(Reservation.__table__.insert(), list(_bookings(places, now)))
    store.close()


def _bookings(places: list[str], now: int) -> list[dict[str, Any]]:
    rnd = random.Random(1)
    rows = []
    past = (STORED - AHEAD) // len(places) + 1
    for i, place in enumerate(places):
        for k in range(past):
            start = now - (k + 1) * 8 * HOUR
            rows.append(_booking(f"p{i}-{k}", place, start, "finished", now))
        for k in range(AHEAD // len(places) + (rnd.random() < (AHEAD % len(places)) / len(places))):
            start = now + 4 * HOUR + k * 12 * HOUR + rnd.randrange(6 * HOUR)
            rows.append(_booking(f"f{i}-{k}", place, start, "approved", now))
    return rows


def _booking(id_: str, channel: str, start: int, status: str, now: int) -> dict[str, Any]:
    return {
        "id": id_,
        "channel_id": channel,
        "kind": "model",
        "model": "other",
        "starts_at": start,
        "ends_at": start + 2 * HOUR,
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


def csr(folder: Path, name: str) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(pem)
    return _request(key, name), name


class Line(NamedTuple):
    """What a light agent has noted: `what` is `welcome` or `plan`; `digest` and `steps` (instants, ms) of a plan."""

    at: float
    node: str
    epoch: int
    generation: int
    what: str
    digest: str
    steps: tuple[int, ...]


class Agents:
    """The light agents' process and what they have noted."""

    def __init__(self, c: Thousand) -> None:
        self.folder = c.root / "light"
        addresses = f"127.0.0.1:{c.ports['fleet']}" + (f",127.0.0.1:{c.fleet[1]}" if c.database_url else "")
        args = [sys.executable, "-m", "tests.bench.light_agents", str(self.folder), addresses]
        self.process = Process("light", args, dict(c.env), c.root)
        self.process.start()
        self._at = 0
        self.plans: dict[str, Line] = {}  # the newest of each node

    def lines(self) -> list[Line]:
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
        for row in text.splitlines():
            at, node, epoch, generation, what, digest, steps = row.split(" ")
            instants = tuple(int(s) for s in steps.split(",")) if steps else ()
            found.append(Line(float(at), node, int(epoch), int(generation), what, digest, instants))
        self.plans.update((line.node, line) for line in found if line.what == "plan")
        return found

    def plan_of(self, node: str, seconds: float) -> float:
        """When the next plan of this node was there and acknowledged."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.lines():
                if line.node == node and line.what == "plan":
                    return line.at
            time.sleep(0.002)
        raise TimeoutError(f"{node} got no plan")

    def all_beyond(self, epoch: int, seconds: float) -> float:
        """When the last of all had a plan of a later epoch than this one."""
        deadline = time.monotonic() + seconds
        while True:
            self.lines()
            there = [line.at for line in self.plans.values() if line.epoch > epoch]
            if len(there) == AGENTS:
                return max(there)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{AGENTS - len(there)} agents have no plan beyond epoch {epoch} after {seconds} s")
            time.sleep(0.1)


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    times = process.cpu_times()
    return times.user + times.system


def until(true: Callable[[], Any], seconds: float, what: str, pause: float = 0.2) -> None:
    """Waits for it. Raises TimeoutError naming `what`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if true():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(pause)

"""What the console costs: pages of 200 channels, and 50 people who leave it open.

    python -m tests.bench.bench_console        (BENCH_JSON=FILE writes the figures as JSON as well)

Processor time of this process alone, through the whole web application (session, rights, database, templates), without
a socket. "Nothing changes" leaves out of account what a controller does anyway; figures of GPUs change all the time.
"""

from __future__ import annotations

import gzip
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller import sessions
from controller.context import Context
from controller.fleet.live import Live, LiveChannel, LiveGpu
from controller.settings import Settings
from controller.store import migrate, users
from controller.store.session import Store
from controller.store.tables import Channel, Node, NodeModel, Reservation
from controller.web import create_app
from tests.bench.report import report

NODES, EACH, PEOPLE, RUNS = 25, 8, 50, 15
NOW = 1_800_000_000_000
HOUR, GB = 3_600_000, 10**9
MODELS = ("Qwen3-32B-Q4_K_M", "DeepSeek-R1-Distill-Llama-70B-BF16", "gpt-oss-120b-MXFP4")


class World:
    """A controller's web side over 200 channels; `later(seconds)` lets time pass."""

    def __init__(self, folder: Path) -> None:
        self.now, self.live = NOW, Live()
        self.store = Store(f"sqlite:///{folder / 'bench.db'}")
        migrate.upgrade(self.store)
        self.ctx = Context(Settings(state_dir=folder), self.store, self.live, clock=lambda: self.now)
        self.app = create_app(self.ctx)
        self.people = self._people()
        self._nodes()

    def later(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    def client(self, person: str) -> Any:
        client = self.app.test_client()
        client.set_cookie("zone", "Asia/Shanghai")
        with self.app.test_request_context(), client.session_transaction() as session, self.store.write() as db:
            sessions.begin(session, db, users.get(db, person), self.now)
        return client

    def _people(self) -> list[str]:
        with self.store.write() as db:
            return [users.create(db, f"person{i}", None, "user", NOW).id for i in range(PEOPLE)]

    def _nodes(self) -> None:
        people = itertools.cycle(self.people)
        with self.store.write() as db:
            for n in range(NODES):
                node = Node(
                    name=f"gpu-{n:02d}", created_at=NOW, last_seen_at=NOW, gateway_urls=[f"http://gpu-{n:02d}:8710"]
                )
                db.add(node)
                db.flush()
                names = [f"c{i}" for i in range(EACH)]
                db.add_all(
                    NodeModel(
                        node_id=node.id,
                        name=m,
                        path=f"/m/{m}",
                        size_bytes=20 * GB,
                        format="gguf",
                        channels=names,
                        seen_at=NOW,
                    )
                    for m in MODELS
                )
                for i, name in enumerate(names):
                    channel = Channel(
                        node_id=node.id,
                        name=name,
                        created_at=NOW,
                        gpu_uuids=[f"GPU-{n}-{i}"],
                        gpu_memory_bytes=80 * GB,
                        engines=["llama.cpp"],
                        default_model=MODELS[0],
                    )
                    db.add(channel)
                    db.flush()
                    for start, end in ((-1, 1), (2, 4), (26, 30)):
                        holder = next(people)
                        db.add(
                            Reservation(
                                channel_id=channel.id,
                                kind="model",
                                model=MODELS[i % 3],
                                starts_at=NOW + start * HOUR + (i % 2) * 1_200_000,
                                ends_at=NOW + end * HOUR + (i % 2) * 1_200_000,
                                status="approved",
                                holder_id=holder,
                                booked_by=holder,
                                created_at=NOW,
                                approved_at=NOW - 2 * HOUR,
                            )
                        )
        ready = {"running": "x", "in_flight": 1, "phase_since": NOW}
        for n in range(NODES):
            self.live.update(
                f"gpu-{n:02d}", online=True, since=NOW - HOUR, gateway_urls=(f"http://gpu-{n:02d}:8710",),
                gpus=tuple(LiveGpu(i, f"GPU-{n}-{i}", "H100", 80 * GB, 40 * GB, 50, 60, 300) for i in range(EACH)),
                channels={f"c{i}": LiveChannel("ready", running_model=MODELS[i % 3], **ready) for i in range(EACH)},
            )  # fmt: skip

    def channel_changes(self, which: int) -> None:
        """One channel's count of requests."""
        node, name = f"gpu-{which % NODES:02d}", f"c{which % EACH}"
        known = self.live.node(node).channels
        self.live.update(node, channels={**known, name: replace(known[name], in_flight=known[name].in_flight % 7 + 1)})

    def gpus_change(self, which: int) -> None:
        """What every heartbeat brings: other figures of a node's GPUs."""
        node = f"gpu-{which % NODES:02d}"
        gpus = tuple(replace(g, utilisation_percent=(which * 7 + g.index) % 100) for g in self.live.node(node).gpus)
        self.live.update(node, gpus=gpus)


def cpu(work: Callable[[], Any], runs: int = RUNS) -> tuple[float, Any]:
    """(median milliseconds of processor time, the last answer)."""
    taken, answer = [], None
    for _ in range(runs):
        began = time.process_time()
        answer = work()
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken), answer


def pages(world: World) -> list[dict[str, Any]]:
    client = world.client(world.people[0])

    def changed(path: str, fresh: bool = True) -> Callable[[], Any]:
        def get() -> Any:
            world.later(2)
            if fresh:
                world.channel_changes(world.now // 1000)
            return client.get(path, headers={"Accept-Encoding": "gzip"})

        return get

    rows: list[dict[str, Any]] = []
    for path, name in (
        ("/", "overview"),
        ("/timeline", "timeline, a day"),
        ("/timeline?view=week", "timeline, a week"),
    ):
        client.get(path)
        ms, answer = cpu(changed(path))
        assert answer.status_code == 200, (path, answer.status_code)
        goal = "< 200" if path == "/" else ""
        rows.append({"name": f"{name}, 200 channels: server time", "value": ms, "unit": "ms", "goal": goal})
        raw = answer.data if answer.headers.get("Content-Encoding") != "gzip" else gzip.decompress(answer.data)
        goal = "< 150" if path == "/" else ""
        rows.append(
            {
                "name": f"{name}: first load after assets",
                "value": len(raw) / 1000,
                "unit": "kB",
                "goal": goal,
                "peer": f"{len(answer.data) / 1000:.0f} kB packed, as it is sent",
            }
        )
    return rows


def updates(world: World) -> list[dict[str, Any]]:
    client = world.client(world.people[0])
    etag = client.get("/overview/rows").headers["ETag"]

    def poll(change: Callable[[int], None] | None) -> Callable[[], Any]:
        def get() -> Any:
            nonlocal etag
            world.later(2)
            if change:
                change(world.now // 1000)
            answer = client.get("/overview/rows", headers={"If-None-Match": etag})
            etag = answer.headers["ETag"]
            return answer

        return get

    rows = []
    for name, change, goal in (
        ("nothing changed", None, "< 50"),
        ("GPU figures changed", world.gpus_change, "< 50"),
        ("one channel changed", world.channel_changes, "< 50"),
    ):
        ms, answer = cpu(poll(change))
        rows.append(
            {
                "name": f"live update of 200 channels, {name}",
                "value": ms,
                "unit": "ms",
                "goal": goal,
                "peer": f"{answer.status_code}, {len(answer.data) / 1000:.1f} kB",
            }
        )
    return rows


def consoles(world: World) -> list[dict[str, Any]]:
    """50 people, a poll each every 2 s: the share of a core over a simulated time."""
    clients = [world.client(p) for p in world.people]
    tags = [c.get("/overview/rows").headers["ETag"] for c in clients]
    rows = []
    for name, change, goal in (
        ("nothing changing", None, "< 10"),
        ("one channel changing each second", world.channel_changes, "< 25"),
    ):
        began, simulated = time.process_time(), 10.0
        for step in range(int(simulated / 2)):
            for i, client in enumerate(clients):
                if change and i % (PEOPLE // 2) == 0:
                    change(step * 2 + i)
                world.later(2 / PEOPLE)
                answer = client.get("/overview/rows", headers={"If-None-Match": tags[i]})
                tags[i] = answer.headers["ETag"]
        share = (time.process_time() - began) / simulated * 100
        rows.append({"name": f"50 open consoles, {name}", "value": share, "unit": "% of a core", "goal": goal})
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ss-bench-") as folder:
        world = World(Path(folder))
        report("console", [*pages(world), *updates(world), *consoles(world)])


if __name__ == "__main__":
    main()

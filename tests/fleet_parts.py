"""A controller's gRPC side and an agent's link for tests: real servers on loopback, real mutual TLS, a fake planner and node."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from agent.clock import NodeClock
from agent.enrolment import enrol
from agent.link import Link
from agent.plan import NodePlan, parse
from agent.spool import Spool
from agent.state import State
from controller.context import wall_ms
from controller.fleet.ca import CertificateAuthority
from controller.fleet.live import Live
from controller.fleet.logs import LogStore
from controller.fleet.server import FleetServer
from controller.fleet.service import FleetService
from controller.store.session import Store
from controller.store.tables import Base, JoinToken, Leader, Node, Revision
from protos import fleet_pb2, types_pb2


def make_store(folder: Path) -> Store:
    """An SQLite store with tables and the two rows that are always there."""
    store = Store(f"sqlite:///{folder / 'test.db'}")
    Base.metadata.create_all(store.engine)
    with store._write(bind=store.engine.execution_options(write=True)) as session, session.begin():
        session.add_all([Leader(id=1, epoch=0, holder="", renewed_at=0), Revision(id=1, number=0)])
    return store


def step(at: int, target: str = "", why: str = "default", **more: Any) -> types_pb2.Step:
    """A step of a plan; its target `a` is the model `model-a`."""
    return types_pb2.Step(at_ms=at, target=target, why=why, **more)


def plan_bytes(node: str = "n1", *steps: types_pb2.Step, channel: str = "main", **settings: Any) -> bytes:
    """A serialised Plan with one channel; without steps it says `idle` since 1."""
    launches = [
        types_pb2.Launch(identity=i, model=f"model-{i}", engine="simulated")
        for i in sorted({x for s in steps for x in (s.target, s.fallback) if x})
    ]
    said = types_pb2.ChannelPlan(
        channel=channel, steps=list(steps) or [types_pb2.Step(at_ms=1, why="idle")], launches=launches
    )
    plan = types_pb2.Plan(node=node, channels=[said], settings=types_pb2.Settings(**settings))
    return plan.SerializeToString(deterministic=True)


class FakePlanner:
    """Plans are what the test puts in; `set` also pushes, as the real one does."""

    def __init__(self) -> None:
        self.epoch = 1
        self.plans: dict[str, tuple[int, int, bytes, bytes]] = {}
        self.push: Callable[[str], None] = lambda _: None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.broken_digest = False

    def plan_for(self, node: str) -> tuple[int, int, bytes, bytes] | None:
        return self.plans.get(node)

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        await asyncio.Event().wait()

    def outgrow(self, epoch: int) -> None:
        self.epoch = epoch + 1
        self.plans = {n: (max(p[0], epoch + 1), *p[1:]) for n, p in self.plans.items()}

    def set(self, node: str, epoch: int, generation: int, plan: bytes) -> None:
        digest = b"\0" * 32 if self.broken_digest else hashlib.sha256(plan).digest()
        self.epoch = max(epoch, self.epoch)
        self.plans[node] = (epoch, generation, plan, digest)
        if self.loop:
            self.loop.call_soon_threadsafe(self.push, node)


class Controller:
    """The fleet side in a thread of its own, as `slotserve serve` has it. `clock_offset` shifts its time (ms)."""

    def __init__(
        self, folder: Path, *, fleet_listen: str = "127.0.0.1:0", store: Store | None = None, **ca: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.clock_offset = folder, 0
        self.store, self.live, self.planner = store or make_store(folder), Live(), FakePlanner()
        self.ca = CertificateAuthority(folder / "ca", **ca)
        self.logs = LogStore(folder / "logs")
        self.told: list[Any] = []
        self._boot(fleet_listen)

    def now(self) -> int:
        return wall_ms() + self.clock_offset

    def _boot(self, fleet_listen: str) -> None:
        self.service = FleetService(
            self.store, self.live, self.planner, self.now, lambda _, event: self.told.append(event), self.ca
        )
        self.planner.push = self.service.push
        self.server: FleetServer = FleetServer(
            store=self.store,
            service=self.service,
            logs=self.logs,
            ca=self.ca,
            planner=self.planner,
            clock=self.now,
            fleet_listen=fleet_listen,
            enrol_listen="127.0.0.1:0",
            fleet_address=lambda: f"127.0.0.1:{self.server.fleet_port}",
        )
        self.server.start()

    def restart(self) -> None:
        """The same ports, database and CA; nothing in memory."""
        port = self.server.fleet_port
        self.server.stop()
        self.live = Live()
        self._boot(f"127.0.0.1:{port}")

    def close(self) -> None:
        self.server.stop()
        self.store.close()

    def add_node(self, name: str = "n1", token: str = "", *, minutes: float = 15) -> str:
        """A node and its join string."""
        token = token or f"token-of-{name}-{time.monotonic_ns()}"
        with self.store.write() as session:
            if not session.query(Node).filter_by(name=name).one_or_none():
                session.add(Node(name=name, created_at=1))
            digest = hashlib.sha256(token.encode()).hexdigest()
            expires = self.now() + round(minutes * 60_000)
            session.add(JoinToken(node_name=name, sha256=digest, created_at=1, expires_at=expires))
        return join_string(f"127.0.0.1:{self.server.enrol_port}", name, token, self.ca.certificate_pem())

    def enrolled(self, name: str = "n1") -> State:
        """A node's state folder with its certificate."""
        state = State(self.folder / f"agent-{name}-{time.monotonic_ns()}")
        enrol(self.add_node(name), state)
        return state


def join_string(address: str, node: str, token: str, ca: str) -> str:
    data = json.dumps({"address": address, "node": node, "token": token, "ca": ca})
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def count(controller: Controller, table: type) -> int:
    """How many rows the controller's table has."""
    with controller.store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def first(controller: Controller, table: type) -> Any:
    """The one row of the controller's table."""
    with controller.store.read() as session:
        return session.scalars(select(table)).one()


def change(controller: Controller, *rows: object) -> None:
    """Adds rows to the controller's database."""
    with controller.store.write() as session:
        session.add_all(rows)


class FakeNode:
    """The agent behind a link: declares one channel, remembers what it is told."""

    def __init__(self, name: str = "n1", channels: tuple[str, ...] = ("main",)) -> None:
        self.name, self.channels = name, channels
        self.plans: list[NodePlan] = []
        self.keys: Mapping[str, Mapping[str, Any]] | None = None
        self.key_tables = 0
        self.directory: list[dict[str, Any]] | None = None
        self.members = ""
        self.commands: list[tuple[str, str]] = []
        self.answer: tuple[bool, str] = (True, "")
        self.said = fleet_pb2.Status(channels=[types_pb2.ChannelStatus(channel=c, phase="off") for c in channels])
        self.models: list[types_pb2.Model] = []

    def hello(self) -> fleet_pb2.Hello:
        declared = [types_pb2.DeclaredChannel(name=c, engines=["simulated"]) for c in self.channels]
        return fleet_pb2.Hello(
            channels=declared,
            gateway_urls=["http://127.0.0.1:8710"],
            own_settings=types_pb2.Settings(drain_seconds=0.0),
        )

    def status(self) -> fleet_pb2.Status:
        return self.said

    def inventory(self) -> fleet_pb2.Inventory:
        return fleet_pb2.Inventory(models=self.models)

    def check_plan(self, plan: bytes) -> NodePlan:
        return parse(plan, self.name, self.channels, {})

    def take_plan(self, plan: NodePlan) -> None:
        self.plans.append(plan)

    def take_keys(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        self.keys = keys
        self.key_tables += 1

    def take_directory(self, places: list[dict[str, Any]], members: str) -> None:
        self.directory, self.members = places, members

    async def command(self, kind: str, channel: str) -> tuple[bool, str]:
        self.commands.append((kind, channel))
        return self.answer


@asynccontextmanager
async def linked(state: State, node: FakeNode, **more: Any) -> AsyncIterator[Link]:
    """A running link of `node`."""
    clock = more.pop("clock", None) or NodeClock(state.folder / "clock.json")
    spool = more.pop("spool", None) or Spool(state.folder / "spool.jsonl")
    link = Link(node, state, clock, spool, **more)
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

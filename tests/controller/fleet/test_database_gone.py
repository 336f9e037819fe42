"""A PostgreSQL that hangs, and one that crashes, below every gRPC service: words instead of tracebacks, agents come again by
themselves, and nothing that they had to say is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import select

from agent.enrolment import enrol, recover, renew
from agent.errors import EnrolmentFailed
from agent.log_shipping import LogShipper
from agent.runtime.logs import LogFolder
from agent.state import State
from controller.store import liveness
from controller.store.session import Store
from controller.store.tables import JoinToken, Load, Node
from protos import fleet_pb2, fleet_pb2_grpc, types_pb2
from tests import postgres
from tests.agent.test_log_shipping import begin, text, write
from tests.controller.store.test_liveness import stopped
from tests.fleet_parts import Controller, FakeNode, linked, plan_bytes, step
from tests.parts import until

pytestmark = pytest.mark.slow
DURABLE = {"synchronous_commit": "on"}  # what was committed is there after the crash
AWAY = "the controller's database does not answer"


class World:
    """A controller on a PostgreSQL of its own, node n1 enrolled."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.binaries = folder, binaries
        self.server = postgres.start(binaries, folder, DURABLE)
        self.server.run("CREATE DATABASE own TEMPLATE migrated")
        self.store = Store(self.server.url("own"))
        self.store.guard()
        self.controller = Controller(folder / "c", store=self.store)
        self.controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1)))

    @contextmanager
    def hanging(self) -> Iterator[None]:
        with stopped(self.server):
            yield

    @contextmanager
    def crashed(self) -> Iterator[None]:
        postgres.crash(self.folder)
        try:
            yield
        finally:
            self.server = postgres.start_again(self.binaries, self.folder, DURABLE)


@pytest.fixture
def world(postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(liveness, "SUSPECT_SECONDS", 0.5)
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(liveness, "ANSWER_SECONDS", 1)
    binaries = postgres.find_postgresql()
    assert binaries is not None
    made = World(tmp_path, binaries)
    try:
        yield made
    finally:
        made.controller.close()
        postgres.stop(tmp_path)


async def words(call: Callable[[], Any]) -> str:
    """How an attempt fails, for people."""
    try:
        said = await asyncio.to_thread(call)
        if asyncio.iscoroutine(said):
            await said
    except EnrolmentFailed as err:
        return str(err)
    except grpc.aio.AioRpcError as err:
        return f"{err.code().name}: {err.details()}"
    return "it was answered"


def loads(store: Store) -> list[float]:
    with store.read() as session:
        return list(session.scalars(select(Load.seconds).order_by(Load.seconds)))


@pytest.mark.parametrize("how", ["hanging", "crashed"])
def test_every_service_says_so_and_goes_on(world: World, how: str, tmp_path: Path, caplog: Any) -> None:
    controller, state = world.controller, world.controller.enrolled("n1")
    folder = LogFolder(tmp_path / "logs")
    begin(folder, "0001", 1000)
    join = controller.add_node("n2", "token-of-n2")
    shipper = LogShipper({"main": folder}, look_seconds=0.02)
    node = FakeNode("n1")

    def load(number: int) -> fleet_pb2.LoadResult:
        return fleet_pb2.LoadResult(
            id=f"load-{number}", channel="main", model="a", ok=True, seconds=number, at_ms=controller.now()
        )

    async def renewed() -> None:
        identity = state.identity()
        credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
        async with grpc.aio.secure_channel(identity.fleet_address, credentials) as channel:
            await renew(fleet_pb2_grpc.FleetStub(channel), state, "n1", controller.now() / 1000)

    async def scene() -> None:
        async with linked(state, node, shipper=shipper) as link:
            write(folder, "0001", b"before ")
            link.up.load_result(load(1))
            await until(lambda: text(controller) == "before " and loads(world.store) == [1.0], 30)
            with getattr(world, how)():
                write(folder, "0001", b"meanwhile ")
                link.up.load_result(load(2))
                node.said = fleet_pb2.Status(channels=[types_pb2.ChannelStatus(channel="main", phase="loading")])
                link.up.status_changed()
                await until(lambda: not link.connected and AWAY in link.trouble, 60, "the agent hears why")
                tried = (
                    await words(lambda: enrol(join, State(tmp_path / "n2"))),
                    await words(lambda: recover(state, "n1", controller.now() / 1000)),
                    await words(renewed),
                )
                assert all(AWAY in said for said in tried), tried
                assert tried[0].startswith("not possible at the moment, try again with the same string")
            await until(lambda: link.connected, 60, "the agent is back by itself")
            await until(lambda: loads(world.store) == [1.0, 2.0], 30, "its report")
            await until(lambda: text(controller) == "before meanwhile ", 30, "the engine's output goes on")
            await until(lambda: controller.live.channel("n1", "main").phase == "loading", 30, "its state")
            await asyncio.to_thread(enrol, join, State(tmp_path / "n2"))  # the token was not spent

    with caplog.at_level(logging.INFO):
        asyncio.run(scene())
    assert [r.getMessage() for r in caplog.records if r.exc_info] == []
    assert "stream failed" not in caplog.text
    broken = [r for r in caplog.records if "call broken off" in r.getMessage()]
    assert {r.args[0].rpartition("/")[2] for r in broken} >= {"Connect", "Enrol", "Recover", "Renew"}  # type: ignore[index, union-attr]
    with world.store.read() as session:
        assert session.scalars(select(JoinToken.used_at).where(JoinToken.node_name == "n2")).one() is not None
        assert session.scalars(select(Node.certificate_serial).where(Node.name == "n2")).one()

"""The fleet port against clients that do not behave: nobody in without a certificate, a clear answer to nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from sqlalchemy import select

from agent.state import State
from controller.fleet.records import Records
from controller.store.tables import ChannelState, Node
from protos import fleet_pb2, fleet_pb2_grpc, logs_pb2, logs_pb2_grpc, types_pb2
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    controller = Controller(tmp_path_factory.mktemp("fleet") / "c")
    yield controller
    controller.close()


@pytest.fixture(scope="module")
def state(controller: Controller) -> State:
    return controller.enrolled("n1")


def with_channel(state: State, scene: Callable[[Any], Awaitable[None]], *, certificate: bool = True) -> None:
    identity = state.identity()

    async def run() -> None:
        pair = (identity.key, identity.certificate) if certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(identity.ca, *pair)
        async with grpc.aio.secure_channel(identity.fleet_address, credentials) as channel:
            await scene(channel)

    asyncio.run(run())


def hello(**changes: Any) -> fleet_pb2.AgentMessage:
    return fleet_pb2.AgentMessage(hello=fleet_pb2.Hello(**{"node": "n1", "contract": 1, "version": "0.1.0", **changes}))


def test_nobody_without_a_certificate(state: State) -> None:
    async def scene(channel: Any) -> None:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(timeout=5)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):  # noqa: PT012 - either may
            await call.write(hello())
            await call.read()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE

    with_channel(state, scene, certificate=False)


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        (fleet_pb2.AgentMessage(status=fleet_pb2.Status()), grpc.StatusCode.INVALID_ARGUMENT, "must be hello"),
        (fleet_pb2.AgentMessage(), grpc.StatusCode.INVALID_ARGUMENT, "must be hello"),
        (hello(contract=2), grpc.StatusCode.FAILED_PRECONDITION, "upgrade the older"),
        (hello(node="n2"), grpc.StatusCode.PERMISSION_DENIED, "of node 'n1', not of 'n2'"),
    ],
)
def test_a_wrong_first_message(state: State, first: fleet_pb2.AgentMessage, code: Any, words: str) -> None:
    async def scene(channel: Any) -> None:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(timeout=5)
        await call.write(first)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is code
        assert words in refused.value.details()

    with_channel(state, scene)


def test_a_message_without_a_body_is_passed_over(controller: Controller, state: State) -> None:
    async def scene(channel: Any) -> None:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(timeout=10)
        await call.write(hello())
        assert (await call.read()).WhichOneof("body") == "welcome"
        assert (await call.read()).keys.whole
        await call.write(fleet_pb2.AgentMessage())
        await call.write(fleet_pb2.AgentMessage(time_request=fleet_pb2.TimeRequest(boottime_ns=7)))
        assert (await call.read()).time_reply.boottime_ns == 7
        call.cancel()

    with_channel(state, scene)


@pytest.mark.parametrize("channel_name", ["..", "a/b", ""])
def test_log_names_cannot_leave_their_folder(state: State, channel_name: str) -> None:
    async def scene(channel: Any) -> None:
        call = logs_pb2_grpc.LogsStub(channel).Ship(timeout=5)
        await call.write(logs_pb2.LogChunk(channel=channel_name, launch_id="x", data=b"x"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_channel(state, scene)


def test_a_request_to_renew_that_is_none(state: State) -> None:
    async def scene(channel: Any) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await fleet_pb2_grpc.FleetStub(channel).Renew(fleet_pb2.RenewRequest(csr_pem="x"), timeout=5)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_channel(state, scene)


def states(controller: Controller) -> list[tuple[str, str | None, bool]]:
    with controller.store.read() as session:
        rows = session.scalars(select(ChannelState).order_by(ChannelState.at, ChannelState.id)).all()
    assert [r.at for r in rows] == sorted(r.at for r in rows)
    return [(r.phase, r.model, r.fallback) for r in rows]


def test_the_store_hears_of_changes_and_never_of_heartbeats(controller: Controller, state: State) -> None:
    """A row a change of what a channel does; requests that run, and saying the same again, are no change."""

    async def scene() -> None:
        node = FakeNode()
        async with linked(state, node) as link:
            await until(lambda: controller.live.node("n1").online and controller.live.node("n1").channels)
            await until(lambda: link.connected and states(controller))
            said, expected = node.said.channels[0], [("off", None, False)]
            assert states(controller) == expected
            for phase in ("freeing", "loading", "ready"):
                said.phase = phase
                link.up.status_changed()
                expected.append((phase, None, False))
                await until(lambda: states(controller) == expected, what=f"{expected}")
            said.running, said.running_model, said.fallback = "x", "model-x", True
            link.up.status_changed()
            expected.append(("ready", "model-x", True))
            await until(lambda: states(controller) == expected, what=f"{expected}")
            before = controller.store.revision()
            for in_flight in (1, 2, 0):
                said.in_flight = in_flight
                link.up.status_changed()
                await until(lambda n=in_flight: controller.live.channel("n1", "main").in_flight == n)
            assert controller.store.revision() == before
        await until(lambda: states(controller) == [*expected, ("unknown", None, False)])
        assert controller.store.revision() == before + 1
        assert controller.live.channel("n1", "main").phase == "unknown"
        with controller.store.read() as session:
            assert session.scalars(select(Node.last_seen_at)).one()
        async with linked(state, node) as link:
            await until(lambda: states(controller)[-1] == ("ready", "model-x", True))
        await until(lambda: states(controller)[-1][0] == "unknown")

    asyncio.run(scene())


def test_a_node_that_does_not_come_back_after_a_start_is_not_known(controller: Controller, state: State) -> None:
    async def scene() -> None:
        async with linked(state, FakeNode()):
            await until(lambda: states(controller)[-1][0] == "off")
        await until(lambda: states(controller)[-1][0] == "unknown")

    asyncio.run(scene())
    with controller.store.write() as session:  # as a controller that was killed leaves it
        last = session.scalars(select(ChannelState).order_by(ChannelState.at.desc(), ChannelState.id.desc())).first()
        session.delete(last)
    records, count = Records(controller.store, controller.now), len(states(controller))
    with controller.store.read() as session:
        node_id = session.scalars(select(Node.id)).one()
    records.silent({node_id})
    assert len(states(controller)) == count
    for _ in range(2):
        records.silent(set())
        assert states(controller)[count:] == [("unknown", None, False)]


def test_a_channel_that_is_not_declared_any_more_is_gone(controller: Controller, state: State) -> None:
    async def scene() -> None:
        async with linked(state, FakeNode()):
            await until(lambda: states(controller)[-1][0] == "off")
        node = FakeNode(channels=("other",))
        node.said.channels[0].phase = "ready"
        async with linked(state, node):
            await until(lambda: {p for p, *_ in states(controller)[-2:]} == {"gone", "ready"})

    asyncio.run(scene())


def test_the_words_from_before_do_not_count_until_the_node_speaks_again(controller: Controller, state: State) -> None:
    """A node that was away may have become another: what it said then is no answer to what it does now."""

    def phase() -> str:
        return controller.live.channel("n1", "main").phase

    async def scene(channel: Any) -> None:
        said = fleet_pb2.Status(channels=[types_pb2.ChannelStatus(channel="main", phase="ready")])
        stub = fleet_pb2_grpc.FleetStub(channel)
        calls = []
        for n in range(3):
            calls.append(call := stub.Connect(timeout=20))
            await call.write(hello())
            assert (await call.read()).WhichOneof("body") == "welcome"
            await until(lambda: controller.live.node("n1").online)
            assert phase() == ("ready" if n == 1 else "unknown")  # the second stream of a node that is there
            await call.write(fleet_pb2.AgentMessage(status=said))
            await until(lambda: phase() == "ready")
            if n == 1:
                for one in calls:
                    one.cancel()
                await until(lambda: not controller.live.node("n1").online)
                assert phase() == "unknown"
        calls[-1].cancel()

    with_channel(state, scene)


def test_no_stream_outlives_its_certificate(controller: Controller, state: State) -> None:
    async def scene(channel: Any) -> None:
        call = logs_pb2_grpc.LogsStub(channel).Ship(timeout=10)
        await call.write(logs_pb2.LogChunk(channel="main", launch_id="x", data=b"x"))
        assert (await call.read()).next_offset == 1
        controller.clock_offset = 91 * 86_400_000
        await call.write(logs_pb2.LogChunk(channel="main", launch_id="x", offset=1, data=b"y"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "run out" in refused.value.details()

    with_channel(state, scene)

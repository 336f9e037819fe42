"""The fleet port against clients that do not behave: nobody in without a certificate, a clear answer to nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from sqlalchemy import select

from agent.state import State
from controller.store.tables import Node
from protos import fleet_pb2, fleet_pb2_grpc, logs_pb2, logs_pb2_grpc
from tests.fleet_parts import Controller, FakeNode, linked, until


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
    return fleet_pb2.AgentMessage(hello=fleet_pb2.Hello(**{"node": "n1", "contract": 1, **changes}))


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


def test_the_store_hears_of_a_node_that_leaves_and_of_nothing_between(controller: Controller, state: State) -> None:
    """Heartbeats and changes of phase are not written."""

    async def scene() -> None:
        node = FakeNode()
        async with linked(state, node) as link:
            await until(lambda: controller.live.node("n1").online and controller.live.node("n1").channels)
            await until(lambda: link.connected)
            await asyncio.sleep(0.3)
            before = controller.store.revision()
            for phase in ("freeing", "loading", "ready"):
                node.said.channels[0].phase = phase
                link.status_changed()
                await until(lambda phase=phase: controller.live.channel("n1", "main").phase == phase)
            assert controller.store.revision() == before
        await until(lambda: controller.store.revision() == before + 1)
        assert controller.live.channel("n1", "main").phase == "unknown"
        with controller.store.read() as session:
            assert session.scalars(select(Node.last_seen_at)).one()

    asyncio.run(scene())

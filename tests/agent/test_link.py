"""The link against the real service: plans, epochs, time, reconnecting; every connection is mutual TLS."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from agent import link
from agent.clock import NodeClock
from agent.enrolment import enrol
from agent.state import SavedPlan, State
from controller.store.tables import Load
from protos import fleet_pb2, types_pb2
from tests.fleet_parts import Controller, FakeNode, count, linked, plan_bytes, step
from tests.parts import until


def test_a_plan_is_pushed_kept_and_acknowledged(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    controller.planner.set("n1", 3, 7, plan_bytes("n1", step(1, "a"), step(9, "b", "preload", fallback="a")))

    async def scene() -> None:
        async with linked(state, node):
            await until(lambda: controller.live.node("n1").plan_generation == 7)
            assert controller.live.node("n1").online
            assert [s.target.model for s in node.plans[0].channels["main"] if s.target] == ["model-a", "model-b"]
            saved = State(state.folder).load_plan()
            assert saved is not None
            assert (saved.epoch, saved.generation) == (3, 7)
            controller.planner.set("n1", 3, 8, plan_bytes("n1", step(1, "b")))
            await until(lambda: controller.live.node("n1").plan_generation == 8)
        await until(lambda: not controller.live.node("n1").online)
        # What it holds already is not sent again.
        async with linked(state, node):
            await until(lambda: controller.live.node("n1").online)
            await asyncio.sleep(0.2)
        assert len(node.plans) == 2

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("epoch", "generation", "plan", "words"),
    [
        (2, 9, plan_bytes("n1", step(1, "b")), "epoch 2 is lower than 3"),
        (3, 6, plan_bytes("n1", step(1, "b")), "generation 6 is older than 7"),
        (3, 8, plan_bytes("n1", step(1, "b"))[:-3], "cut off"),
        (3, 8, plan_bytes("n2", step(1, "b")), "for node 'n2'"),
        (3, 8, plan_bytes("n1", step(1, "b"), channel="other"), "'other' is not declared"),
        (3, 8, plan_bytes("n1", step(5, "b"), step(4, "a")), "not in the order of time"),
        (3, 8, plan_bytes("n1", step(1, "b", "magic")), "'magic'"),
    ],
)
def test_a_bad_plan_is_refused_in_words_and_the_last_one_kept(
    controller: Controller, epoch: int, generation: int, plan: bytes, words: str
) -> None:
    state, node = controller.enrolled(), FakeNode()
    controller.planner.set("n1", 3, 7, plan_bytes("n1", step(1, "a")))

    async def scene() -> None:
        async with linked(state, node):
            await until(lambda: controller.live.node("n1").plan_generation == 7)
            controller.planner.set("n1", epoch, generation, plan)
            await until(lambda: words in controller.live.node("n1").refusal)
            assert controller.live.node("n1").plan_generation == 7
            assert controller.live.node("n1").online, "a refused plan ends no stream"
            held = State(state.folder).load_plan()
            assert held is not None
            assert (held.epoch, held.generation) == (3, 7)
            assert len(node.plans) == 1
            controller.planner.set("n1", 3, 10, plan_bytes("n1", step(1, "b")))
            await until(lambda: controller.live.node("n1").plan_generation == 10)
            assert controller.live.node("n1").refusal == ""

    asyncio.run(scene())


def test_a_plan_damaged_on_the_way_is_refused(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    controller.planner.broken_digest = True
    controller.planner.set("n1", 1, 1, plan_bytes("n1"))

    async def scene() -> None:
        async with linked(state, node):
            await until(lambda: "digest" in controller.live.node("n1").refusal)
            assert State(state.folder).load_plan() is None
            assert not node.plans

    asyncio.run(scene())


def test_a_restored_database_goes_beyond_the_epoch_that_nodes_have(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    state.save_plan(SavedPlan(40, 2, plan_bytes("n1")))
    controller.planner.set("n1", 3, 7, plan_bytes("n1", step(1, "a")))

    async def scene() -> None:
        async with linked(state, node):
            await until(lambda: controller.live.node("n1").plan_generation == 7)
            assert controller.live.node("n1").plan_epoch == 41
            assert controller.live.node("n1").refusal == ""

    asyncio.run(scene())


def test_a_controller_that_was_away_is_found_again(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            await asyncio.to_thread(controller.restart)
            link.up.load_result(fleet_pb2.LoadResult(id="while-away", channel="main", model="m", ok=True, seconds=2))
            await until(lambda: controller.live.node("n1").online, 15)
            await until(lambda: count(controller, Load) == 1)
            await until(lambda: len(link.up._spool) == 0)

    asyncio.run(scene())


NO_WAY = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:55721: Failed to connect to remote host: "
)


def _lost(code: grpc.StatusCode, details: str | None) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("err", "said"),
    [
        (_lost(grpc.StatusCode.CANCELLED, "this controller is stopping"), "this controller is stopping"),
        (_lost(grpc.StatusCode.INTERNAL, "Internal error from Core"), link.CLOSED),
        (_lost(grpc.StatusCode.INTERNAL, "the database is away"), "the database is away"),
        (_lost(grpc.StatusCode.UNAVAILABLE, None), "UNAVAILABLE"),
        (_lost(grpc.StatusCode.UNAVAILABLE, f"{NO_WAY}Connection refused"), "cannot connect: Connection refused"),
        (asyncio.InvalidStateError("RPC already finished."), link.CLOSED),
        (TimeoutError(), "no answer within 10 s"),
        (ConnectionResetError(104, "Connection reset by peer"), "[Errno 104] Connection reset by peer"),
        (link.LinkLost("the controller did not say welcome"), "the controller did not say welcome"),
    ],
)
def test_why_a_stream_has_ended_is_said_in_words(err: Exception, said: str) -> None:
    assert link.words(err) == said


def test_a_stream_that_is_closed_in_the_middle_of_writing_is_no_riddle(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent writes all the time while the controller ends the stream: whichever of both comes first, words are said."""
    state, node = controller.enrolled(), FakeNode()

    async def scene() -> None:
        async with linked(state, node) as it:
            await until(lambda: it.connected)

            async def writes() -> None:
                while True:
                    it.up.say(plan_answer=fleet_pb2.PlanAnswer(reason="x" * 5_000))
                    await asyncio.sleep(0)

            busy = asyncio.create_task(writes())
            await asyncio.sleep(0.05)
            await asyncio.to_thread(controller.server.stop)
            await until(lambda: bool(it.trouble))
            busy.cancel()

    asyncio.run(scene())
    said = [r.getMessage() for r in caplog.records if r.name == "agent.link" and r.levelname != "INFO"]
    assert said
    for riddle in ("Internal error", "InvalidState", "Error("):
        assert not [one for one in said if riddle in one]


def test_a_second_stream_takes_the_place_of_the_first_without_offline(controller: Controller) -> None:
    state, first, second = controller.enrolled(), FakeNode(), FakeNode()
    seen: list[bool] = []
    controller.live.on_change(lambda name, _: seen.append(controller.live.node(name).online))

    async def scene() -> None:
        async with linked(state, first) as old:
            await until(lambda: old.connected)
            old_task = asyncio.current_task()
            assert old_task
            controller.live.update("n1", channels={})
            async with linked(State(state.folder), second) as new:
                await until(lambda: new.connected)
                second.said = fleet_pb2.Status(channels=[types_pb2.ChannelStatus(channel="main", phase="ready")])
                new.up.status_changed()
                await until(lambda: controller.live.channel("n1", "main").phase == "ready")
                assert False not in seen

    asyncio.run(scene())


def test_after_an_enrolment_a_lower_epoch_is_obeyed(controller: Controller) -> None:
    """The agent runs all the while; what it carries out stays until the next plan."""
    state, node = controller.enrolled(), FakeNode()
    controller.planner.set("n1", 3, 7, plan_bytes("n1", step(1, "a")))

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: controller.live.node("n1").plan_generation == 7)
            controller.planner.set("n1", 2, 9, plan_bytes("n1", step(1, "b")))
            await until(lambda: "epoch 2 is lower than 3" in controller.live.node("n1").refusal)
            await asyncio.to_thread(enrol, controller.add_node("n1"), State(state.folder))
            held = State(state.folder).load_plan()
            assert held is not None
            assert (held.epoch, held.plan) == (0, plan_bytes("n1", step(1, "a")))
            await until(lambda: (p := link.down.held) is not None and p.generation == 9, 15)
            assert [s.target.model for s in node.plans[-1].channels["main"] if s.target] == ["model-b"]

    asyncio.run(scene())


def test_node_time_follows_the_controllers(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    controller.clock_offset = 3_600_000  # the node's wall clock is an hour behind
    clock = NodeClock(state.folder / "clock.json")

    async def scene() -> None:
        async with linked(state, node, clock=clock):
            await until(lambda: clock.measured)
            assert abs(clock.now_ms() - controller.now()) < 200
            await until(lambda: controller.live.node("n1").clock_skew_seconds is not None)
            assert controller.live.node("n1").clock_skew_seconds == pytest.approx(-3600, abs=1)

    asyncio.run(scene())

"""The link against the real service: plans, keys, commands, reports, reconnecting; every connection is mutual TLS."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from sqlalchemy import func, select

from agent import link
from agent.clock import NodeClock
from agent.enrolment import enrol
from agent.errors import EnrolmentFailed
from agent.state import SavedPlan, State
from controller.fleet import watch
from controller.fleet.records import Records
from controller.store.tables import ApiKey, Channel, Command, Load, Node, NodeModel, Usage, User
from protos import fleet_pb2, types_pb2
from tests.fleet_parts import Controller, FakeNode, linked, plan_bytes, step
from tests.parts import until


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()


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


def test_reports_reach_the_store_once(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    result = fleet_pb2.LoadResult(id="l1", channel="main", identity="i", model="m", ok=True, seconds=1.5, at_ms=5)
    result.gpu_memory_bytes = 5 << 30
    row = fleet_pb2.UsageRow(id="r1", channel="main", model="m", key_id="k", user_id="u", at_ms=5, status=200)
    row.prompt_tokens, row.completion_tokens = 0, 7
    silent = fleet_pb2.UsageRow(id="r2", channel="main", model="m", key_id="k", user_id="u", at_ms=6, status=200)

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            link.up.load_result(result)
            link.up.send_items(link.up._spool.items())  # as after a connection that broke before the acknowledgement
            await link.up.usage([row, row, silent])
            link.up.event(fleet_pb2.Event(id="e1", kind="failed", channel="main", text="it fell over", at_ms=5))
            node.models = [types_pb2.Model(name="m", path="/m.gguf", size_bytes=7, format="gguf", channels=["main"])]
            node.models[0].context_length, node.models[0].quantisation = 8192, "Q4_K_M"
            link.up.inventory_changed()
            await until(lambda: len(link.up._spool) == 0)
            await until(lambda: count(controller, NodeModel) == 1)
            assert (first(controller, NodeModel).context_length, first(controller, NodeModel).quantisation) == (
                8192,
                "Q4_K_M",
            )
            node.models[0].context_length = 4096  # only that is different
            link.up.inventory_changed()
            await until(lambda: first(controller, NodeModel).context_length == 4096)
            assert count(controller, Load) == 1
            assert first(controller, Load).gpu_memory_bytes == 5 << 30
            assert count(controller, Usage) == 2
            with controller.store.read() as session:
                said = {u.id: (u.prompt_tokens, u.completion_tokens) for u in session.scalars(select(Usage))}
            assert said == {"r1": (0, 7), "r2": (None, None)}
            assert [(e.subject, e.text) for e in controller.told] == [("n1/main", "it fell over")]
            node.models = []
            link.up.inventory_changed()
            await until(lambda: first(controller, NodeModel).gone_at is not None)

    asyncio.run(scene())


def test_a_report_that_cannot_be_taken_is_kept_and_keeps_nothing_else(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the controller's in taking it: the node would else dial again for ever, and hear no plan."""
    take = Records.loads

    def loads(self: Records, node_id: str, results: list[fleet_pb2.LoadResult]) -> None:
        if results[0].id == "bad":
            raise AttributeError("a fault of ours")
        take(self, node_id, results)

    monkeypatch.setattr(Records, "loads", loads)
    node = FakeNode()

    async def scene() -> None:
        async with linked(controller.enrolled(), node) as link:
            for name in ("bad", "good"):
                link.up.load_result(fleet_pb2.LoadResult(id=name, channel="main", model="m", ok=True, seconds=2))
            await until(lambda: [i.id for i in link.up._spool.items()] == ["bad"])
            call = link._call
            controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1)))
            await until(lambda: node.plans)
            assert link._call is call
        monkeypatch.setattr(Records, "loads", take)
        async with linked(controller.enrolled(), node, spool=link.up._spool) as link:
            await until(lambda: count(controller, Load) == 2)

    asyncio.run(scene())
    assert [r.getMessage() for r in caplog.records if r.exc_info] == ["message not taken node=n1 kind=load_result"]


def test_a_full_disk_does_not_keep_reports_from_a_controller_that_listens(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        async with linked(controller.enrolled(), FakeNode()) as link:
            await until(lambda: link.connected)
            link.up.load_result(fleet_pb2.LoadResult(id="l1", channel="main", model="m", ok=True, seconds=2))
            monkeypatch.setattr(link.up._spool, "_append", full)
            await until(lambda: len(link.up._spool) == 0)
            link.up.event(fleet_pb2.Event(id="e1", kind="failed", channel="main", text="it fell over", at_ms=5))
            await until(lambda: [e.text for e in controller.told] == ["it fell over"])
            with pytest.raises(OSError, match="No space"):
                await link.up.usage([fleet_pb2.UsageRow(id="r1", channel="main", model="m")])  # the gateway keeps it
            await asyncio.sleep(0.1)
            assert link.connected

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


def test_what_a_node_declares_is_kept(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode(channels=("left", "right"))

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
        async with linked(state, FakeNode(channels=("left",))) as link:
            await until(lambda: link.connected)
            with controller.store.read() as session:
                gone = {row.name: row.gone_at for row in session.execute(select(Channel.name, Channel.gone_at))}
            assert gone["left"] is None
            assert gone["right"]
            assert first(controller, Node).own_settings == {"drain_seconds": 0.0}
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            with controller.store.read() as session:
                assert session.scalars(select(Channel.gone_at)).all() == [None, None]

    asyncio.run(scene())


def test_keys_reach_the_node_at_once_and_when_nobody_says_that_they_changed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 3600)
    state, node = controller.enrolled(), FakeNode()
    with controller.store.write() as session:
        session.add(User(id="u", name="maya", created_at=1))
        session.flush()
        session.add(ApiKey(id="k1", user_id="u", name="", prefix="", sha256="aa", created_at=1))

    async def scene() -> None:
        async with linked(state, node):
            await until(lambda: node.keys is not None and set(node.keys) == {"aa"})
            change(controller, ApiKey(id="k2", user_id="u", name="", prefix="", sha256="bb", created_at=1))
            controller.service.look(keys=True)
            await until(lambda: set(node.keys or ()) == {"aa", "bb"})
            monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
            controller.service.look()
            with controller.store.write() as session:
                session.get_one(ApiKey, "k1").revoked_at = 1
            await until(lambda: set(node.keys or ()) == {"bb"})
            with controller.store.write() as session:
                session.get_one(User, "u").disabled_at = 1
            controller.service.look(keys=True)
            await until(lambda: node.keys == {})

    asyncio.run(scene())


def test_a_command_is_carried_out_once_and_answered(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    node.answer = (False, "nothing is loaded")

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            command(controller, "c1", 60_000)
            controller.service.look()
            await until(lambda: first(controller, Command).state == "refused")
            assert first(controller, Command).answer == "nothing is loaded"
            assert node.commands == [("reload", "main")]
            again = fleet_pb2.Command(id="c1", kind="reload", channel="main", deadline_ms=controller.now() + 60_000)
            await link.down.command(again)
            assert len(node.commands) == 1
        async with linked(State(state.folder), node) as link:  # nor after a restart
            await link.down.command(again)
            assert len(node.commands) == 1

    asyncio.run(scene())


def test_a_command_past_its_deadline_is_not_carried_out(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()
    command(controller, "c1", -1)

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: first(controller, Command).state == "late")
            await link.down.command(fleet_pb2.Command(id="c2", kind="reload", channel="main", deadline_ms=5))
            assert "deadline" in link.down.results["c2"].reason
            assert not node.commands

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


def test_a_removed_node_is_put_out_and_not_let_in_again(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            with controller.store.write() as session:
                session.scalars(select(Node)).one().removed_at = 1
            await until(lambda: not controller.live.node("n1").online, 3)
            await asyncio.sleep(0.5)
            assert not link.connected

    asyncio.run(scene())


def test_an_old_certificate_of_a_node_enrolled_anew_is_refused(controller: Controller) -> None:
    old, node = controller.enrolled(), FakeNode()
    new = controller.enrolled()

    async def scene() -> None:
        async with linked(old, node) as link:
            await asyncio.sleep(0.5)
            assert not link.connected
        async with linked(new, node) as link:
            await until(lambda: link.connected)

    asyncio.run(scene())


def test_a_certificate_is_renewed_without_a_phase_offline(tmp_path: Path) -> None:
    controller = Controller(tmp_path / "short", client_life=datetime.timedelta(seconds=6))
    seen: list[bool] = []
    try:
        state, node = controller.enrolled(), FakeNode()
        first = state.identity()
        controller.live.on_change(lambda name, _: seen.append(controller.live.node(name).online))

        async def scene() -> None:
            async with linked(state, node) as link:
                await until(lambda: link.connected)
                call = link._call
                await until(lambda: state.identity() != first, 10, "renewed")
                await until(lambda: link.connected and link._call is not call)
                await until(lambda: time.time() * 1000 > first.ends_at + 1000, 60, "the first one has run out")
                assert link.connected
                node.said = fleet_pb2.Status(channels=[types_pb2.ChannelStatus(channel="main", phase="ready")])
                link.up.status_changed()
                await until(lambda: controller.live.channel("n1", "main").phase == "ready")
                assert False not in seen

        asyncio.run(scene())
    finally:
        controller.close()


def test_a_certificate_that_has_run_out_ends_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(tmp_path / "short", client_life=datetime.timedelta(seconds=3))
    monkeypatch.setattr("agent.enrolment.renew", _never)
    try:
        state, node = controller.enrolled(), FakeNode()

        async def scene() -> None:
            async with linked(state, node) as link:
                await until(lambda: link.connected)
                await until(lambda: not controller.live.node("n1").online, 8)

        asyncio.run(scene())
    finally:
        controller.close()


async def _never(*_: object) -> None:
    raise EnrolmentFailed("not today")


def test_a_node_cannot_say_it_is_another(controller: Controller) -> None:
    controller.add_node("n2")
    state = controller.enrolled("n1")

    async def scene() -> None:
        async with linked(state, FakeNode("n2")) as link:
            await asyncio.sleep(0.5)
            assert not link.connected
            assert not controller.live.node("n2").online
            assert not controller.live.node("n1").online

    asyncio.run(scene())


def test_a_foreign_certificate_is_not_let_in(controller: Controller, tmp_path: Path) -> None:
    other = Controller(tmp_path / "other")
    try:
        state = other.enrolled("n1")
    finally:
        other.close()
    controller.add_node("n1")
    ours = controller.enrolled("n1")
    # The foreign node trusts our CA but has a certificate of its own.
    good = ours.identity()
    state.save_identity(replace(state.identity(), ca=good.ca, fleet_address=good.fleet_address))

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await asyncio.sleep(0.5)
            assert not link.connected
            assert not controller.live.node("n1").online

    asyncio.run(scene())


def count(controller: Controller, table: type) -> int:
    with controller.store.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def first(controller: Controller, table: type):
    with controller.store.read() as session:
        return session.scalars(select(table)).one()


def change(controller: Controller, *rows: object) -> None:
    with controller.store.write() as session:
        session.add_all(rows)


def command(controller: Controller, command_id: str, due_in_ms: int) -> None:
    with controller.store.read() as session:
        node_id = session.scalars(select(Node.id)).one()
    now = controller.now()
    row = Command(
        id=command_id, node_id=node_id, channel="main", kind="reload", created_at=now, deadline=now + due_in_ms
    )
    change(controller, row)

"""What goes over the link beside plans, against the real service: reports, what a node declares, keys, commands."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from agent.state import State
from controller.fleet import watch
from controller.fleet.records import Records
from controller.store.tables import ApiKey, Channel, Command, Load, Node, NodeModel, Usage, User
from protos import fleet_pb2, types_pb2
from tests.fleet_parts import Controller, FakeNode, change, count, first, linked, plan_bytes, step
from tests.parts import until


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


def command(controller: Controller, command_id: str, due_in_ms: int) -> None:
    with controller.store.read() as session:
        node_id = session.scalars(select(Node.id)).one()
    now = controller.now()
    row = Command(
        id=command_id, node_id=node_id, channel="main", kind="reload", created_at=now, deadline=now + due_in_ms
    )
    change(controller, row)

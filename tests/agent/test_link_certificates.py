"""Who is let in over the link, and for how long: certificates that are old, foreign, renewed, run out."""

from __future__ import annotations

import asyncio
import datetime
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from agent.errors import EnrolmentFailed
from controller.store.tables import Node
from protos import fleet_pb2, types_pb2
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


def test_a_removed_node_is_put_out_and_not_let_in_again(controller: Controller) -> None:
    state, node = controller.enrolled(), FakeNode()

    async def scene() -> None:
        async with linked(state, node) as link:
            await until(lambda: link.connected)
            with controller.store.write() as session:
                session.scalars(select(Node)).one().removed_at = 1
            await until(lambda: not controller.live.node("n1").online, 3)
            print("REM", link.trouble)
            await asyncio.sleep(3)
            assert not link.connected
            print("REM", link.trouble)

    asyncio.run(scene())


def test_an_old_certificate_of_a_node_enrolled_anew_is_refused(controller: Controller) -> None:
    old, node = controller.enrolled(), FakeNode()
    new = controller.enrolled()

    async def scene() -> None:
        async with linked(old, node) as link:
            await until(lambda: link.trouble)
            assert not link.connected
            print("OLD", link.trouble)
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
            await until(lambda: link.trouble)
            print("OTH", link.trouble)
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
            await until(lambda: link.trouble)
            print("FOR", link.trouble)
            assert not link.connected
            assert not controller.live.node("n1").online

    asyncio.run(scene())

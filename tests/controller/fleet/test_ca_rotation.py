"""The CA is changed for a new one while nodes are connected: nobody is cut off, and the old one opens nothing afterwards."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from agent.enrolment import enrol, read_join
from agent.state import SavedPlan, State, trusted
from controller.fleet import ca_rotation
from controller.fleet.ca import CertificateAuthority
from controller.fleet.ca_rotation import RotationRefused, look, waiting
from controller.store.nodes import certificates
from controller.store.tables import Node
from protos.shared.files import write_private
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()


def late(controller: Controller) -> list[str]:
    with controller.store.read() as session:
        return waiting(look(controller.folder / "ca"), certificates(session))


def test_a_change_cuts_nobody_off(controller: Controller, tmp_path: Path) -> None:
    folder = controller.folder / "ca"
    state, off = controller.enrolled("n1"), controller.enrolled("n2")
    first = state.identity()
    state.save_plan(SavedPlan(1, 1, b"plan"))
    seen: list[bool] = []
    controller.live.on_change(lambda name, _: seen.append(controller.live.node(name).online))

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected)
            assert late(controller) == []
            ca_rotation.prepare(folder)
            assert ca_rotation.prepare(folder) == look(folder), "once more changes nothing"
            await until(lambda: len(trusted(state.identity().ca)) == 2)
            await until(lambda: late(controller) == ["n2"])
            assert state.identity().certificate == first.certificate
            ca_rotation.switch(folder)
            await until(lambda: state.identity().certificate != first.certificate, 10)
            await until(lambda: late(controller) == ["n2"], 10)
            assert link.connected
            now = ca_rotation.finish(folder)
            assert now.step == "steady"
            await until(lambda: trusted(state.identity().ca) == {now.signs})
            assert False not in seen, "never offline"
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected, 10)
        async with linked(off, FakeNode("n2")) as link:  # it has slept through all of it
            await until(lambda: link.trouble)
            print("CA", link.trouble)
            assert not link.connected

    asyncio.run(scene())
    assert state.load_plan() is not None, "the same controller: its plan stays"
    fresh = controller.add_node("n3")
    assert trusted(read_join(fresh).ca.encode()) == {look(folder).signs}
    assert enrol(fresh, State(tmp_path / "n3")) == "n3"


def test_a_node_that_missed_the_first_step_only_is_brought_along(controller: Controller) -> None:
    state = controller.enrolled()
    ca_rotation.prepare(controller.folder / "ca")

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected)
            await until(lambda: late(controller) == [])

    asyncio.run(scene())


def test_a_node_that_missed_the_second_step_renews_at_once(controller: Controller) -> None:
    state, folder = controller.enrolled(), controller.folder / "ca"

    async def scene() -> None:
        ca_rotation.prepare(folder)
        async with linked(state, FakeNode()):
            await until(lambda: late(controller) == [])
        ca_rotation.switch(folder)
        assert late(controller) == ["n1"]
        async with linked(state, FakeNode()):
            await until(lambda: late(controller) == [], 10)

    asyncio.run(scene())


def test_steps_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RotationRefused, match="there is no CA yet"):
        look(tmp_path / "ca")
    CertificateAuthority(tmp_path / "ca")
    with pytest.raises(RotationRefused, match="`slotserve ca prepare` comes first"):
        ca_rotation.switch(tmp_path / "ca")
    ca_rotation.prepare(tmp_path / "ca")
    with pytest.raises(RotationRefused, match="`slotserve ca switch` comes first"):
        ca_rotation.finish(tmp_path / "ca")
    ca_rotation.switch(tmp_path / "ca")
    with pytest.raises(RotationRefused, match="`slotserve ca finish` comes first"):
        ca_rotation.prepare(tmp_path / "ca")
    assert ca_rotation.switch(tmp_path / "ca").step == "switched"


@pytest.mark.parametrize("written", range(4))
def test_a_crash_in_the_switch_leaves_a_ca_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    folder = tmp_path / "ca"
    ca = CertificateAuthority(folder, ["h.example.org"])
    before = look(folder).signs
    ca_rotation.prepare(folder)
    done = 0

    def dying(path: Path, data: bytes, mode: int = 0o600) -> None:
        nonlocal done
        if done == written:
            raise KeyboardInterrupt
        done += 1
        write_private(path, data, mode)

    monkeypatch.setattr(ca_rotation, "write_private", dying)
    if written < 3:
        with pytest.raises(KeyboardInterrupt):
            ca_rotation.switch(folder)
    else:
        ca_rotation.switch(folder)
    for each in (ca, CertificateAuthority(folder, ["h.example.org"])):
        key, chain = each.server_pair()
        assert key
        assert chain
        assert before in each.trusted_ids()
        assert len(each.trusted_ids()) == 2
    monkeypatch.setattr(ca_rotation, "write_private", write_private)
    now = ca_rotation.switch(folder)
    assert (now.step, now.old) == ("switched", (before,))
    assert ca.trusted_ids()[0] == now.signs
    assert ca_rotation.finish(folder).step == "steady"
    assert ca.trusted_ids() == (now.signs,)


@pytest.mark.parametrize("order", list(itertools.permutations(("old.crt", "ca.key", "ca.crt"))))
def test_another_controller_gets_the_files_one_by_one(tmp_path: Path, order: tuple[str, ...]) -> None:
    """While it runs, and in whatever order; in the one that the switch itself takes it trusts no less at any moment."""
    giver, taker = tmp_path / "a", tmp_path / "b"
    CertificateAuthority(giver)
    ca_rotation.prepare(giver)
    shutil.copytree(giver, taker)
    ca = CertificateAuthority(taker)
    before = set(ca.trusted_ids())
    now = ca_rotation.switch(giver)
    for name in order:
        write_private(taker / name, (giver / name).read_bytes())
        assert now.signs in ca.trusted_ids()
        if order == ("old.crt", "ca.key", "ca.crt"):
            assert set(ca.trusted_ids()) == before
    for name in ("next.crt", "next.key"):
        (taker / name).unlink()
        assert ca.trusted_ids() == (now.signs, *now.old)


def test_a_strange_bundle_is_not_believed(controller: Controller, tmp_path: Path) -> None:
    state = controller.enrolled()
    foreign = CertificateAuthority(tmp_path / "foreign").certificate_pem()
    before = state.identity()

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected)
            from protos import fleet_pb2

            for text in (foreign, "", "nothing"):
                link._certificate.trust(fleet_pb2.Trust(ca_pem=text, renew=True))
            await asyncio.sleep(0.1)

    asyncio.run(scene())
    assert state.identity() == before


def test_a_disabled_node_is_cut_off_and_let_in_again(controller: Controller) -> None:
    state = controller.enrolled()

    def disable(at: int | None) -> None:
        with controller.store.write() as session:
            session.scalars(select(Node)).one().disabled_at = at
        controller.service.look(keys=True)

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected)
            disable(1)
            await until(lambda: not link.connected, 3)
            await until(lambda: "slotserve node enable n1" in link.trouble)
            assert not controller.live.node("n1").online
            disable(None)
            await until(lambda: link.connected, 15)

    asyncio.run(scene())

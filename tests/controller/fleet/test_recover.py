"""A node that was off while its certificate ran out comes back by a proof of its key, and nobody else does."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import select

from agent.enrolment import RECOVER, _load_key, _request, enrol, recover
from agent.errors import EnrolmentFailed
from agent.state import State
from controller.store.tables import Node
from protos import enrol_pb2, enrol_pb2_grpc
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until

DAY_MS = 86_400_000


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """Its certificates last a second."""
    controller = Controller(tmp_path / "c", client_life=datetime.timedelta(seconds=1))
    yield controller
    controller.close()


def expired(controller: Controller) -> State:
    state = controller.enrolled()
    while time.time() * 1000 < state.identity().ends_at:
        time.sleep(0.05)
    return state


def test_a_node_that_was_off_connects_again(controller: Controller) -> None:
    state = expired(controller)
    before = state.identity()
    controller.ca._client_life = datetime.timedelta(days=90)

    async def scene() -> None:
        async with linked(state, FakeNode()) as link:
            await until(lambda: link.connected, 10)

    asyncio.run(scene())
    after = state.identity()
    assert after.key != before.key
    assert after.ends_at > before.ends_at + 80 * DAY_MS
    assert (after.ca, after.enrol_address) == (before.ca, before.enrol_address)


def test_a_month_is_the_longest(controller: Controller) -> None:
    state = expired(controller)
    controller.clock_offset = 30 * DAY_MS - 60_000
    asyncio.run(recover(state, "n1", time.time()))
    controller.clock_offset = 30 * DAY_MS + 60_000
    with pytest.raises(
        EnrolmentFailed, match="more than 30 days ago; make another join string with `slotserve node add n1`"
    ):
        asyncio.run(recover(state, "n1", time.time()))


def test_who_has_the_certificate_but_not_its_key_is_refused(controller: Controller) -> None:
    state = expired(controller)
    thief = State(state.folder.parent / "thief")
    key = _load_key(controller.enrolled("n2").identity().key)
    identity = state.identity()
    csr = _request(key, "n1")
    proofs = [
        key.sign(RECOVER + csr.encode(), ec.ECDSA(hashes.SHA256())),  # by another key
        _load_key(identity.key).sign(csr.encode(), ec.ECDSA(hashes.SHA256())),  # by the right one, for something else
        b"",
    ]
    for proof in proofs:
        said = enrol_pb2.RecoverRequest(certificate_pem=identity.certificate.decode(), csr_pem=csr, signature=proof)
        with grpc.secure_channel(identity.enrol_address, grpc.ssl_channel_credentials(identity.ca)) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                enrol_pb2_grpc.EnrolmentStub(channel).Recover(said, timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "proof does not match" in refused.value.details()
    assert not (thief.folder / "identity.json").exists()


def test_a_certificate_of_another_controller_is_refused(controller: Controller, tmp_path: Path) -> None:
    controller.enrolled()
    other = Controller(tmp_path / "other", client_life=datetime.timedelta(seconds=1))
    try:
        foreign = other.enrolled()
    finally:
        other.close()
    ours = controller.enrolled("n2").identity()
    foreign.save_identity(replace(foreign.identity(), ca=ours.ca, enrol_address=ours.enrol_address))
    with pytest.raises(EnrolmentFailed, match="not of this controller"):
        asyncio.run(recover(foreign, "n1", time.time()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"removed_at": 1}, "has been removed"),
        ({"disabled_at": 1}, "is disabled"),
        ({"certificate_serial": "of-another-enrolment"}, "has been enrolled anew since"),
    ],
)
def test_who_may_not_connect_may_not_recover(controller: Controller, change: dict[str, object], words: str) -> None:
    state = expired(controller)
    with controller.store.write() as session:
        for name, value in change.items():
            setattr(session.scalars(select(Node)).one(), name, value)
    with pytest.raises(EnrolmentFailed, match=words):
        asyncio.run(recover(state, "n1", time.time()))


@pytest.mark.parametrize("certificate", ["", "no certificate"])
def test_what_is_no_certificate_is_told_so(controller: Controller, certificate: str) -> None:
    identity = controller.enrolled().identity()
    csr = _request(_load_key(identity.key), "n1")
    said = enrol_pb2.RecoverRequest(certificate_pem=certificate, csr_pem=csr)
    with grpc.secure_channel(identity.enrol_address, grpc.ssl_channel_credentials(identity.ca)) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            enrol_pb2_grpc.EnrolmentStub(channel).Recover(said, timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "certificate_pem" in refused.value.details()


def test_an_identity_without_an_enrolment_address_says_what_to_do(controller: Controller, tmp_path: Path) -> None:
    state = State(tmp_path / "a")
    enrol(controller.add_node("n1"), state)
    state.save_identity(replace(state.identity(), enrol_address=""))
    with pytest.raises(EnrolmentFailed, match=r"slotserve node add n1"):
        asyncio.run(recover(state, "n1", time.time()))

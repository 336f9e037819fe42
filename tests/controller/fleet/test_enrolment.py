"""Getting a certificate: the happy path, and every way in which the door stays shut, in words."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from sqlalchemy import select

from agent.enrolment import enrol, read_join
from agent.errors import EnrolmentFailed
from agent.state import SavedPlan, State
from controller.fleet.ca import CertificateAuthority, RequestRefused
from controller.store.tables import JoinToken, Node
from protos import enrol_pb2, enrol_pb2_grpc
from tests.fleet_parts import Controller, join_string


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()


def test_a_node_enrols(controller: Controller, tmp_path: Path) -> None:
    state = State(tmp_path / "a")
    assert enrol(controller.add_node("n1"), state, "n1") == "n1"
    identity = state.identity()
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "n1"
    assert identity.fleet_address == f"127.0.0.1:{controller.server.fleet_port}"
    assert stat.S_IMODE((state.folder / "identity.json").stat().st_mode) == 0o600
    with controller.store.read() as session:
        enrolment = certificate.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)[0].value
        assert session.scalars(select(Node.certificate_serial)).one() == enrolment


def test_a_token_opens_once(controller: Controller, tmp_path: Path) -> None:
    join = controller.add_node("n1")
    enrol(join, State(tmp_path / "a"))
    with pytest.raises(EnrolmentFailed, match=r"has been used.*slotserve node add n1"):
        enrol(join, State(tmp_path / "b"))


def test_a_token_lasts_fifteen_minutes(controller: Controller, tmp_path: Path) -> None:
    join = controller.add_node("n1")
    controller.clock_offset = 15 * 60_000
    with pytest.raises(EnrolmentFailed, match="expired"):
        enrol(join, State(tmp_path / "a"))


def test_a_token_is_for_one_name(controller: Controller, tmp_path: Path) -> None:
    join = read_join(controller.add_node("n1"))
    controller.add_node("n2")
    stolen = join_string(join.address, "n2", join.token, join.ca)
    with pytest.raises(EnrolmentFailed, match="not for a node called 'n2'"):
        enrol(stolen, State(tmp_path / "a"))
    guessed = join_string(join.address, "n1", "guess", join.ca)
    with pytest.raises(EnrolmentFailed, match="not known"):
        enrol(guessed, State(tmp_path / "a"))
    assert not (tmp_path / "a" / "identity.json").exists()
    enrol(join_string(join.address, "n1", join.token, join.ca), State(tmp_path / "a"))  # it was not spent by that


def test_the_nodes_file_must_agree(controller: Controller, tmp_path: Path) -> None:
    with pytest.raises(EnrolmentFailed, match="for node 'n1', the node's file says 'n7'"):
        enrol(controller.add_node("n1"), State(tmp_path / "a"), "n7")


def test_a_removed_node_needs_a_new_place(controller: Controller, tmp_path: Path) -> None:
    join = controller.add_node("n1")
    with controller.store.write() as session:
        session.scalars(select(Node)).one().removed_at = 1
    with pytest.raises(EnrolmentFailed, match="has been removed"):
        enrol(join, State(tmp_path / "a"))


def test_another_ca_is_not_believed(controller: Controller, tmp_path: Path) -> None:
    join = read_join(controller.add_node("n1"))
    foreign = CertificateAuthority(tmp_path / "foreign").certificate_pem()
    with pytest.raises(EnrolmentFailed, match="not the controller that this node is to trust"):
        enrol(join_string(join.address, "n1", join.token, foreign), State(tmp_path / "a"))
    with controller.store.read() as session:
        assert session.scalars(select(JoinToken.used_at)).one() is None


@pytest.mark.parametrize("text", ["", "abc", "e30", "  ", "ÿÿÿ", "eyJhZGRyZXNzIjogMX0"])
def test_half_a_join_string_is_told_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(EnrolmentFailed, match="not a whole join string"):
        enrol(text, State(tmp_path / "a"))


def test_nobody_answers(controller: Controller, tmp_path: Path) -> None:
    join = read_join(controller.add_node("n1"))
    with pytest.raises(EnrolmentFailed, match=r"no answer from 127\.0\.0\.1:1"):
        enrol(join_string("127.0.0.1:1", "n1", join.token, join.ca), State(tmp_path / "a"))


@pytest.mark.parametrize("csr", ["", "no request", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END-----"])
def test_a_request_that_is_none_does_not_spend_the_token(controller: Controller, tmp_path: Path, csr: str) -> None:
    text = controller.add_node("n1")
    join = read_join(text)
    credentials = grpc.ssl_channel_credentials(join.ca.encode())
    with grpc.secure_channel(join.address, credentials) as channel:
        stub = enrol_pb2_grpc.EnrolmentStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Enrol(enrol_pb2.EnrolRequest(node="n1", token=join.token, csr_pem=csr), timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "csr_pem" in refused.value.details()
    enrol(text, State(tmp_path / "a"))


def test_a_new_controller_makes_the_old_plan_forgotten(controller: Controller, tmp_path: Path) -> None:
    state = State(tmp_path / "a")
    enrol(controller.add_node("n1"), state)
    state.save_plan(SavedPlan(9, 9, b"plan"))
    enrol(controller.add_node("n1"), state)
    assert state.load_plan() is not None, "the same controller: its plan stays"
    other = Controller(tmp_path / "other")
    try:
        enrol(other.add_node("n1"), state)
    finally:
        other.close()
    assert state.load_plan() is None


def test_the_ca_is_made_once_and_kept_private(tmp_path: Path) -> None:
    first = CertificateAuthority(tmp_path / "ca", ["gpu.example.org", "10.1.2.3"])
    again = CertificateAuthority(tmp_path / "ca", ["gpu.example.org", "10.1.2.3"])
    assert first.certificate_pem() == again.certificate_pem()
    assert first.server_pair() == again.server_pair()
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "ca" / name).stat().st_mode) == 0o600
    before = first.server_pair()
    moved = CertificateAuthority(tmp_path / "ca", ["other.example.org"]).server_pair()
    assert moved != before
    names = x509.load_pem_x509_certificate(moved[1]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert "other.example.org" in names.value.get_values_for_type(x509.DNSName)


def test_a_request_signed_by_another_key_is_refused(tmp_path: Path) -> None:
    ca = CertificateAuthority(tmp_path / "ca")
    with pytest.raises(RequestRefused, match="certificate request"):
        ca.sign_csr(ca.certificate_pem(), "n1")

"""Certificates with which nodes show themselves to each other: what they say, that they stand for nothing else, and that
a node whose certificate is from before gets another by itself."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.state import State
from controller.fleet.ca import relay_name, serves_nodes
from protos import fleet_pb2
from tests.fleet_parts import Controller, FakeNode, linked
from tests.parts import until


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()


def certificate(state: State) -> x509.Certificate:
    return x509.load_pem_x509_certificate(state.identity().certificate)


class Relaying(FakeNode):
    def hello(self) -> fleet_pb2.Hello:
        said = super().hello()
        said.relay_address = "n1:8711"
        return said


def aged(controller: Controller, state: State) -> None:
    """The node's certificate as an earlier version made it: for a client only, with no name but the node's."""
    now = certificate(state)
    serial = now.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)[0].value
    subject = [(NameOID.COMMON_NAME, "n1"), (NameOID.SERIAL_NUMBER, str(serial))]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    old = controller.ca._sign(subject, now.public_key(), datetime.timedelta(days=90), usages, [])  # type: ignore[arg-type]
    pem = old.public_bytes(serialization.Encoding.PEM)
    state.save_identity(replace(state.identity(), certificate=pem))


def test_a_nodes_certificate_names_no_host(controller: Controller) -> None:
    found = certificate(controller.enrolled("n1"))
    assert serves_nodes(found, "n1")
    assert not serves_nodes(found, "n2")
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName(relay_name("n1"))]  # where there is one, nobody looks at the common name


@pytest.mark.parametrize("relays", [True, False])
def test_a_certificate_from_before_is_renewed_where_it_is_needed(controller: Controller, relays: bool) -> None:
    state = controller.enrolled("n1")
    aged(controller, state)
    assert not serves_nodes(certificate(state), "n1")

    async def scene() -> None:
        async with linked(state, Relaying() if relays else FakeNode()) as link:
            await until(lambda: link.connected)
            if relays:
                await until(lambda: serves_nodes(certificate(state), "n1"), 10, "it is renewed")
                await until(lambda: link.connected, 10, "and the stream goes on")
            else:
                await asyncio.sleep(0.5)
                assert not serves_nodes(certificate(state), "n1")

    asyncio.run(scene())

"""Who is at the other end of a stream: the node and the enrolment that its client certificate names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from controller.fleet.records import NodeRefused, Records


@dataclass(frozen=True, slots=True)
class Peer:
    """`enrolment`: the same for a certificate and those it was renewed to. `ends_at`: ms at which it runs out."""

    node: str
    enrolment: str
    ends_at: int
    certificate: x509.Certificate = field(compare=False, repr=False)


def peer_of(context: grpc.aio.ServicerContext) -> Peer:
    """The peer of a mutual-TLS stream. Raises NodeRefused where there is none (gRPC lets nobody in without)."""
    pem = context.auth_context().get("x509_pem_cert")
    if not pem:
        raise NodeRefused("no client certificate; enrol this node")
    return peer_named_by(x509.load_pem_x509_certificate(pem[0]))


def peer_named_by(certificate: x509.Certificate) -> Peer:
    """Whom a client certificate of our CA names. Raises NodeRefused where it is of another kind."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    enrolments = certificate.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)
    if len(names) != 1 or len(enrolments) != 1:
        raise NodeRefused("the client certificate does not name one node and its enrolment; enrol this node again")
    ends = int(certificate.not_valid_after_utc.timestamp() * 1000)
    return Peer(str(names[0].value), str(enrolments[0].value), ends, certificate)


async def admitted(context: grpc.aio.ServicerContext, records: Records) -> tuple[Peer, str]:
    """The peer and its node id, or the stream is aborted with the reason."""
    try:
        peer = peer_of(context)
        return peer, await asyncio.to_thread(records.check, peer.node, peer.enrolment, peer.ends_at)
    except NodeRefused as err:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))
        raise  # not reached: abort raises

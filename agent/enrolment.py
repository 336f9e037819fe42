"""`slotserve-agent enrol JOIN`: a key that never leaves this node, a request for it, a certificate for one-time token.

The join string carries the controller's CA: what answers at its address is trusted only when that CA vouches for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from dataclasses import dataclass

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.errors import EnrolmentFailed
from agent.state import Identity, State
from protos import enrol_pb2, enrol_pb2_grpc, fleet_pb2, fleet_pb2_grpc

SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Join:
    """A join string taken apart."""

    address: str
    node: str
    token: str
    ca: str


def enrol(join: str, state: State, node: str | None = None) -> str:
    """Gets and saves this node's identity; the node's name. Raises EnrolmentFailed in words.

    `node`: the name in the node's file, where there is one; it must be the join string's.
    """
    asked = read_join(join)
    if node is not None and node != asked.node:
        raise EnrolmentFailed(
            f"the join string is for node {asked.node!r}, the node's file says {node!r}; use the one made for {node!r}"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    reply = _call(asked, _request(key, asked.node))
    # The CA of the join string, not the reply's: it is the one a person has carried here.
    state.save_identity(_identity(key, reply.certificate_pem, asked.ca.encode(), reply.fleet_address))
    state.obey_any_epoch()
    return asked.node


async def renew(stub: fleet_pb2_grpc.FleetStub, state: State, node: str) -> None:
    """A new key and certificate over a connection made with the old ones. Raises grpc.RpcError or EnrolmentFailed."""
    old = state.identity()
    key = ec.generate_private_key(ec.SECP256R1())
    reply = await stub.Renew(fleet_pb2.RenewRequest(csr_pem=_request(key, node)), timeout=SECONDS)
    state.save_identity(_identity(key, reply.certificate_pem, old.ca, old.fleet_address))


def read_join(text: str) -> Join:
    """Raises EnrolmentFailed where the string is not whole."""
    text = "".join(text.split())
    try:
        data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        join = Join(data["address"], data["node"], data["token"], data["ca"])
        x509.load_pem_x509_certificate(join.ca.encode())
    except (ValueError, binascii.Error, KeyError, TypeError, AttributeError):
        raise EnrolmentFailed(
            "this is not a whole join string; copy all of what `slotserve node add NAME` printed"
        ) from None
    return join


def _request(key: ec.EllipticCurvePrivateKey, node: str) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def _call(join: Join, csr: str) -> enrol_pb2.EnrolReply:
    credentials = grpc.ssl_channel_credentials(root_certificates=join.ca.encode())
    with grpc.secure_channel(join.address, credentials) as channel:
        try:
            return enrol_pb2_grpc.EnrolmentStub(channel).Enrol(
                enrol_pb2.EnrolRequest(node=join.node, token=join.token, csr_pem=csr), timeout=SECONDS
            )
        except grpc.RpcError as err:
            raise EnrolmentFailed(_words(err, join)) from None


def _words(err: grpc.RpcError, join: Join) -> str:
    code, details = err.code(), err.details() or ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT):
        return f"the controller at {join.address} refused: {details}"
    if "certificate" in details.lower() or "ssl" in details.lower() or "handshake" in details.lower():
        return (
            f"what answers at {join.address} is not the controller of this join string (its certificate is not of that "
            "CA); nothing was sent to it"
        )
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"no answer from {join.address}: is the controller up, and its enrolment port open to this node? ({details})"
    return f"enrolment at {join.address} failed: {code.name}: {details}"


def _identity(key: ec.EllipticCurvePrivateKey, certificate_pem: str, ca: bytes, fleet_address: str) -> Identity:
    """What is saved. Raises EnrolmentFailed where the certificate is not of this CA or not for this key."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except (ValueError, TypeError, InvalidSignature) as err:  # several libraries' kinds; all mean the same here
        raise EnrolmentFailed(f"the certificate that came back cannot be used: {err!r}") from None
    if certificate.public_key() != key.public_key():
        raise EnrolmentFailed("the certificate that came back is for another key")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    now, end = time.time(), certificate.not_valid_after_utc.timestamp()
    renew_at = round((now + (end - now) * 2 / 3) * 1000)
    return Identity(private, certificate_pem.encode(), ca, fleet_address, renew_at)

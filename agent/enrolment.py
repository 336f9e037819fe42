"""How a node gets its certificates: with a one-time token (`slotserve-agent enrol JOIN`), by renewing a good one, by a proof
that it has the key of one that ran out while the node was off. Keys are made here and never leave the node.

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
RECOVER = b"slotserve recover\n"  # in front of what is signed: the signature is good for nothing else
_AGAIN = "make a join string with `slotserve node add {}`"


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
    state.save_identity(
        _identity(key, reply.certificate_pem, asked.ca.encode(), reply.fleet_address, asked.address, time.time())
    )
    state.obey_any_epoch()
    return asked.node


async def renew(stub: fleet_pb2_grpc.FleetStub, state: State, node: str, now: float) -> None:
    """A new key and certificate over a connection made with the old ones. Raises grpc.RpcError or EnrolmentFailed."""
    key = ec.generate_private_key(ec.SECP256R1())
    reply = await stub.Renew(fleet_pb2.RenewRequest(csr_pem=_request(key, node)), timeout=SECONDS)
    old = state.identity()
    ca = reply.ca_pem.encode() or old.ca  # over a connection that the old ones have vouched for
    state.save_identity(_identity(key, reply.certificate_pem, ca, old.fleet_address, old.enrol_address, now))


async def recover(state: State, node: str, now: float) -> None:
    """A new certificate for one that ran out while the node was off, at the enrolment port, by a proof that its key is
    here. Raises EnrolmentFailed in words."""
    old = state.identity()
    if not old.enrol_address:
        raise EnrolmentFailed(
            f"the certificate has run out and the enrolment address is not known; {_AGAIN.format(node)}"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    csr = _request(key, node)
    proof = _load_key(old.key).sign(RECOVER + csr.encode(), ec.ECDSA(hashes.SHA256()))
    said = enrol_pb2.RecoverRequest(certificate_pem=old.certificate.decode(), csr_pem=csr, signature=proof)
    credentials = grpc.ssl_channel_credentials(root_certificates=old.ca)
    async with grpc.aio.secure_channel(old.enrol_address, credentials) as channel:
        try:
            reply = await enrol_pb2_grpc.EnrolmentStub(channel).Recover(said, timeout=SECONDS)
        except grpc.RpcError as err:
            raise EnrolmentFailed(_words(err, old.enrol_address)) from None
    ca = reply.ca_pem.encode() or old.ca
    state.save_identity(_identity(key, reply.certificate_pem, ca, reply.fleet_address, old.enrol_address, now))


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
            raise EnrolmentFailed(_words(err, join.address)) from None


def _words(err: grpc.RpcError, address: str) -> str:
    code, details = err.code(), err.details() or ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT):
        return f"the controller at {address} refused: {details}"
    if "certificate" in details.lower() or "ssl" in details.lower() or "handshake" in details.lower():
        return (
            f"what answers at {address} is not the controller that this node is to trust (its certificate is not of that "
            "CA); nothing was sent to it"
        )
    if code == grpc.StatusCode.UNAVAILABLE and details.startswith("the controller"):  # its own words: it did answer
        return f"not possible at the moment, try again with the same string: {details} ({address})"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"no answer from {address}: is the controller up, and its enrolment port open to this node? ({details})"
    return f"enrolment at {address} failed: {code.name}: {details}"


def _identity(
    key: ec.EllipticCurvePrivateKey, certificate_pem: str, ca: bytes, fleet_address: str, enrol_address: str, now: float
) -> Identity:
    """What is saved; `now` in seconds. Raises EnrolmentFailed where the certificate is not of these CAs or of this key."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        authorities = x509.load_pem_x509_certificates(ca)
    except ValueError as err:
        raise EnrolmentFailed(f"the certificate that came back cannot be used: {err!r}") from None
    if not any(_issued_by(certificate, authority) for authority in authorities):
        raise EnrolmentFailed("the certificate that came back is of another certificate authority")
    if certificate.public_key() != key.public_key():
        raise EnrolmentFailed("the certificate that came back is for another key")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    end = certificate.not_valid_after_utc.timestamp()
    renew_at = now + (end - now) * 2 / 3
    return Identity(
        key=private,
        certificate=certificate_pem.encode(),
        ca=ca,
        fleet_address=fleet_address,
        renew_at=round(renew_at * 1000),
        ends_at=round(end * 1000),
        enrol_address=enrol_address,
    )


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "we make no others"
    return key

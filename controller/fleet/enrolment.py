"""How a node gets its certificate: its one-time token and a certificate request against a client certificate.

On a port of its own with server TLS only, for a node has no certificate yet. A token is for one node's name, good for
15 minutes and one use; a request that is refused for any other reason does not spend it. A node whose certificate ran out
while it was off proves that it has the key, for 30 days.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import select, update
from sqlalchemy.engine import CursorResult

from controller.fleet.ca import CertificateAuthority, Issued, RequestRefused, checked_request
from controller.fleet.peer import peer_named_by
from controller.fleet.records import NodeRefused, known
from controller.store import audit
from controller.store.session import Store
from controller.store.tables import JoinToken, Node
from protos import enrol_pb2, enrol_pb2_grpc

log = logging.getLogger(__name__)
RECOVER = b"slotserve recover\n"  # in front of what is signed: the signature is good for nothing else
RECOVER_DAYS = 30


class EnrolmentRefused(Exception):
    """The token does not open this door; the message is for the person who ran `enrol`."""


class EnrolmentService(enrol_pb2_grpc.EnrolmentServicer):
    """`fleet_address()` is what an enrolled node dials from then on."""

    def __init__(
        self, store: Store, ca: CertificateAuthority, clock: Callable[[], int], fleet_address: Callable[[], str]
    ) -> None:
        self._store, self._ca, self._clock, self._fleet_address = store, ca, clock, fleet_address

    async def Enrol(
        self, request: enrol_pb2.EnrolRequest, context: grpc.aio.ServicerContext
    ) -> enrol_pb2.EnrolReply | None:
        try:
            issued = await asyncio.to_thread(self._enrol, request.node, request.token, request.csr_pem)
        except RequestRefused as err:
            log.warning("enrolment refused node=%r peer=%s why=%r", request.node, context.peer(), str(err))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        except EnrolmentRefused as err:
            log.warning("enrolment refused node=%r peer=%s why=%r", request.node, context.peer(), str(err))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(err))
        else:
            log.info("node enrolled node=%s enrolment=%s peer=%s", request.node, issued.enrolment, context.peer())
            return enrol_pb2.EnrolReply(
                certificate_pem=issued.pem, ca_pem=self._ca.certificate_pem(), fleet_address=self._fleet_address()
            )
        return None

    async def Recover(
        self, request: enrol_pb2.RecoverRequest, context: grpc.aio.ServicerContext
    ) -> enrol_pb2.EnrolReply | None:
        """Another certificate for a node whose last one ran out, for a proof that it still has its key."""
        try:
            name, issued = await asyncio.to_thread(self._recover, request)
        except RequestRefused as err:
            log.warning("recovery refused peer=%s why=%r", context.peer(), str(err))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        except EnrolmentRefused as err:
            log.warning("recovery refused peer=%s why=%r", context.peer(), str(err))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(err))
        else:
            log.info("node recovered node=%s enrolment=%s peer=%s", name, issued.enrolment, context.peer())
            return enrol_pb2.EnrolReply(
                certificate_pem=issued.pem, ca_pem=self._ca.certificate_pem(), fleet_address=self._fleet_address()
            )
        return None

    def _recover(self, request: enrol_pb2.RecoverRequest) -> tuple[str, Issued]:
        checked_request(request.csr_pem)
        try:
            certificate = x509.load_pem_x509_certificate(request.certificate_pem.encode())
        except ValueError:
            raise RequestRefused("certificate_pem is not a certificate in PEM form") from None
        try:
            peer, key = peer_named_by(certificate), certificate.public_key()
        except NodeRefused as err:
            raise EnrolmentRefused(str(err)) from None
        again = _ANOTHER.format(name=peer.node)
        if self._ca.issuer_id(certificate) is None or not isinstance(key, ec.EllipticCurvePublicKey):
            raise EnrolmentRefused(f"this certificate is not of this controller; {again}")
        try:
            key.verify(request.signature, RECOVER + request.csr_pem.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise EnrolmentRefused(f"the proof does not match the certificate's key; {again}") from None
        now = self._clock()
        if now - peer.ends_at > RECOVER_DAYS * 86_400_000:
            raise EnrolmentRefused(f"the certificate ran out more than {RECOVER_DAYS} days ago; {again}")
        with self._store.write() as session:
            try:
                known(session, peer.node, peer.enrolment)
            except NodeRefused as err:
                raise EnrolmentRefused(str(err)) from None
            issued = self._ca.sign_csr(request.csr_pem, peer.node, peer.enrolment)
            audit.add(session, None, "node.recover", peer.node, now, after={"enrolment": issued.enrolment})
            return peer.node, issued

    def _enrol(self, name: str, token: str, csr_pem: str) -> Issued:
        checked_request(csr_pem)  # before the token is spent
        with self._store.write() as session:
            row = session.scalars(
                select(JoinToken).where(JoinToken.sha256 == hashlib.sha256(token.encode()).hexdigest())
            ).one_or_none()
            if row is None or row.node_name != name:
                # One sentence for both: who guesses tokens need not learn which names have one.
                raise EnrolmentRefused(
                    f"this token is not known, or not for a node called {name!r}; {_ANOTHER.format(name=name)}"
                )
            if row.used_at is not None:
                raise EnrolmentRefused(f"this token has been used; {_ANOTHER.format(name=name)}")
            now = self._clock()
            if row.expires_at <= now:
                raise EnrolmentRefused(f"this token has expired; {_ANOTHER.format(name=name)}")
            node = session.scalars(select(Node).where(Node.name == name, Node.removed_at.is_(None))).one_or_none()
            if node is None:
                raise EnrolmentRefused(f"node {name!r} has been removed; {_ANOTHER.format(name=name)}")
            spent = session.execute(
                update(JoinToken).where(JoinToken.id == row.id, JoinToken.used_at.is_(None)).values(used_at=now)
            )
            if not isinstance(spent, CursorResult) or spent.rowcount != 1:
                raise EnrolmentRefused(f"this token has been used; {_ANOTHER.format(name=name)}")
            issued = self._ca.sign_csr(csr_pem, name)
            node.certificate_serial = issued.enrolment
            audit.add(session, None, "node.enrol", name, now, after={"enrolment": issued.enrolment})
            return issued


_ANOTHER = "make another join string with `slotserve node add {name}`"

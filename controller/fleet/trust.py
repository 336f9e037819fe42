"""Connected nodes are told which CAs to trust, and to renew, while the controller's CA is being changed.

The folder is looked at once a second (a few stats); a node that trusts what it should and has a certificate of the CA
that signs hears nothing.
"""

from __future__ import annotations

import asyncio

from controller.fleet.ca import CertificateAuthority
from controller.fleet.sessions import Session, Sessions, message
from protos import fleet_pb2

LOOK_SECONDS = 1.0


class Trusts:
    """`run` on the loop; `tell` at each new stream and when a node has said anew what it trusts."""

    def __init__(self, ca: CertificateAuthority, sessions: Sessions) -> None:
        self._ca, self._sessions = ca, sessions

    async def run(self) -> None:
        """Until cancelled."""
        known: tuple[str, ...] = ()
        while True:
            trusted = self._ca.trusted_ids()
            if trusted != known:
                known = trusted
                for session in self._sessions.all():
                    self.tell(session)
            await asyncio.sleep(LOOK_SECONDS)

    def tell(self, session: Session) -> None:
        """Sends what the node lacks, if anything."""
        if self._trust(session) is not None:
            session.send(lambda: self._message(session), "trust")

    def _message(self, session: Session) -> fleet_pb2.ControllerMessage | None:
        trust = self._trust(session)
        return None if trust is None else message(trust=trust)

    def _trust(self, session: Session) -> fleet_pb2.Trust | None:
        if not session.trusts:
            return None  # an agent older than this
        trusted = self._ca.trusted_ids()
        renew = session.renew or session.certificate.get("issuer") != trusted[0]
        if set(session.trusts) == set(trusted) and not renew:
            return None
        return fleet_pb2.Trust(ca_pem=self._ca.certificate_pem(), renew=renew)

"""The fleet's own certificate authority: made at the controller's first start, kept in <state>/ca.

Nodes trust this CA only, and are known by the common name of the certificate that it gave them. One server
certificate serves both ports; it is made anew when its hosts change or it nears its end.

While it is being changed for another one (ca_rotation.py) several are trusted: the one that signs (ca.crt), the one that
will (next.crt), the one that did (old.crt). The files are looked at again when they change, so that a running controller
follows.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import logging
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protos.shared.files import write_private

log = logging.getLogger(__name__)
CA_DAYS = 20 * 365
SERVER_LIFE = datetime.timedelta(days=397)
CLIENT_LIFE = datetime.timedelta(days=90)
SKEW = datetime.timedelta(hours=1)  # a node whose clock is behind must still find its certificate valid
RENEW_BEFORE = datetime.timedelta(days=60)
CONTROLLER_LIFE = datetime.timedelta(days=30)  # made at each connection to another controller
CONTROLLERS = "slotserve controllers"  # the organisation in a controller's certificate; a node's has none
SIGNING = "ca.crt"
TRUSTED = (SIGNING, "next.crt", "old.crt")


class RequestRefused(ValueError):
    """A certificate request cannot be signed; the message says why."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A client certificate. `enrolment` names the enrolment that it goes back to, as it is kept with the node."""

    pem: str
    enrolment: str


@dataclass(frozen=True, slots=True)
class Held:
    """The folder's content as last read. `trusted`: with the one that signs, first."""

    ca: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    trusted: tuple[x509.Certificate, ...]
    stamp: tuple[object, ...]


class CertificateAuthority:
    """Opens the CA below `folder`, or makes it. `hosts`: names and addresses that nodes dial."""

    def __init__(self, folder: Path, hosts: Iterable[str] = (), client_life: datetime.timedelta = CLIENT_LIFE) -> None:
        self._folder, self._client_life = folder, client_life
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts)))
        if not (folder / SIGNING).exists():
            make_ca(folder, "ca")
        self._held_now = self._load()
        self._passed_over: tuple[object, ...] | None = None  # the stamp of a folder that could not be read

    def certificate_pem(self) -> str:
        """The certificates of all CAs that are trusted now, the one that signs first; for join strings as well."""
        return "".join(_pem(c) for c in self._held().trusted)

    def trusted_ids(self) -> tuple[str, ...]:
        """What the CAs that are trusted now are known by, the one that signs first."""
        return tuple(ca_id(c) for c in self._held().trusted)

    def issuer_id(self, certificate: x509.Certificate) -> str | None:
        """Which of them has signed a certificate; None: none of them."""
        return next((ca_id(c) for c in self._held().trusted if issued_by(certificate, c)), None)

    def _held(self) -> Held:
        if (stamp := _stamp(self._folder)) not in (self._held_now.stamp, self._passed_over):
            try:
                self._held_now = self._load()
            except (OSError, ValueError) as err:  # somebody puts the files of another controller here, one by one
                self._passed_over = stamp
                log.warning("certificate authority not read why=%s; going on with the one before", err)
        return self._held_now

    def _load(self) -> Held:
        stamp = _stamp(self._folder)
        files = [p for name in TRUSTED if (p := self._folder / name).exists()]
        found = [c for file in files for c in x509.load_pem_x509_certificates(file.read_bytes())]
        trusted = tuple(dict.fromkeys(found))  # a step that was broken off leaves one twice
        key = load_key(self._folder / "ca.key")
        fits = [c for c in trusted if c.public_key() == key.public_key()]
        if not fits:
            raise ValueError(f"{self._folder}: ca.key is not the key of {SIGNING}; restore both from a backup")
        return Held(fits[0], key, (fits[0], *(c for c in trusted if c != fits[0])), stamp)

    def server_pair(self) -> tuple[bytes, bytes]:
        """(private key, certificate chain) in PEM for both ports, made anew when it has to be."""
        crt, key = self._folder / "server.crt", self._folder / "server.key"
        if not (crt.exists() and key.exists() and self._still_good(x509.load_pem_x509_certificate(crt.read_bytes()))):
            private = ec.generate_private_key(ec.SECP256R1())
            names = [_san(h) for h in self._hosts]
            certificate = self._sign(
                [(NameOID.COMMON_NAME, "slotserve controller")],
                private.public_key(),
                SERVER_LIFE,
                [ExtendedKeyUsageOID.SERVER_AUTH],
                names,
            )
            write_private(key, _key_pem(private))
            write_private(crt, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return key.read_bytes(), crt.read_bytes()

    def sign_csr(self, csr_pem: str, node: str, enrolment: str = "") -> Issued:
        """A client certificate with common name `node` for the request's key; the request's own subject is ignored.

        `enrolment`: of the certificate that is renewed; without, a new one. Renewing needs no record of ours: until they
        run out, all certificates of a node's newest enrolment are good, so that no lost answer locks a node out.
        Raises RequestRefused where the request is none, or its signature does not prove that the sender has the key.
        """
        public = checked_request(csr_pem)
        enrolment = enrolment or secrets.token_hex(16)
        subject = [(NameOID.COMMON_NAME, node), (NameOID.SERIAL_NUMBER, enrolment)]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        certificate = self._sign(subject, public, self._client_life, usages, [x509.DNSName(relay_name(node))])
        return Issued(certificate.public_bytes(serialization.Encoding.PEM).decode(), enrolment)

    def controller_pair(self) -> tuple[bytes, bytes]:
        """(private key, certificate) in PEM with which this controller shows itself to another one of its database."""
        private = ec.generate_private_key(ec.SECP256R1())
        subject = [(NameOID.ORGANIZATION_NAME, CONTROLLERS), (NameOID.COMMON_NAME, socket.gethostname())]
        certificate = self._sign(subject, private.public_key(), CONTROLLER_LIFE, [ExtendedKeyUsageOID.CLIENT_AUTH], [])
        return _key_pem(private), certificate.public_bytes(serialization.Encoding.PEM)

    def _still_good(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self._held().ca)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, ValueError, TypeError, InvalidSignature):
            return False
        return set(names) == {_san(h) for h in self._hosts} and certificate.not_valid_after_utc > _now() + RENEW_BEFORE

    def _sign(
        self,
        subject: list[tuple[x509.ObjectIdentifier, str]],
        public: ec.EllipticCurvePublicKey,
        life: datetime.timedelta,
        usages: list[x509.ObjectIdentifier],
        names: list[x509.GeneralName],
    ) -> x509.Certificate:
        held = self._held()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in subject]))
            .issuer_name(held.ca.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - SKEW)
            .not_valid_after(_now() + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(held.key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(held.key, hashes.SHA256())


def make_ca(folder: Path, name: str) -> None:
    """A new CA as <name>.key and <name>.crt in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"SlotServe CA {secrets.token_hex(4)}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - SKEW)
        .not_valid_after(_now() + datetime.timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / f"{name}.key", _key_pem(key))  # first: a certificate without its key is of no use
    write_private(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def checked_request(csr_pem: str) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate request. Raises RequestRefused in words."""
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode())
    except ValueError as err:
        raise RequestRefused("csr_pem is not a certificate request in PEM form") from err
    if not request.is_signature_valid:
        raise RequestRefused("csr_pem: its signature does not match its key")
    public = request.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise RequestRefused("csr_pem: the key must be an elliptic-curve key (P-256)")
    return public


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path}: not an elliptic-curve key")
    return key


def ca_id(certificate: x509.Certificate) -> str:
    """What a CA is known by: the sha256 of its certificate, hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def relay_name(node: str) -> str:
    """What a node's certificate is made out to, for the gateways of other nodes that dial it (agent/gateway/relay.py looks
    for it). No host is called so, and a certificate that says it stands for none: not for this controller's either."""
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.node.slotserve.invalid"


def serves_nodes(certificate: x509.Certificate, node: str) -> bool:
    """Whether other nodes' gateways take a node's certificate (those made by earlier versions: no)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return relay_name(node) in names.get_values_for_type(x509.DNSName)


def issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether a certificate has been signed by a CA; its dates are not looked at."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _stamp(folder: Path) -> tuple[object, ...]:
    """Changes when a file of the folder that counts is another one."""
    found: list[object] = []
    for name in (*TRUSTED, "ca.key"):
        try:
            stat = (folder / name).stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(time.time()), datetime.UTC)

"""Certificates that are not as they should be, and what the fleet's port says to who comes with one."""

from __future__ import annotations

import json

import grpc
import pytest

from protos import fleet_pb2, fleet_pb2_grpc
from tests.hosts.fleet import Fleet
from tests.hosts.lab import Host


def knock(address: str, ca: bytes, key: bytes, certificate: bytes, node: str) -> grpc.StatusCode:
    """What the fleet's port says to who comes with this certificate and calls itself `node`."""
    hello = fleet_pb2.Hello(node=node, contract=1, version="0.1.0")
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate)) as channel:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(iter([fleet_pb2.AgentMessage(hello=hello)]), timeout=10)
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
    return refused.value.code()


# Run on the controller's host: a certificate for h3's next key that has run out already.
SHORT_LIVED = """
import datetime, json, sys
from pathlib import Path
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography import x509
from controller.fleet.ca import CertificateAuthority
said = json.load(sys.stdin)
ca = CertificateAuthority(Path("/var/lib/slotserve/ca"), client_life=datetime.timedelta(seconds=-said["ago"]))
key = ec.generate_private_key(ec.SECP256R1())
csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
old = x509.load_pem_x509_certificate(said["certificate"].encode())
(enrolment,) = old.subject.get_attributes_for_oid(x509.oid.NameOID.SERIAL_NUMBER)
pem = ca.sign_csr(csr.public_bytes(serialization.Encoding.PEM).decode(), "h3", enrolment.value).pem
private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
end = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp() * 1000
print(json.dumps({**said["identity"], "key": private.decode(), "certificate": pem, "ends_at": round(end), "renew_at": round(end) - 60000}))
"""


def with_expired_certificate(fleet: Fleet, host: Host, ago: int) -> None:
    """Has the node been off while its certificate ran out, `ago` seconds before now."""
    host.run("systemctl", "stop", "slotserve-agent")
    file = host.root / "var/lib/slotserve-agent/identity.json"
    identity = json.loads(file.read_text())
    (fleet.controller.root / "root/short.py").write_text(SHORT_LIVED)
    said = json.dumps({"ago": ago, "identity": identity, "certificate": identity["certificate"]})
    (fleet.controller.root / "root/said.json").write_text(said)
    made = fleet.controller.sh(
        "/opt/slotserve/controller/current/venv/bin/python /root/short.py < /root/said.json && rm /root/short.py /root/said.json"
    ).stdout
    file.write_text(made)  # the file keeps its owner
    host.run("systemctl", "start", "slotserve-agent")

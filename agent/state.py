"""What an agent keeps in its state folder, so that it can go on alone: the plan, the keys, what was not yet received.

<state>/identity.json                                the node's key and certificate, whom it trusts, where its controller is
<state>/plan.bin                                     the last good plan, with its stamp
<state>/commands.json                                ids of commands that were begun (none is carried out twice)
<state>/spool.jsonl                                  load results, events and usage that no controller has acknowledged
<state>/channels/<name>/retry.json                   failures of the channel's targets

A file that cannot be read is reported and set aside: an agent without a plan is better than an agent that is down.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import AgentError, NotEnrolled
from protos.shared.files import write_private

log = logging.getLogger(__name__)
REMEMBERED_COMMANDS = 500
IDENTITY = "identity.json"
PEM = ("key", "certificate", "ca")
FORMER = ("node.key", "node.crt", "ca.crt", "controller.json")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A serialised Plan and its stamp."""

    epoch: int
    generation: int
    plan: bytes

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.plan).digest()


@dataclass(frozen=True, slots=True)
class Identity:
    """What the link dials with; PEM texts, `ca` of all that are trusted. Times are ms of the wall clock: `renew_at` at two
    thirds of the certificate's life, `ends_at` at its end (0: not known). `enrol_address`: "" where it is not known."""

    key: bytes
    certificate: bytes
    ca: bytes
    fleet_address: str
    renew_at: int
    ends_at: int = 0
    enrol_address: str = ""


def trusted(ca_pem: bytes) -> frozenset[str]:
    """The sha256 of each certificate in a PEM text, hex. Raises ValueError where there is none."""
    found = [base64.b64decode(text) for text in _CERTIFICATE.findall(ca_pem)]
    if not found:
        raise ValueError("no certificate in it")
    return frozenset(hashlib.sha256(each).hexdigest() for each in found)


class State:
    """The folder, made when it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for path in (folder, folder / "channels", folder / "gateway"):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as err:
            raise AgentError(f"SLOTSERVE_AGENT_STATE_DIR={folder}: {err.strerror}") from err

    # --- who runs here ----------------------------------------------------------------------------------------------

    def lock(self) -> int:
        """Takes agent.pid for this process and writes its pid; the handle must be kept. Raises AgentError when taken."""
        handle = os.open(self.folder / "agent.pid", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(handle, 32).decode(errors="replace").strip()
            os.close(handle)
            raise AgentError(f"{self.folder}: another agent (pid {pid or 'unknown'}) runs with this folder") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return handle

    # --- identity ---------------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        """Raises NotEnrolled where a part is missing."""
        try:
            said = json.loads((self.folder / IDENTITY).read_text())
            return Identity(
                key=str(said["key"]).encode(),
                certificate=str(said["certificate"]).encode(),
                ca=str(said["ca"]).encode(),
                fleet_address=str(said["fleet_address"]),
                renew_at=int(said["renew_at"]),
                ends_at=int(said["ends_at"]),
                enrol_address=str(said["enrol_address"]),
            )
        except FileNotFoundError:
            return self._former_identity()
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise self._not_enrolled(err) from None

    def save_identity(self, identity: Identity) -> None:
        """In one step: a key never stands beside another key's certificate. Where none of the CAs that were trusted is
        trusted any more it is another controller: what the old one said (plan, keys) is forgotten."""
        try:
            known = trusted(self.identity().ca)
        except NotEnrolled:
            known = frozenset()
        if known and not known & trusted(identity.ca):
            for stale in ("plan.bin", "gateway/keys.json", "gateway/directory.json", "commands.json"):
                (self.folder / stale).unlink(missing_ok=True)
        said = {
            **{name: getattr(identity, name).decode() for name in PEM},
            "fleet_address": identity.fleet_address,
            "enrol_address": identity.enrol_address,
            "renew_at": identity.renew_at,
            "ends_at": identity.ends_at,
        }
        write_private(self.folder / IDENTITY, json.dumps(said).encode())
        for former in FORMER:
            (self.folder / former).unlink(missing_ok=True)

    def _former_identity(self) -> Identity:
        """As 0.1.0 wrote it, in files of its own."""
        try:
            key, certificate, ca, where = ((self.folder / name).read_bytes() for name in FORMER)
            said = json.loads(where)
            from cryptography import x509  # here: only until the next renewal

            ends_at = round(x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp() * 1000)
            return Identity(key, certificate, ca, str(said["fleet_address"]), int(said["renew_at_ms"]), ends_at)
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise self._not_enrolled(err) from None

    def _not_enrolled(self, err: Exception) -> NotEnrolled:
        return NotEnrolled(
            f"{self.folder}: this node is not enrolled ({err}); make a join string with `slotserve node add NAME` "
            "and give it to `slotserve-agent enrol`"
        )

    def obey_any_epoch(self) -> None:
        """After an enrolment, which an administrator has wanted: the plan stays, but any controller's next one is taken,
        also where its database is an old copy with lower epochs."""
        plan = self.load_plan()
        if plan is not None:
            self.save_plan(SavedPlan(0, 0, plan.plan))

    # --- the plan ---------------------------------------------------------------------------------------------------

    def load_plan(self) -> SavedPlan | None:
        """The last good plan; a damaged file is reported and ignored."""
        path = self.folder / "plan.bin"
        try:
            head, _, body = path.read_bytes().partition(b"\n")
            stamp = json.loads(head)
            plan = SavedPlan(int(stamp["epoch"]), int(stamp["generation"]), body)
            if plan.sha256.hex() != stamp["sha256"]:
                raise ValueError("its digest does not match its content")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as err:
            log.error("saved plan ignored path=%s error=%r", path, str(err))
            return None
        return plan

    def save_plan(self, plan: SavedPlan) -> None:
        head = json.dumps({"epoch": plan.epoch, "generation": plan.generation, "sha256": plan.sha256.hex()})
        write_private(self.folder / "plan.bin", head.encode() + b"\n" + plan.plan)

    # --- failures of a channel's targets ----------------------------------------------------------------------------

    def channel_folder(self, channel: str) -> Path:
        folder = self.folder / "channels" / channel
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def load_retry(self, channel: str) -> Any:
        """What `save_retry` was given, or None."""
        return self._load_json(self.channel_folder(channel) / "retry.json")

    def save_retry(self, channel: str, record: Any) -> None:
        write_private(self.channel_folder(channel) / "retry.json", json.dumps(record).encode())

    # --- commands ---------------------------------------------------------------------------------------------------

    def begun_commands(self) -> list[str]:
        """Ids of commands that were begun, oldest first."""
        ids = self._load_json(self.folder / "commands.json")
        return [str(i) for i in ids] if isinstance(ids, list) else []

    def remember_commands(self, ids: list[str]) -> None:
        write_private(self.folder / "commands.json", json.dumps(ids[-REMEMBERED_COMMANDS:]).encode())

    def _load_json(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as err:
            log.error("state file ignored path=%s error=%r", path, str(err))
            return None

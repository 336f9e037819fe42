"""Changing the fleet's CA for a new one while it runs: three steps, each of which can be repeated after a crash.

    prepare    a new CA is made and trusted beside the one that signs; nodes are told, and say so when they trust it
    switch     the new one signs: the server's certificate at once, each node's when it renews, which it is told to do
    finish     the old one is not trusted any more

A node that has missed `prepare` cannot know the controller after `switch`, one that has missed `switch` is a stranger
after `finish`: `waiting` names them before the step is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography import x509

from controller.fleet.ca import SIGNING, ca_id, make_ca
from protos.shared.files import write_private

Step = Literal["steady", "prepared", "switched"]


class RotationRefused(Exception):
    """The step cannot be taken; the message says why and what comes first."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Where a change of the CA stands. Ids are sha256 of the certificates, hex; `new` is None while none is prepared."""

    step: Step
    signs: str
    new: str | None
    old: tuple[str, ...]


def look(folder: Path) -> Rotation:
    """Raises RotationRefused where there is no CA."""
    try:
        (signs,) = _read(folder / SIGNING)
    except (FileNotFoundError, ValueError):
        raise RotationRefused(f"{folder}: there is no CA yet; it is made at the controller's first start") from None
    new, old = _read(folder / "next.crt"), _read(folder / "old.crt")
    if new and ca_id(new[0]) != ca_id(signs):
        return Rotation("prepared", ca_id(signs), ca_id(new[0]), tuple(map(ca_id, old)))
    return Rotation("switched" if old else "steady", ca_id(signs), None, tuple(map(ca_id, old)))


def prepare(folder: Path) -> Rotation:
    """Makes the new CA. Once prepared it changes nothing."""
    now = look(folder)
    if now.step == "switched":
        raise RotationRefused("the last change is not finished: `slotserve ca finish` comes first")
    if now.step == "steady":
        make_ca(folder, "next")
    return look(folder)


def switch(folder: Path) -> Rotation:
    """The new CA signs from now on. Once switched it changes nothing."""
    now = look(folder)
    if now.step == "steady":
        raise RotationRefused("no new CA is prepared: `slotserve ca prepare` comes first")
    if now.step == "prepared":
        # Whose key it is signs, whatever the files are called: a crash in between leaves a CA that works, and the step
        # can be taken again.
        if now.signs not in now.old:
            before = (folder / "old.crt").read_bytes() if now.old else b""
            write_private(folder / "old.crt", before + (folder / SIGNING).read_bytes(), 0o644)
        write_private(folder / "ca.key", (folder / "next.key").read_bytes())
        write_private(folder / SIGNING, (folder / "next.crt").read_bytes(), 0o644)
    (folder / "next.crt").unlink(missing_ok=True)
    (folder / "next.key").unlink(missing_ok=True)
    return look(folder)


def finish(folder: Path) -> Rotation:
    """The old CA is not trusted any more."""
    now = look(folder)
    if now.step == "prepared":
        raise RotationRefused("the new CA does not sign yet: `slotserve ca switch` comes first")
    (folder / "old.crt").unlink(missing_ok=True)
    return look(folder)


def waiting(now: Rotation, nodes: Iterable[tuple[str, dict[str, Any] | None]]) -> list[str]:
    """Names of the nodes for which the next step comes too early; each with what it last said of its certificates."""
    if now.step == "prepared":
        return sorted(name for name, said in nodes if now.new not in (said or {}).get("trusts", ()))
    if now.step == "switched":
        return sorted(name for name, said in nodes if (said or {}).get("issuer") != now.signs)
    return []


def _read(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes()) if path.exists() else []

"""The table of rights, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.rights import ACTIONS, Actor, HolderName, Owned, may


@dataclass
class Booking:
    holder_id: str = "maya"
    participants: list[Any] = field(default_factory=lambda: ["noor"])


PEOPLE = {name: Actor(name, name, role) for name, role in
          (("maya", "user"), ("noor", "user"), ("tom", "user"), ("ada", "approver"), ("root", "admin"))}  # fmt: skip
EVERYBODY = set(PEOPLE)


@pytest.mark.parametrize(
    ("action", "subject", "allowed"),
    [
        ("reservation.create", Owned("maya"), {"maya", "root"}),
        ("reservation.change", Booking(), {"maya", "root"}),
        ("reservation.decide", None, {"ada", "root"}),
        ("reservation.maintenance", None, {"root"}),
        ("reservation.details", Booking(), {"maya", "noor", "ada", "root"}),
        ("reservation.holder", HolderName("maya", "users"), EVERYBODY),
        ("reservation.holder", HolderName("maya", "everyone"), EVERYBODY),
        ("reservation.holder", HolderName("maya", "admins"), {"maya", "root"}),
        ("channel.see", None, EVERYBODY),
        ("channel.reload", Booking(), {"maya", "root"}),
        ("channel.reload", None, {"root"}),
        ("channel.retry", Booking(), {"maya", "root"}),
        ("channel.retry", None, {"root"}),
        ("channel.override", None, {"root"}),
        ("channel.configure", None, {"root"}),
        ("channel.log", Booking(), {"maya", "noor", "root"}),
        ("channel.log", None, EVERYBODY),
        ("node.manage", None, {"root"}),
        ("user.list", None, EVERYBODY),
        ("user.manage", None, {"root"}),
        ("preset.create", None, EVERYBODY),
        ("preset.change", Owned("maya"), {"maya", "root"}),
        ("preset.change", Owned(None), {"root"}),
        ("preset.environment", Owned("maya"), {"maya", "root"}),
        ("preset.permissioned", None, {"root"}),
        ("key.change", Owned("maya"), {"maya", "root"}),
        ("feed.change", Owned("maya"), {"maya", "root"}),
        ("wall.create", None, {"root"}),
        ("settings.see", None, {"root"}),
        ("audit.see", None, {"root"}),
        ("usage.see", Owned("maya"), {"maya", "root"}),
        ("usage.see", Owned(None), {"root"}),
        ("target.change", Owned("maya"), {"maya", "root"}),
        ("target.change", Owned(None), {"root"}),
        ("message.see", None, {"root"}),
        ("metrics.see", None, {"root"}),
        ("session.use", None, EVERYBODY),
    ],
)
def test_who_may(action: str, subject: Any, allowed: set[str]) -> None:
    verdicts = {name: may(actor, action, subject) for name, actor in PEOPLE.items()}
    assert {name for name, v in verdicts.items() if v} == allowed
    assert all(v.why for v in verdicts.values() if not v)


def test_every_action_is_in_the_table_above() -> None:
    rows = test_who_may.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {row[0] for row in rows} == set(ACTIONS)


def test_an_unknown_action_is_never_granted() -> None:
    with pytest.raises(KeyError):
        may(PEOPLE["root"], "reservation.everything")

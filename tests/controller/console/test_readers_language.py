"""What a reader of Chinese gets from the controller itself: refusals at form fields, and the audit's fields and values."""

from __future__ import annotations

import re

import pytest

from controller.store.tables import Reservation
from tests.console_scene import Scene
from tests.controller.console.reading import plain

HAN = re.compile(r"[\u4e00-\u9fff]")


def token(client) -> dict[str, str]:
    return {"X-CSRF-Token": client.get("/").text.split('name="csrf-token" content="')[1].split('"')[0]}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("POST /users", {"name": "", "password": "a long horse"}, "name"),
        ("POST /users", {"name": "zoe", "password": "short"}, "password"),
        ("POST /users", {"name": "zoe", "password": "a long horse", "role": "king"}, "role"),
        ("POST /keys", {"name": "k", "expires_at": "yesterday"}, "expires_at"),
        ("POST /notification-targets", {"name": "a", "way": "webhook", "url": "nonsense"}, "url"),
        ("POST /notification-targets", {"name": "a", "way": "chat", "url": "what://ever"}, "url"),
        ("POST /presets", {"model": "none", "name": "a:b", "engine": "vllm", "args": ""}, "name"),
        ("POST /presets", {"model": "none", "name": "a", "engine": "vllm", "args": "'open"}, "args"),
        ("PATCH /channels/gpu-a01/c6", {"policy": {"max_hours": -1}}, "policy.max_hours"),
        ("PATCH /channels/gpu-a01/c6", {"policy": {"allowed_users": ["nobody"]}}, "policy.allowed_users"),
        ("PUT /channels/gpu-a01/c6/override", {"model": "x", "unload": True}, "model"),
        (
            "POST /reservations",
            {"channel": "no/where", "starts_at": "now", "ends_at": "2027-01-01T00:00:00Z"},
            "channel",
        ),
        ("POST /reservations", {"channel": "gpu-a01/c6", "ends_at": "14:00"}, "ends_at"),
        ("PATCH /nodes/gpu-a01", {}, "cordoned"),
        ("GET /usage?from=2027-01-02T00:00:00Z&to=2027-01-01T00:00:00Z", None, "to"),
    ],
)
def test_a_refusal_is_in_the_readers_language_and_keys_read_english(
    world: Scene, path: str, body: dict, field: str
) -> None:
    client, (method, where) = world.client("lin", "zh_Hans"), path.split(" ")
    told = client.open(f"/api/v1{where}", method=method, json=body, headers=token(client)).get_json()
    words = told["error"]["details"][field]
    assert HAN.search(words), words
    assert HAN.search(told["error"]["message"])
    key = {"Authorization": f"Bearer {world.keys['lin']}", "Accept-Language": "zh"}
    english = world.app.test_client().open(f"/api/v1{where}", method=method, json=body, headers=key).get_json()
    assert not HAN.search(english["error"]["message"] + english["error"]["details"][field])


def test_the_audit_says_fields_and_values_in_words_and_in_ones_own_time(world: Scene) -> None:
    with world.store.read() as db:
        booking = db.query(Reservation).filter_by(holder_id=world.ids["maya"], channel_id=world.ids["gpu-a01/c6"]).one()
    client = world.client("lin", "zh_Hans")
    change = {"ends_at": "2026-11-19T09:30:00Z", "reason": "earlier", "version": booking.version}
    asked = client.patch(f"/api/v1/reservations/{booking.id}", json=change, headers=token(client))
    assert asked.status_code == 200, asked.text
    text = plain(client.get("/admin/audit?action=reservation.edit").text)
    assert "结束" in text
    assert "17:30" in text
    assert str(booking.ends_at) not in text
    assert "ends_at" not in text
    english = plain(world.client("lin").get("/admin/audit?action=reservation.edit").text)
    assert "end " in english

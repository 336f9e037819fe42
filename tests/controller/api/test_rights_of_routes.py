"""Every call of the API x every role: who is refused, and that a refusal changes nothing. A new route must be put in here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controller.api import ROUTES
from controller.fleet.live import LiveChannel
from controller.times import text_of
from tests.controller.api.conftest import DAY, HOUR, NOW, World, make

ANY, NOBODYS = ("tom", "ada", "root"), ()
ADMIN, DECIDER, OWN = ("root",), ("ada", "root"), ("root",)  # OWN: the thing is noor's
SLOT = {"channel": "n1/a", "model": "small", "starts_at": text_of(NOW + 5 * HOUR), "ends_at": text_of(NOW + 6 * HOUR)}
KEY: dict[str, Any] = {"name": "x"}
CHANNEL = "/channels/n1/a"
# "METHOD path" -> (who may, of tom (a user), ada (an approver) and root (an administrator); path; a body that is right)
TABLE: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "GET /me": (ANY, "/me", None),
    "GET /users": (ANY, "/users", None),
    "POST /users": (ADMIN, "/users", KEY),
    "PATCH /users/<id>": (OWN, "/users/noor", {"email": "x@y.z"}),
    "GET /users/<id>/disable-preview": (ADMIN, "/users/noor/disable-preview", None),
    "GET /me/sessions": (ANY, "/me/sessions", None),
    "DELETE /me/sessions": (ANY, "/me/sessions", None),
    "DELETE /me/sessions/<id>": (ANY, "/me/sessions/x", None),
    "GET /keys": (OWN, "/keys?user=noor", None),
    "POST /keys": (OWN, "/keys", {"name": "x", "user": "noor"}),
    "DELETE /keys/<id>": (OWN, "/keys/{key}", None),
    "GET /feeds": (OWN, "/feeds?user=noor", None),
    "POST /feeds": (ADMIN, "/feeds", {"kind": "wall"}),
    "DELETE /feeds/<id>": (OWN, "/feeds/{feed}", None),
    "GET /nodes": (ANY, "/nodes", None),
    "GET /nodes/<name>": (ANY, "/nodes/n1", None),
    "POST /nodes": (ADMIN, "/nodes", {"name": "n2"}),
    "GET /nodes/<name>/drain-preview": (ADMIN, "/nodes/n1/drain-preview?until=2100-01-01T00:00:00Z", None),
    "PATCH /nodes/<name>": (ADMIN, "/nodes/n1", {"cordoned": True}),
    "DELETE /nodes/<name>": (ADMIN, "/nodes/n1", None),
    "GET /channels": (ANY, "/channels", None),
    "GET /channels/<node>/<name>": (ANY, CHANNEL, None),
    "PATCH /channels/<node>/<name>": (ADMIN, CHANNEL, {"preload_lead_seconds": 5}),
    "POST /channels/<node>/<name>/reload": (ADMIN, f"{CHANNEL}/reload", {}),
    "POST /channels/<node>/<name>/retry": (ADMIN, f"{CHANNEL}/retry", {}),
    "GET /channels/<node>/<name>/commands/<id>": (ANY, f"{CHANNEL}/commands/x", None),
    "PUT /channels/<node>/<name>/override": (ADMIN, f"{CHANNEL}/override", {"unload": True}),
    "DELETE /channels/<node>/<name>/override": (ADMIN, f"{CHANNEL}/override", None),
    "GET /channels/<node>/<name>/plan": (ANY, f"{CHANNEL}/plan", None),
    "GET /channels/<node>/<name>/history": (ANY, f"{CHANNEL}/history", None),
    "GET /channels/<node>/<name>/log": (ANY, f"{CHANNEL}/log", None),
    "GET /channels/<node>/<name>/log/find": (ANY, f"{CHANNEL}/log/find?text=x", None),
    "GET /channels/<node>/<name>/log/file": (ANY, f"{CHANNEL}/log/file", None),
    "GET /channels/<node>/<name>/log/launches": (ANY, f"{CHANNEL}/log/launches", None),
    "GET /models": (ANY, "/models", None),
    "GET /models/<path:name>": (ANY, "/models/small", None),
    "GET /presets": (ANY, "/presets", None),
    "POST /presets": (ANY, "/presets", {"model": "small", "name": "mine", "engine": "llama.cpp", "args": []}),
    "POST /presets/check": (ANY, "/presets/check", {"model": "small", "engine": "llama.cpp"}),
    "GET /presets/<id>": (ANY, "/presets/{preset}", None),
    "PATCH /presets/<id>": (OWN, "/presets/{preset}", {"args": ["-c", "10"]}),
    "DELETE /presets/<id>": (OWN, "/presets/{preset}", None),
    "GET /reservations": (ANY, "/reservations", None),
    "GET /reservations/<id>": (ANY, "/reservations/{booking}", None),
    "POST /reservations": (OWN, "/reservations", {**SLOT, "holder": "noor"}),
    "POST /reservations/check": (ANY, "/reservations/check", SLOT),  # a problem in its answer is no refusal
    "PATCH /reservations/<id>": (OWN, "/reservations/{booking}", {"version": 1, "note": "x", "reason": "x"}),
    "POST /reservations/decide": (DECIDER, "/reservations/decide", {"ids": ["x"], "approve": True}),
    "POST /reservations/<id>/approve": (DECIDER, "/reservations/{booking}/approve", {}),
    "POST /reservations/<id>/reject": (DECIDER, "/reservations/{booking}/reject", {"reason": "x"}),
    "POST /reservations/<id>/cancel": (OWN, "/reservations/{booking}/cancel", {"reason": "x"}),
    "POST /reservations/<id>/uncancel": (OWN, "/reservations/{booking}/uncancel", {"reason": "x"}),
    "POST /reservations/<id>/end": (OWN, "/reservations/{booking}/end", {"reason": "x"}),
    "POST /reservations/<id>/move": (OWN, "/reservations/{booking}/move", {"channel": "n1/b", "reason": "x"}),
    "POST /reservations/<id>/extend": (OWN, "/reservations/{booking}/extend", {"minutes": 5, "reason": "x"}),
    "GET /slots": (ANY, "/slots?model=small&minutes=30", None),
    "GET /notifications": (ANY, "/notifications", None),
    "POST /notifications/read": (ANY, "/notifications/read", {"ids": []}),
    "GET /notifications/outbox": (ADMIN, "/notifications/outbox", None),
    "POST /notifications/outbox/<id>/retry": (ADMIN, "/notifications/outbox/x/retry", {}),
    "GET /notifications/delivery": (ADMIN, "/notifications/delivery", None),
    "GET /me/notifications": (ANY, "/me/notifications", None),
    "PATCH /me/notifications": (ANY, "/me/notifications", {"kinds": {}}),
    "POST /me/notifications/test": (ANY, "/me/notifications/test", {}),
    "GET /notification-targets": (ADMIN, "/notification-targets?shared=1", None),
    "POST /notification-targets": (
        ADMIN, "/notification-targets", {"name": "x", "way": "webhook", "url": "https://1.1.1.1/x", "shared": True},
    ),
    "PATCH /notification-targets/<id>": (OWN, "/notification-targets/{target}", {"name": "y"}),
    "DELETE /notification-targets/<id>": (OWN, "/notification-targets/{target}", None),
    "POST /notification-targets/<id>/test": (OWN, "/notification-targets/{target}/test", {}),
    "GET /watches": (ANY, "/watches", None),
    "POST /watches": (ANY, "/watches", {"minutes": 60, "not_after": text_of(NOW + DAY), "model": "small"}),
    "DELETE /watches/<id>": (NOBODYS, "/watches/{watch}", None),  # a wish is the person's alone
    "GET /audit": (ADMIN, "/audit", None),
    "GET /audit/actions": (ADMIN, "/audit/actions", None),
    "GET /usage": (OWN, "/usage?user=noor", None),
    "GET /usage/summary": (OWN, "/usage/summary?user=noor", None),
    "GET /settings": (ADMIN, "/settings", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, dict[str, str]]]:
    """Things that are noor's, by kind."""
    w = make(tmp_path_factory.mktemp("rights"))
    w.ctx.live.update("n1", channels={"a": LiveChannel("ready")})
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    preset = {"model": "small", "name": "p", "engine": "llama.cpp", "args": []}
    target = {"name": "hook", "way": "webhook", "url": "https://1.1.1.1/x"}
    watch = {"minutes": 60, "not_after": text_of(NOW + 6 * HOUR), "kind": "exclusive", "channel": "n1/a"}
    things = {
        "booking": w.book(HOUR, 5 * HOUR, "noor")["id"],
        "key": w.good("POST", "/keys", {"name": "other"}, "noor")["id"],
        "feed": w.good("POST", "/feeds", {}, "noor")["id"],
        "preset": w.good("POST", "/presets", preset, "noor")["id"],
        "target": w.good("POST", "/notification-targets", target, "noor")["id"],
        "watch": w.call("POST", "/watches", watch, "noor").get_json().get("id", "none"),
    }
    for who in ("tom", "ada", "root"):
        w.get("/me", who)  # notes the use of the key
    yield w, things
    w.store.close()


def test_every_route_is_in_the_table() -> None:
    assert set(TABLE) == {f"{r.method} {r.path}" for r in ROUTES if not r.public}
    assert [r.path for r in ROUTES if r.public] == ["/feed/<token>.ics"]  # its address is its secret


@pytest.mark.parametrize("route", sorted(TABLE))
def test_who_is_refused(world: tuple[World, dict[str, str]], route: str) -> None:
    w, things = world
    allowed, path, body = TABLE[route]
    method, path = route.split()[0], path.format(**things)
    before = w.store.revision()
    nobody = w.call(method, path, body, None)
    assert nobody.status_code == 401, nobody.text
    wrong = w.call(method, path, body, None, headers={"Authorization": "Bearer sk-ss-nothing"})
    assert wrong.status_code == 401
    for who in ANY:
        if who in allowed:
            continue
        answer = w.call(method, path, body, who)
        assert answer.status_code in (403, 404), (who, answer.status_code, answer.text)
        assert answer.get_json()["error"]["message"]
    assert w.store.revision() == before
    for who in allowed if method != "DELETE" else ():  # asked in a way that changes nothing
        answer = w.call(method, path, None if method == "GET" else {"no such field": 1}, who)
        assert answer.status_code not in (401, 403), (who, answer.text)
        assert answer.status_code < 500

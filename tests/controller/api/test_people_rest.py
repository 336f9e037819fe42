"""People, keys, nodes, notices, audit, usage and health through REST."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from sqlalchemy import select

from controller import sessions
from controller.fleet import keys
from controller.notify.tell import Event, tell
from controller.store import users
from controller.store.tables import JoinToken, Leader, Usage
from controller.times import text_of
from tests.controller.api.conftest import HOUR, World
from tests.parts import BOTH

DATABASES = BOTH


def test_me(w: World) -> None:
    said = w.get("/me", "maya")
    assert (said["name"], said["role"], said["via"], said["key"]["name"]) == ("maya", "user", "key", "test")
    for headers in (
        {},
        {"Authorization": "Bearer sk-ss-nonsense"},
        {"Authorization": "Basic eA=="},
        {"Authorization": "Bearer "},
    ):
        w.bad(401, "GET", "/me", who=None, headers=headers)
    assert w.call("GET", "/me", who=None).headers["WWW-Authenticate"] == "Bearer"


def test_users(w: World) -> None:
    made = w.good("POST", "/users", {"name": " Zoë O'Neil ", "password": "long enough", "role": "user"})
    assert made["name"] == "Zoë O'Neil"
    with w.store.read() as session:
        assert users.check_password(session, "Zoë O'Neil", "long enough") is not None
        assert users.check_password(session, "Zoë O'Neil", "wrong") is None
        assert users.check_password(session, "nobody", "\ud800") is None
        assert users.check_password(session, "maya", "") is None  # has none
    assert "email" not in next(u for u in w.get("/users", "maya")["items"] if u["name"] == "root")
    w.bad(403, "POST", "/users", {"name": "x"}, "ada")
    w.bad(409, "POST", "/users", {"name": "maya"})
    for body, field in (
        ({}, "name"), ({"name": ""}, "name"), ({"name": "a\r\nb"}, "name"), ({"name": "x" * 300}, "name"),
        ({"name": "y", "role": "king"}, "role"), ({"name": "y", "password": "short"}, "password"), ({"name": 3}, "name"),
    ):  # fmt: skip
        assert field in w.bad(422, "POST", "/users", body)["error"]["details"]
    assert w.good("PATCH", f"/users/{made['id']}", {"role": "approver"})["role"] == "approver"
    assert w.good("PATCH", f"/users/{w.ids['maya']}", {"zone": "Asia/Shanghai"}, "maya")["zone"] == "Asia/Shanghai"
    w.bad(403, "PATCH", f"/users/{w.ids['maya']}", {"role": "admin"}, "maya")
    w.bad(403, "PATCH", f"/users/{w.ids['noor']}", {"zone": "UTC"}, "maya")
    w.bad(404, "PATCH", "/users/nobody", {"zone": "UTC"})


def test_somebody_stays_administrator(w: World) -> None:
    for body in ({"role": "user"}, {"disabled": True}):
        w.bad(409, "PATCH", f"/users/{w.ids['root']}", body)
    assert w.get("/me")["role"] == "admin"


def test_own_password(w: World) -> None:
    made = w.good("POST", "/users", {"name": "zoe", "password": "first password"})
    w.secrets["zoe"] = w.good("POST", "/keys", {"name": "k", "user": made["id"]})["secret"]
    path = f"/users/{made['id']}"
    w.bad(403, "PATCH", path, {"password": "second password"}, "zoe")
    w.good("PATCH", path, {"password": "second password", "current_password": "first password"}, "zoe")
    with w.store.read() as session:
        assert users.check_password(session, "zoe", "second password") is not None


def test_disabling_kills_keys_and_bookings(w: World) -> None:
    running, future = w.book(0, HOUR), w.book(2 * HOUR, 3 * HOUR)
    path = f"/users/{w.ids['maya']}"
    preview = w.good("PATCH", f"{path}?preview=1", {"disabled": True})
    assert ([b["id"] for b in preview["ends"]], [b["id"] for b in preview["cancels"]]) == (
        [running["id"]],
        [future["id"]],
    )
    assert preview["keys"] == 1
    w.get("/me", "maya")
    assert w.good("PATCH", path, {"disabled": True, "reason": "left"})["disabled"] is True
    assert w.woken[-1] == "keys"
    w.bad(401, "GET", "/me", who="maya")
    assert w.get(f"/reservations/{running['id']}")["status"] == "ended_early"
    assert w.get(f"/reservations/{future['id']}")["status"] == "cancelled"
    assert w.ids["maya"] not in {row[1] for row in keys.load_table(w.store, w.now).values()}
    w.bad(409, "POST", "/keys", {"name": "x", "user": "maya"})
    w.good("PATCH", path, {"disabled": False})
    w.get("/me", "maya")


def test_keys(w: World) -> None:
    made = w.good("POST", "/keys", {"name": "laptop", "expires_at": text_of(w.now + HOUR)}, "maya")
    assert made["secret"].startswith("sk-ss-")
    assert made["secret"].startswith(made["prefix"])
    assert w.woken == ["keys"]
    listed = w.get("/keys", "maya")["items"]
    assert [k["name"] for k in listed] == ["test", "laptop"]
    assert listed[0]["last_used_at"] == text_of(w.now)
    assert made["secret"] not in str(listed)
    w.secrets["laptop"] = made["secret"]
    w.get("/me", "laptop")
    w.now += HOUR
    w.bad(401, "GET", "/me", who="laptop")
    other = w.get("/keys", "noor")["items"][0]
    w.bad(404, "DELETE", f"/keys/{other['id']}", who="maya")
    assert w.call("DELETE", f"/keys/{other['id']}").status_code == 204
    w.bad(401, "GET", "/me", who="noor")
    assert w.call("DELETE", f"/keys/{other['id']}").status_code == 204  # gone is gone
    w.bad(403, "GET", "/keys?user=noor", who="maya")
    w.bad(403, "POST", "/keys", {"name": "x", "user": "noor"}, "maya")
    for body, field in (
        ({}, "name"),
        ({"name": "x", "expires_at": text_of(w.now)}, "expires_at"),
        ({"name": "x", "user": "?"}, "user"),
    ):
        assert field in w.bad(422, "POST", "/keys", body)["error"]["details"]
    hashes = [row[0] for row in keys.load_table(w.store, w.now).values() if row[2] == "maya"]
    assert hashes == [hashlib.sha256(w.secrets["maya"].encode()).hexdigest()]


def test_nodes(w: World) -> None:
    item = w.get("/nodes", "tom")["items"][0]
    assert (item["name"], item["online"], item["channels"], item["version"]) == ("n1", True, ["n1/a", "n1/b"], "1")
    made = w.good("POST", "/nodes", {"name": "n2"})
    parts = json.loads(base64.urlsafe_b64decode(made["join"] + "=" * (-len(made["join"]) % 4)))
    assert (parts["address"], parts["node"]) == ("controller.example:8702", "n2")
    with w.store.read() as session:
        token = session.scalars(select(JoinToken)).one()
        assert token.sha256 == hashlib.sha256(parts["token"].encode()).hexdigest()
        assert text_of(token.expires_at) == made["expires_at"] == text_of(w.now + 15 * 60_000)
    w.good("POST", "/nodes", {"name": "n2"})
    with w.store.read() as session:
        assert [t.expires_at > w.now for t in session.scalars(select(JoinToken).order_by(JoinToken.id))] == [
            False,
            True,
        ]
    w.bad(403, "POST", "/nodes", {"name": "n3"}, "ada")
    for name in ("", "N3", "-a", "a/b", "a" * 64, "a\n"):
        assert "name" in w.bad(422, "POST", "/nodes", {"name": name})["error"]["details"]
    booked = w.book(0, HOUR)
    assert w.call("DELETE", "/nodes/n1").status_code == 204
    assert [n["name"] for n in w.get("/nodes")["items"]] == ["n2"]
    assert w.get("/channels")["items"] == []
    assert w.get("/notifications", "maya")["items"][0]["subject"] == booked["id"]
    assert w.get(f"/reservations/{booked['id']}")["channel"] == "n1/a"  # history is kept
    w.bad(404, "DELETE", "/nodes/n1")


def test_notices_once_an_event(w: World) -> None:
    for _ in range(2):
        with w.store.write() as session:
            event = Event("e1", "failed", "n1/a", w.now, {"message": "plain", "text": "it failed"})
            tell(session, event, [w.ids["maya"], w.ids["maya"]])
    said = w.get("/notifications", "maya")
    assert [n["text"] for n in said["items"]] == ["it failed"]
    assert said["unread"] == 1
    assert w.get("/notifications", "noor")["items"] == []
    assert w.good("POST", "/notifications/read", {"ids": [said["items"][0]["id"]]}, "maya") == {"read": 1}
    assert w.get("/notifications?unread=1", "maya")["items"] == []


def test_audit_is_for_administrators(w: World) -> None:
    made = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "power cut"})
    w.bad(403, "GET", "/audit", who="ada")
    newest = w.get(f"/audit?subject={made['id']}")["items"]
    assert [(a["action"], a["actor"], a["reason"]) for a in newest] == [
        ("reservation.cancelled", "root", "power cut"),
        ("reservation.create", "maya", ""),
    ]
    assert (newest[0]["before"]["status"], newest[0]["after"]["status"]) == ("approved", "cancelled")


def test_usage(w: World) -> None:
    with w.store.write() as session:
        for i, status in enumerate((200, 200, 503)):
            session.add(
                Usage(
                    id=f"r{i}", node_id="n", channel="a", model="small", key_id="k", user_id=w.ids["maya"], at=w.now - 1 - i,
                    duration=1.5, first_byte=0.1 * i, status=status, outcome="served", bytes_in=10, bytes_out=20,
                    prompt_tokens=5 if i else None, completion_tokens=None,
                )
            )  # fmt: skip
        session.add(
            Usage(
                id="other", node_id="n", channel="a", model="small", key_id="k2", user_id=w.ids["maya"], at=w.now - 9,
                duration=1.5, first_byte=0, status=200, outcome="served", bytes_in=10, bytes_out=20, completion_tokens=3,
            )
        )  # fmt: skip
    rows = w.get("/usage", "maya")["items"]
    assert [(r["channel"], r["requests"], r["failed"], r["bytes_out"]) for r in rows] == [("n1/a", 4, 1, 80)]
    assert (rows[0]["prompt_tokens"], rows[0]["completion_tokens"], rows[0]["first_byte_seconds"]) == (10, 3, 0.15)
    assert "key" not in rows[0]
    by_key = w.get("/usage?by=key", "maya")["items"]
    assert [(r["key_id"], r["requests"], r["prompt_tokens"], r["completion_tokens"]) for r in by_key] == [
        ("k", 3, 10, None),
        ("k2", 1, None, 3),
    ]
    w.bad(422, "GET", "/usage?by=hour", who="maya")
    assert w.get("/usage", "noor")["items"] == []
    assert len(w.get("/usage?user=*")["items"]) == 1
    w.bad(403, "GET", "/usage?user=maya", who="noor")
    w.bad(422, "GET", "/usage?from=2027-01-16T00:00:00Z&to=2027-01-15T00:00:00Z")


def test_sessions_need_the_csrf_token_to_write(w: World) -> None:
    client = w.app.test_client()
    with client.session_transaction() as session, w.store.write() as db:
        sessions.begin(session, db, users.get(db, w.ids["maya"]), w.now)
    assert client.get("/api/v1/me").get_json()["via"] == "session"
    answer = client.post("/api/v1/keys", json={"name": "x"})
    assert answer.status_code == 403
    assert "X-CSRF-Token" in answer.get_json()["error"]["message"]
    with w.app.test_request_context():
        from flask import session as web_session
        from flask_wtf.csrf import generate_csrf

        token = generate_csrf()
        raw = web_session["csrf_token"]
    with client.session_transaction() as session:
        session["csrf_token"] = raw
    assert client.post("/api/v1/keys", json={"name": "x"}, headers={"X-CSRF-Token": token}).status_code == 201
    w.good("PATCH", f"/users/{w.ids['maya']}", {"disabled": True})
    assert client.get("/api/v1/me").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404), ("GET", "/", 404), ("PUT", "/me", 405), ("DELETE", "/channels", 405),
        ("GET", "/reservations/nothing", 404), ("GET", "/channels/n1", 404), ("GET", "/presets/nothing", 404),
        ("POST", "/reservations/nothing/end", 404), ("DELETE", "/keys/x", 404), ("GET", "/users/x/y", 404),
    ],
)  # fmt: skip
def test_errors_have_one_shape(w: World, method: str, path: str, status: int) -> None:
    w.bad(status, method, path, {} if method == "POST" else None)


def test_a_fault_of_ours_is_told_without_a_traceback(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(users, "page", broken)
    said = w.bad(500, "GET", "/users")
    assert "secret detail" not in str(said)
    assert said["error"]["details"]["fault"]


def test_a_busy_database_is_told(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.exc import OperationalError

    def locked(*_: object, **__: object) -> None:
        raise OperationalError("SELECT", {}, Exception("database is locked"))

    monkeypatch.setattr(users, "page", locked)
    said = w.bad(503, "GET", "/users")["error"]["message"]
    assert said.startswith("somebody else keeps the database locked (a migration, a shell that was left open).")
    assert "SELECT" not in said


def test_health(w: World) -> None:
    assert w.call("GET", "/healthz", who=None).get_json() == {"status": "ok"}
    assert "planner" in w.call("GET", "/readyz", who=None).get_json()["problems"][0]
    with w.store.write() as session:
        session.get(Leader, 1).epoch = 1  # type: ignore[union-attr]
    w.ctx.plan_looked_at = lambda: w.now - 9000
    assert w.call("GET", "/readyz", who=None).status_code == 200
    w.ctx.plan_looked_at = lambda: w.now - 9001
    assert w.call("GET", "/readyz", who=None).status_code == 503
    text = w.call("GET", "/metrics", who=None).get_data(as_text=True)
    assert 'slotserve_channel_phase{channel="n1/a",phase="unknown"} 1.0' in text
    far = {"headers": {"X-Forwarded-For": "10.0.0.1"}}
    assert w.call("GET", "/metrics", who="maya", **far).status_code == 403
    assert w.call("GET", "/metrics", who=None, **far).status_code == 401
    assert w.call("GET", "/metrics", **far).status_code == 200


def test_ready_means_that_the_planner_looks(w: World) -> None:
    with w.store.write() as session:
        session.get(Leader, 1).epoch = 1  # type: ignore[union-attr]
    for looked, status in ((None, 503), (w.now, 200), (w.now - 9000, 200), (w.now - 9001, 503)):
        w.ctx.plan_looked_at = lambda looked=looked: looked  # type: ignore[misc]
        for path in ("/readyz", "/api/v1/readyz"):
            assert w.client.get(path).status_code == status, looked
    with w.store.write() as session:
        session.get(Leader, 1).epoch = 0  # type: ignore[union-attr]
    assert "no planner" in w.call("GET", "/readyz", who=None).get_json()["problems"][0]

"""The audit trail over REST: who, what, before and after, in words; filtered; without secrets. And settings in force."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import select

from controller import acts, settings_view
from controller.fleet import planner_store
from controller.settings import Settings, load_settings
from controller.store import audit
from controller.store.tables import Audit
from controller.times import text_of
from tests.controller.api.conftest import DAY, HOUR, NOW, World
from tests.parts import BOTH

DATABASES = BOTH


def texts(w: World, query: str = "") -> list[str]:
    return [i["text"] for i in w.get(f"/audit?{query}")["items"]]


def test_who_did_what_in_words(w: World) -> None:
    w.good("PATCH", f"/users/{w.ids['maya']}", {"role": "approver", "reason": "leads the lab now"})
    w.now += HOUR
    w.good("PATCH", "/channels/n1/a", {"policy": {"max_hours": 4}})
    booking = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{booking['id']}/cancel", {}, "maya")
    assert texts(w) == [
        "maya cancelled a booking: n1/a",
        "maya made a booking: n1/a",
        "root changed a channel: n1/a",
        "root changed an account: maya (leads the lab now)",
    ]
    items = w.get("/audit")["items"]
    assert items[-1]["changes"] == [{"field": "role", "before": "user", "after": "approver"}]
    assert items[2]["changes"] == [{"field": "policy.max_hours", "before": None, "after": "4"}]
    assert (items[-1]["subject"], items[-1]["subject_name"]) == (w.ids["maya"], "maya")
    made = {c["field"]: c["after"] for c in items[1]["changes"]}
    assert (made["channel_id"], made["holder_id"], made["starts_at"]) == ("n1/a", "maya", booking["starts_at"])


def test_filters(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"preload_lead_seconds": 1})
    w.now += DAY
    w.good("PATCH", "/channels/n1/b", {"preload_lead_seconds": 1})
    booking = w.book(HOUR, 2 * HOUR)
    with w.store.write() as session:
        audit.add(session, None, "reservation.finished", booking["id"], w.now)
    assert texts(w, "subject=n1/b") == ["root changed a channel: n1/b"]
    assert texts(w, "actor=maya") == ["maya made a booking: n1/a"]
    assert texts(w, f"actor={w.ids['maya']}") == texts(w, "actor=maya")
    assert texts(w, "actor=system") == ["SlotServe a booking was over: n1/a"]
    assert texts(w, "action=reservation.create") == ["maya made a booking: n1/a"]
    assert len(texts(w, "action=reservation.*")) == 2
    assert len(texts(w, "action=channel.*")) == 2
    assert texts(w, f"to={text_of(NOW + HOUR)}") == ["root changed a channel: n1/a"]
    assert len(texts(w, f"from={text_of(NOW + HOUR)}")) == 3
    assert len(texts(w, f"from={text_of(NOW + HOUR)}&actor=root")) == 1
    w.bad(422, "GET", "/audit?actor=nobody")
    w.bad(422, "GET", "/audit?from=2027-01-01")
    for path in ("/audit", "/audit/actions", "/settings"):
        for who in ("maya", "ada"):
            w.bad(403, "GET", path, who=who)
    page, found = None, []
    while page is None or page["next"]:
        page = w.get(f"/audit?limit=2{'&cursor=' + page['next'] if page else ''}")
        found += page["items"]
    assert [i["text"] for i in found] == texts(w)


def test_every_action_that_is_written_has_words() -> None:
    """Read from the source: what is passed to audit.add."""
    import re
    from pathlib import Path

    controller = Path(acts.__file__).parent
    written = set()
    for path in controller.rglob("*.py"):
        text = path.read_text()
        for call in re.finditer(r"audit\.add\(", text):
            found = re.search(r'[("\s]f?"([a-z_]+\.[a-z_{}]+)"', text[call.end() : call.end() + 300])
            if found and "{" not in found[1]:
                written.add(found[1])
    assert len(written) > 25
    assert written - set(acts.ACTIONS) == set()


def test_secrets_are_never_in_it(w: World) -> None:
    w.good("POST", "/users", {"name": "new", "password": "correct horse battery"})
    w.good("PATCH", "/users/new", {"password": "another horse battery"})
    key = w.good("POST", "/keys", {"name": "k"})["secret"]
    link = w.good("POST", "/feeds", {"name": "f"})["secret"]
    with w.store.write() as session:
        audit.add(session, None, "x.y", "", NOW, before={"a": {"secret": "abc"}}, after={"list": [{"token": "def"}]})
    with w.store.read() as session:
        whole = json.dumps([(a.before, a.after, a.reason) for a in session.scalars(select(Audit))])
    for secret in ("horse", key, link, "abc", "def", "$argon2"):
        assert secret not in whole, secret


def test_what_slotserve_does_by_itself(w: World) -> None:
    booking = w.book(HOUR, 2 * HOUR)
    over = NOW + 2 * HOUR
    planner_store.apply(w.store, [planner_store.NodeWrite("n", None, over=[(booking["id"], "approved", over)])])
    assert texts(w, "actor=system") == ["SlotServe a booking was over: n1/a"]


def test_settings_in_force(w: World) -> None:
    items = {i["variable"]: i for i in w.get("/settings")["items"]}
    assert items["SLOTSERVE_TICK_SECONDS"] == {
        "variable": "SLOTSERVE_TICK_SECONDS",
        "value": 3,
        "origin": "default",
        "description": Settings.model_fields["tick_seconds"].description,
    }
    assert set(items) == {f"SLOTSERVE_{n.upper()}" for n in Settings.model_fields}


@pytest.mark.parametrize("name", ["oidc_client_secret", "smtp_password"])
def test_secret_settings_are_only_said_to_be_set(name: str, tmp_path: Any) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    variable = f"SLOTSERVE_{name.upper()}"
    for environ, origin in (({variable: "hunter2"}, "environment"), ({f"{variable}_FILE": str(file)}, str(file))):
        rows = settings_view.rows(*load_settings(environ))
        assert "hunter2" not in json.dumps(rows)
        shown = next(r for r in rows if r["variable"] == variable)
        assert (shown["value"], shown["origin"]) == ("(set)", origin)
    url = settings_view.rows(*load_settings({"SLOTSERVE_DATABASE_URL": "postgresql://u:hunter2@h/d"}))
    assert "hunter2" not in json.dumps(url)


def test_the_start_is_written_down(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTSERVE_DRAIN_SECONDS", "7")
    settings_view.note_start(w.store, load_settings()[0], "1.2.3", NOW)
    item = w.get("/audit?action=controller.start")["items"][0]
    assert item["text"] == "SlotServe started"
    assert item["after"] == {"version": "1.2.3", "SLOTSERVE_DRAIN_SECONDS": 7}

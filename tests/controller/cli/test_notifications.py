"""`slotserve notifications` and `slots --tell-me` against the real application in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from click.testing import CliRunner, Result

from controller.cli.app import App
from controller.cli.main import main
from controller.notify.tell import Event, tell
from tests.controller.api.conftest import HOUR, MIN, World, make
from tests.parts import free_port

Run = Callable[..., Result]


@pytest.fixture
def w(tmp_path: Path) -> Any:
    world = make(tmp_path, max_booking_hours=0, notify_private_targets=True)
    yield world
    world.store.close()


@pytest.fixture
def run(w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(who: str, *args: str) -> Result:
        app = App(httpx.WSGITransport(app=w.app), lambda: w.now, ZoneInfo("Asia/Shanghai"))
        env = {"SLOTSERVE_URL": "http://controller.test", "SLOTSERVE_API_KEY": w.secrets[who]}
        return CliRunner().invoke(main, list(args), obj=app, env=env)

    return call


def test_notices_are_read_in_ones_own_time(run: Run, w: World) -> None:
    assert run("maya", "notifications").output == "Nothing new.\n"
    made = w.book(HOUR, 2 * HOUR)
    w.good("POST", f"/reservations/{made['id']}/cancel", {"reason": "the card is broken"})
    text = run("maya", "notifications", "--unread").output
    assert text.startswith("16:00  * Cancelled: small on n1/a, 17:00–18:00\n")
    assert "root has cancelled your booking. Reason: the card is broken." in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(run("maya", "notifications", "--json").output)["items"][0]["kind"] == "cancelled"
    assert run("maya", "notifications", "read").output == "1 marked as read.\n"
    assert run("maya", "notifications", "--unread").output == "Nothing new.\n"


def test_choosing_ways(run: Run) -> None:
    text = run("maya", "notifications", "settings").output
    assert "email: no mail server is set (SLOTSERVE_SMTP_HOST)" in text
    assert "requested" not in text
    chosen = run("maya", "notifications", "choose", "ready", "--by", "email")
    assert "ready" in chosen.output
    said = json.loads(run("maya", "notifications", "settings", "--json").output)
    assert [k["ways"] for k in said["kinds"] if k["own"]] == [["email"]]
    run("maya", "notifications", "choose", "ready", "--default")
    assert not any(k["own"] for k in json.loads(run("maya", "notifications", "settings", "--json").output)["kinds"])
    for args, status in ((("ready",), 2), (("ready", "--by", "pigeon"), 1), (("nothing", "--none"), 1)):
        assert run("maya", "notifications", "choose", *args).exit_code == status


def test_targets(run: Run) -> None:
    url = f"http://127.0.0.1:{free_port()}/secret"
    added = run("maya", "notifications", "add", "hook", url)
    assert added.exit_code == 0, added.output
    assert "Its secret, shown this once: whsec_" in added.output
    assert "The test did not get through" in added.output
    chat = run("maya", "notifications", "add", "team", "json://127.0.0.1:1/x", "--kind", "failed", "--json")
    assert json.loads(chat.output)["way"] == "chat"
    (hook, team) = json.loads(run("maya", "notifications", "targets", "--json").output)["items"]
    assert "secret" not in run("maya", "notifications", "targets").output
    tried = run("maya", "notifications", "test", hook["id"])
    assert tried.exit_code == 1
    assert "Error: 127.0.0.1" in tried.output
    assert run("maya", "notifications", "test").exit_code == 1  # no address
    for one in (hook, team):
        assert run("maya", "notifications", "remove", one["id"]).exit_code == 0
    assert run("maya", "notifications", "targets").output == "None.\n"
    assert run("maya", "notifications", "targets", "--shared").exit_code == 1


def test_tell_me_when_a_slot_gets_free(run: Run, w: World) -> None:
    w.book(0, 2 * HOUR)
    args = ("slots", "small", "--for", "90m", "--channel", "n1/a", "--before", "+2h", "--tell-me")
    waiting = run("noor", *args)
    assert waiting.exit_code == 0, waiting.output
    assert waiting.output.startswith("You are told once when 90 min get free before 18:00")
    text = run("noor", "notifications", "watches").output
    assert "small on n1/a" in text
    assert "waiting" in text
    (watch,) = json.loads(run("noor", "notifications", "watches", "--json").output)["items"]
    assert run("noor", "notifications", "unwatch", watch["id"]).exit_code == 0
    free = run("noor", "slots", "small", "--for", "30m", "--tell-me")
    assert free.exit_code == 1
    assert "such a slot is free already" in free.output
    assert "--channel n1/" in free.output
    assert run("noor", "slots", "small", "--before", "+2h").exit_code == 2


def test_administrators_see_what_does_not_get_through(run: Run, w: World) -> None:
    assert run("root", "notifications", "delivery").output == "0 messages wait, 0 were given up.\n"
    url = f"http://127.0.0.1:{free_port()}/x"
    w.good("POST", "/notification-targets", {"name": "hook", "way": "webhook", "url": url}, "maya")
    with w.store.write() as session:
        tell(session, Event("e", "cancelled", "x", w.now, {"channel": "n1/a"}), [w.ids["maya"]])
    from tests.controller.notify.conftest import sender

    sender(w).step()
    w.now += MIN
    said = run("root", "notifications", "delivery")
    assert said.exit_code == 1
    assert "1 messages wait" in said.output
    assert "webhook to hook since 16:00" in said.output
    listed = run("root", "notifications", "messages", "--state", "waiting").output
    assert "hook" in listed
    assert run("maya", "notifications", "messages").exit_code == 1
    doctor = run("root", "doctor").output
    assert "WRONG  messages by webhook to hook" in doctor
    assert "Connection refused" in " ".join(doctor.split())
    assert "messages by" not in run("maya", "doctor").output

"""The commands about people, feeds, the audit and usage, as people and scripts see them."""

from __future__ import annotations

import csv
import io
import json

import icalendar

from controller.store.channel_states import Doing, record
from controller.store.tables import Usage
from tests.console_scene import PASSWORD, Scene
from tests.controller.cli.commands import Run

HOUR = 3_600_000


def test_feeds_are_made_read_listed_and_revoked(run: Run, world: Scene) -> None:
    made = run("maya", "feed", "create", "phone")
    assert made.exit_code == 0, made.output
    url = made.stdout.strip()
    assert url.startswith("http://controller.test/feed/")
    assert "Shown this once" in made.stderr
    file = world.app.test_client().get(url)
    assert icalendar.Calendar.from_ical(file.data).walk("VEVENT")
    for command in (("feeds",), ("feed", "list")):
        listed = run("maya", *command).output
        assert "phone" in listed
        assert "own bookings" in listed
    assert url not in listed
    channel = json.loads(run("maya", "feed", "create", "all", "--channel", "gpu-a01/c6", "--json").output)
    assert (channel["channel"], channel["kind"]) == ("gpu-a01/c6", "feed")
    assert run("maya", "feed", "revoke", "phone").output == "phone is revoked.\n"
    assert world.app.test_client().get(url).status_code == 404
    assert "revoked" in run("maya", "feeds").output
    assert run("maya", "feed", "revoke", "phone").exit_code == 1
    assert run("maya", "feed", "create", "x", "--channel", "no/where").exit_code == 1
    assert run("maya", "feeds", "--user", "lin").exit_code == 1


def test_audit_in_words_and_filtered(run: Run, world: Scene) -> None:
    assert run("lin", "user", "edit", "maya", "--role", "approver").exit_code == 0
    assert run("lin", "key", "create", "ci", "--for", "maya").exit_code == 0
    text = run("lin", "audit").output
    assert "lin changed an account: maya" in text
    assert "role: user → approver" in text
    assert "lin made an API key: ci" in text
    assert "API key" not in run("lin", "audit", "--action", "user.*").output
    assert run("lin", "audit", "--who", "system").output == "Nothing.\n"
    assert "changed an account" in run("lin", "audit", "--about", world.ids["maya"], "--since", "1h").output
    assert run("lin", "audit", "--who", "nobody").exit_code == 1
    assert run("maya", "audit").exit_code == 1


def test_usage_in_sums_and_for_spreadsheets(run: Run, world: Scene) -> None:
    with world.store.write() as db:
        from controller.store.channels import by_full_name

        row = by_full_name(db, "gpu-a01/c6")
        assert row is not None
        record(db, {row[0].id: Doing("ready", "m")}, world.now - 3 * HOUR)
        db.add(
            Usage(
                id="x", node_id=row[1].id, channel="c6", model="=evil()", key_id="k", user_id=world.ids["maya"],
                at=world.now - HOUR, duration=1, first_byte=0.25, status=200, outcome="ok", bytes_in=1, bytes_out=1,
                prompt_tokens=7, completion_tokens=9,
            )
        )  # fmt: skip
    person = run("lin", "usage", "--all", "--by", "person").output
    assert "maya" in person
    assert "0.25 s" in person
    assert "=evil()" in run("maya", "usage", "--by", "model").output
    channel = run("lin", "usage", "--all", "--by", "channel", "--since", "24h").output
    line = next(x for x in channel.splitlines() if x.startswith("gpu-a01/c6"))
    assert "3.0" in line.split()
    assert "gpu-a01/c6" in run("lin", "usage", "--by", "day").output
    rows = list(csv.DictReader(io.StringIO(run("maya", "usage", "--csv").output)))
    assert [(r["user"], r["model"], r["prompt_tokens"]) for r in rows] == [("maya", "'=evil()", "7")]
    rows = list(csv.DictReader(io.StringIO(run("lin", "usage", "--all", "--by", "channel", "--csv").output)))
    assert {r["channel"]: r["requests"] for r in rows}["gpu-a01/c6"] == "1"
    whole = json.loads(run("lin", "usage", "--all", "--by", "person", "--json").output)
    assert whole["zone"] == "Asia/Shanghai"


def test_disabling_tells_first_what_it_does(run: Run, world: Scene) -> None:
    asked = run("lin", "user", "disable", "maya", input="n\n")
    assert asked.exit_code == 1
    assert "is cancelled" in asked.stderr
    assert "1 keys, 0 feeds and 0 sessions open nothing any more" in asked.stderr
    assert run("maya", "keys").exit_code == 0
    assert run("lin", "user", "disable", "maya", input="y\n").exit_code == 0
    assert run("maya", "keys").exit_code == 1
    assert run("lin", "user", "edit", "maya", "--enable").exit_code == 0
    assert run("maya", "keys").exit_code == 0


def test_a_password_that_an_administrator_sets_is_temporary(run: Run, world: Scene) -> None:
    typed = "a new horse\na new horse\n"
    assert run("lin", "user", "edit", "maya", "--password", input=typed).exit_code == 0
    assert _must_change(world, "maya")
    assert run("lin", "user", "edit", "maya", "--password", "--permanent", input=typed).exit_code == 0
    assert not _must_change(world, "maya")
    assert run("lin", "user", "edit", "lin", "--password", input=f"{PASSWORD}\n{typed}").exit_code == 0
    assert not _must_change(world, "lin")
    assert run("lin", "user", "add", "new", "--temporary").exit_code == 0


def _must_change(world: Scene, name: str) -> bool:
    answer = world.app.test_client().get("/api/v1/me", headers={"Authorization": f"Bearer {world.keys[name]}"})
    return bool(answer.get_json()["must_change_password"])


def test_settings_are_the_controllers_own(run: Run) -> None:
    items = json.loads(run("lin", "settings", "--json", env={"SLOTSERVE_TICK_SECONDS": "9"}).output)
    assert items["of"] == "controller"
    assert {i["variable"]: i["value"] for i in items["items"]}["SLOTSERVE_MAX_BOOKING_HOURS"] == 0
    assert "only an administrator" in run("maya", "settings").stderr
    local = json.loads(run("maya", "settings", "--local", "--json", env={"SLOTSERVE_TICK_SECONDS": "9"}).output)
    assert local["of"] == "environment"
    assert {i["variable"]: i["value"] for i in local["items"]}["SLOTSERVE_TICK_SECONDS"] == 9
    assert "slotserve login shows the running controller's" in run(None, "settings").stderr

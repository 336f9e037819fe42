"""Models, presets, usage, administration, account, try it, wall: who sees what, in both languages, and that
nothing of it is inline or unescaped."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from controller.console import POLICY, usage_data
from controller.store import links
from controller.store.tables import Audit, Preset
from controller.times import parse
from tests.console_scene import NOW, Scene, scene
from tests.controller.console.reading import plain

EVERYBODY = (
    "/channels/gpu-a02/tp4-a",
    "/channels/edge-t4/g0",
    "/channels/gpu-b01/g2?range=7d",
    "/models",
    "/models/Qwen3-32B-FP8",
    "/presets/new",
    "/usage",
    "/usage?range=24h&by=channel",
    "/try",
    "/account",
    "/account/notifications",
    "/notifications",
)
ADMINS = ("nodes", "users", "keys", "notifications", "wall", "audit", "settings")


@pytest.mark.parametrize("path", [*EVERYBODY, *(f"/admin/{p}" for p in ADMINS)])
def test_every_page_has_the_headers_and_nothing_inline(past: Scene, path: str) -> None:
    for language in ("en", "zh_Hans"):
        answer = past.client("lin", language).get(path)
        assert answer.status_code == 200, answer.text[:500]
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["Cache-Control"] == "no-store"
        text = answer.text
        assert not re.search(r"<style|\sstyle=|\son\w+=\"|javascript:|<img", text)
        assert all(re.match(r'<script src="/static/', tag) for tag in re.findall(r"<script[^>]*>", text))
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert len(ids) == len(set(ids)), sorted({i for i in ids if ids.count(i) > 1})
        for label in re.findall(r'<label[^>]*\sfor="([^"]+)"', text):
            assert label in ids, label
        for control in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
            named = 'type="hidden"' in control or "aria-label" in control or re.search(r'\bid="([^"]+)"', control)
            assert named or re.search(r"<label[^>]*>(<input[^>]*>)?[^<]*" + re.escape(control), text), control


@pytest.mark.parametrize("path", [*EVERYBODY, *(f"/admin/{p}" for p in ADMINS), "/presets", "/admin"])
def test_nobody_sees_a_page_without_signing_in(past: Scene, path: str) -> None:
    answer = past.client().get(path)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/login?next=/")


@pytest.mark.parametrize("who", ["maya", "noor"])
@pytest.mark.parametrize("page", ADMINS)
def test_administration_is_for_administrators_and_says_whom_to_ask(past: Scene, who: str, page: str) -> None:
    answer = past.client(who).get(f"/admin/{page}")
    assert answer.status_code == 403
    assert f"You are signed in as {who}" in plain(answer.text)
    assert "Ask an administrator: lin" in plain(answer.text)
    assert "/admin" not in past.client(who).get("/models").text


def test_unknown_things_are_404_pages(past: Scene) -> None:
    for path in ("/channels/gpu-a01/none", "/channels/x/y/live", "/models/nothing/here", "/presets/none", "/wall/x"):
        answer = past.client("lin").get(path)
        assert answer.status_code == 404, path
        assert "<html" in answer.text or path.endswith("live")


def test_a_model_says_where_it_fits_and_how_long_it_took(past: Scene) -> None:
    text = plain(past.client("maya").get("/models/Qwen3-32B-FP8").text)
    for words in (
        "gpu-a02/tp4-a fits llama.cpp",
        "gpu-a02 14:28 – ready – 50 s",
        "gpu-a02 12:28 – failed – 52 s",
        "20 GB",
    ):
        assert words in text
    assert text.count("gpu-a02 1") == 5, "the last five loads"
    assert "/m/Qwen3" not in text, "where a file lies is for administrators"
    assert "/m/Qwen3" in past.client("lin").get("/models/Qwen3-32B-FP8").text
    listed = plain(past.client("maya").get("/models").text)
    assert "Qwen3-4B-Instruct -Q8_0 20 GB gguf" in listed
    assert "exceeds GPU memory" in listed


def test_values_of_a_presets_environment_are_for_its_owner_and_administrators(world: Scene) -> None:
    with world.store.write() as db:
        row = Preset(
            model="Qwen3-32B-Q4_K_M", name="secret", engine="llama.cpp", args=[], env={"TOKEN": "hunter2"},
            owner_id=world.ids["maya"], created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        db.add(row)
        db.flush()
        path = f"/presets/{row.id}"
    for who, shown in (("maya", True), ("lin", True), ("tomas", False)):
        page = world.client(who).get(path).text
        assert ("hunter2" in page) == shown
        assert "TOKEN" in page
        assert (">Save<" in page) == shown
    assert "Only maya and administrators can change it." in plain(world.client("tomas").get(path).text)


def test_the_presets_check_says_what_was_meant(past: Scene) -> None:
    body = {
        "model": "Qwen3-32B-Q4_K_M",
        "engine": "llama.cpp",
        "args": "-c 4096 --ctx-sise 1 --host 0.0.0.0 --slot-save-path x",
    }
    told = past.app.test_client().post(
        "/api/v1/presets/check", json=body, headers={"Authorization": f"Bearer {past.keys['maya']}"}
    )
    told = told.get_json()
    assert told["unknown"] == ["--ctx-sise"]
    assert told["suggestions"] == {"--ctx-sise": "--ctx-size"}
    assert told["needs_permission"] == ["--slot-save-path"]
    assert [d["argument"] for d in told["dropped"]] == ["--host 0.0.0.0"]
    at_ = told["command"].index("-c")
    assert told["command"][at_ : at_ + len(told["kept"])] == told["kept"]


def test_usage_is_ones_own_unless_one_is_an_administrator(past: Scene) -> None:
    own = plain(past.client("maya").get("/usage?user=*&by=user").text)
    assert "Requests 2 none refused" in own
    assert "tomas" not in own
    assert not re.search(r"\blin\b", own)
    assert "Requests 2" in plain(past.client("maya").get("/usage?user=lin").text)
    everybody = plain(past.client("lin").get("/usage").text)
    assert "Requests 4 1 refused or failed" in everybody
    assert "maya 2 – 20 10 4 s" in everybody
    assert "Requests 1 1 refused" in plain(past.client("lin").get("/usage?user=tomas").text)
    assert "gpu-a02/tp4-a" in everybody


@pytest.mark.parametrize(
    ("top", "height"), [(0, 2), (1, 2), (3, 4), (9, 10), (56, 60), (99, 100), (101, 120), (5200, 6000), (98765, 100000)]
)
def test_the_charts_scale_is_a_round_figure(top: int, height: int) -> None:
    assert usage_data._scale(top) == height


def test_csv_is_for_the_same_eyes_and_no_formula(past: Scene) -> None:
    own = past.client("maya").get("/usage/requests.csv?user=*&by=user").text
    assert "tomas" not in own
    whole = past.client("lin").get("/usage/requests.csv?by=user")
    assert whole.headers["Content-Disposition"].startswith('attachment; filename="slotserve-requests-2026-11-19')
    assert whole.text.splitlines()[0] == "user,requests,failed,seconds,prompt_tokens,completion_tokens"
    assert "maya,2,0,4.0,20,10" in whole.text
    hours = past.client("maya").get("/usage/hours.csv").text
    assert hours.startswith("channel,loading_hours,served_hours,failed_hours,idle_hours,unknown_hours,")
    assert "gpu-a02/tp4-a," in hours


def test_the_audit_is_readable_and_filtered(world: Scene) -> None:
    with world.store.write() as db:
        for action, subject, after, reason in (
            ("channel.override", "gpu-a02/tp4-a", {"model": "<b>m</b>"}, "tonight"),
            ("user.create", world.ids["maya"], {"name": "maya"}, ""),
        ):
            db.add(Audit(at=NOW, actor_id=world.ids["lin"], action=action, subject=subject, after=after, reason=reason))
    client = world.client("lin")
    text = plain(client.get("/admin/audit").text)
    assert "lin set an override Reason: tonight gpu-a02/tp4-a model <b>m</b>" in text
    assert "lin added a person maya" in text
    only = plain(client.get("/admin/audit?action=user.").text)
    assert "added a person" in only
    assert "set an override Reason" not in only
    assert "There is nobody called nobody." in plain(client.get("/admin/audit?actor=nobody").text)
    assert "set an override Reason" in plain(client.get("/admin/audit?day=2026-11-19&actor=lin").text)
    assert "Nothing here" in plain(client.get("/admin/audit?day=2026-11-20").text)
    for day in ("tomorrow", "2026-02-30", "9999-12-31"):
        assert "That is no day." in plain(client.get(f"/admin/audit?day={day}").text)
    assert "Nothing here" in plain(client.get("/admin/audit?day=0500-01-01").text)


def test_a_day_of_the_audit_is_the_readers_with_all_its_hours(world: Scene) -> None:
    with world.store.write() as db:
        for name, time in (("first", "2026-10-24T22:30:00Z"), ("last", "2026-10-25T22:30:00Z")):  # a day of 25 hours
            db.add(Audit(at=parse(time), actor_id=world.ids["lin"], action="node.invite", subject=name))
    page = plain(world.client("lin", zone="Europe/Berlin").get("/admin/audit?day=2026-10-25&action=node.").text)
    assert "first" in page
    assert "last" in page


def test_settings_in_force_hide_what_is_secret(tmp_path: Path) -> None:
    world = scene(tmp_path, smtp_password="hunter2", smtp_host="mail.test")
    page = world.client("lin").get("/admin/settings").text
    assert "hunter2" not in page
    assert "(set)" in page
    assert "mail.test" in page
    assert "SLOTSERVE_INSECURE_HTTP 0 default" in plain(page)  # as it would be written, not as Python writes it


def test_nodes_say_what_removing_them_would_do(past: Scene) -> None:
    page = html.unescape(past.client("lin").get("/admin/nodes").text)
    assert "Remove gpu-a01?" in page
    assert "its channels (3) disappear, and the holders of its coming bookings (4) are told" in page


def test_the_account_shows_no_secret_and_only_ones_own(past: Scene) -> None:
    page = past.client("maya").get("/account").text
    assert past.keys["maya"] not in page
    assert past.keys["maya"][:12] in page
    assert past.keys["lin"][:12] not in page
    assert past.keys["maya"][:12] in past.client("lin").get("/admin/keys").text


def test_notices_are_ones_own(world: Scene) -> None:
    from controller.store.tables import Notification

    with world.store.write() as db:
        db.add(
            Notification(
                event_id="e", user_id=world.ids["maya"], kind="approved", subject="x", text="<i>yes</i>", at=NOW
            )
        )
    assert "<i>yes</i>" in plain(world.client("maya").get("/notifications").text)
    assert "yes" not in plain(world.client("lin").get("/notifications").text)
    assert "Nothing yet" in plain(world.client("lin").get("/notifications").text)


def display(world: Scene) -> str:
    with world.store.write() as db:
        return links.create(db, world.ids["lin"], "wall", NOW, None, "The lab")[1]


@pytest.mark.parametrize(("setting", "shown"), [("users", False), ("admins", False), ("everyone", True)])
def test_the_wall_shows_names_to_everyone_only(tmp_path: Path, setting: str, shown: bool) -> None:
    world = scene(tmp_path, show_holders=setting)
    secret = display(world)
    nobody = world.client()
    for path in (f"/wall/{secret}", f"/wall/{secret}/live"):
        text = nobody.get(path).text
        assert all((name in text) == shown for name in ("sofia", "tomas", "阿哲")), path
        assert "a note for few" not in text
        assert "gpt-oss-120b-MXFP4" in text
        assert not re.search(r"<img|<form|data-book|data-do=|data-api", text)
    text = plain(nobody.get(f"/wall/{secret}").text)
    assert "5 of 11 ready" in text
    assert "Booked until 16:00, again from 17:00" in text  # of gpu-a01/c6


def test_a_wall_goes_dark_when_its_link_is_revoked(world: Scene) -> None:
    secret = display(world)
    assert world.client().get(f"/wall/{secret}").status_code == 200
    with world.store.write() as db:
        row = links.resolve(db, secret, "wall")
        assert row is not None
        assert row[0].last_used_at == world.now
        links.revoke(db, row[0].id, NOW)
    assert world.client().get(f"/wall/{secret}").status_code == 404
    assert world.client().get(f"/wall/{secret}/live").status_code == 404
    with world.store.write() as db:
        feed = links.create(db, world.ids["lin"], "feed", NOW)[1]
    assert world.client().get(f"/wall/{feed}").status_code == 404, "a calendar's secret opens no wall"

"""Channel, models, presets, usage, administration, account, try it, wall: who sees what, in both languages, and that
nothing of it is inline or unescaped."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from controller.console import POLICY, usage_data
from controller.fleet.logs import Launch, LogStore
from controller.store import links
from controller.store.tables import Audit, ChannelState, Load, Node, Preset, Usage
from tests.console_scene import HOSTILE, NOW, Scene, at, scene

HOUR = 3_600_000
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


def plain(page: str) -> str:
    """The text of a page, as a person reads it."""
    text = re.sub(r"<(script|svg|option)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()).replace(" .", ".").replace(" ,", ",")


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The scene with a past (what a channel did, requests, loads), for all tests that only look."""
    world = scene(tmp_path_factory.mktemp("past"))
    with world.store.write() as db:
        nodes = {n.name: n.id for n in db.query(Node)}
        channel = world.ids["gpu-a02/tp4-a"]
        for when, phase, model, fallback in (
            (NOW - 30 * HOUR, "ready", "Qwen3-32B-FP8", False),
            (NOW - 5 * HOUR, "unknown", None, False),
            (NOW - 4 * HOUR, "ready", "Qwen3-32B-FP8", False),
            (at("13:27"), "retry_wait", "gpt-oss-120b-MXFP4", False),
            (at("13:30"), "ready", "Qwen3-32B-FP8", True),
        ):
            db.add(ChannelState(channel_id=channel, at=when, phase=phase, model=model, fallback=fallback))
        for i, who in enumerate(("lin", "maya", "maya", "tomas")):
            db.add(
                Usage(
                    id=f"u{i}", node_id=nodes["gpu-a02"], channel="tp4-a", model=HOSTILE, key_id="k",
                    user_id=world.ids[who], at=NOW - 1 - i * HOUR, duration=2.0, first_byte=0.1, status=403 if i == 3 else 200,
                    outcome="served", bytes_in=1, bytes_out=2, prompt_tokens=10, completion_tokens=5,
                )
            )  # fmt: skip
        for i in range(7):
            db.add(
                Load(
                    id=f"l{i}", node_id=nodes["gpu-a02"], model="Qwen3-32B-FP8", preset=None, identity="x", ok=i != 2,
                    seconds=50.0 + i, at=NOW - i * HOUR,
                )
            )  # fmt: skip
    return world


# --- who sees what ------------------------------------------------------------------------------------------------


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


# --- channel --------------------------------------------------------------------------------------------------------


def test_the_channel_page_says_what_runs_and_why(past: Scene) -> None:
    text = plain(past.client("tomas").get("/channels/gpu-a02/tp4-a").text)
    for words in (
        "Wanted gpt-oss-120b -MXFP4 The default answers for sofia while gpt-oss-120b-MXFP4 waits for its next try",
        "Running Qwen3-32B -FP8 Fallback, since",
        "2 requests running",
        "Out of GPU memory (gpt-oss-120b-MXFP4). Failed 9 times since 13:27. Next try at 14:32:38, in 4 min 34 s.",
        "The default answers until then.",
        "failed to allocate 61440.00 MiB",
        "Lower -ngl or -c (now 65536).",
        "Ready, 21 h",
        "Default in place of a failed model,",
        "No contact, 1 h",
        "1 request, 1 at most in 20 min",  # tomas' own
        "Now gpt-oss-120b -MXFP4 Reserved by sofia until 17:30",
        "17:30 Qwen3-32B -FP8 default Default, open to all everybody",
        "http://gpu-a02:8710/channels/tp4-a/v1",
        "Longest booking 8 h",
    ):
        assert words in text, (words, text)
    assert "Retry now" not in text
    assert "Set override" not in text
    chinese = plain(past.client("tomas", "zh_Hans").get("/channels/gpu-a02/tp4-a").text)
    for words in ("应运行", "显存不足", "默认模型代替失败的模型", "未来 24 小时", "sofia 的预约，至 17:30"):
        assert words in chinese


def test_what_may_be_done_with_a_channel(past: Scene) -> None:
    retry, reload_ = 'data-api="POST /channels/gpu-a02/tp4-a/retry"', 'data-api="POST /channels/gpu-a02/tp4-a/reload"'
    for who, may in (("lin", True), ("sofia", True), ("maya", False)):
        page = past.client(who).get("/channels/gpu-a02/tp4-a").text
        assert (retry in page, reload_ in page) == (may, may)
        assert ('data-api="PUT /channels/gpu-a02/tp4-a/override"' in page) == (who == "lin")
        assert ('name="policy.max_hours"' in page) == (who == "lin")


def test_holders_are_named_as_the_setting_allows(tmp_path: Path) -> None:
    world = scene(tmp_path, show_holders="admins")
    for path in ("/channels/gpu-a02/tp4-a", "/channels/gpu-a02/tp4-a/live"):
        assert "sofia" not in world.client("maya").get(path).text
        assert "sofia" in world.client("lin").get(path).text
    assert "the holder" in plain(world.client("maya").get("/channels/gpu-a02/tp4-a").text)


def test_the_plan_names_participants_to_those_who_may_know(world: Scene) -> None:
    from controller.store.tables import Reservation

    with world.store.write() as db:
        row = db.query(Reservation).filter_by(holder_id=world.ids["sofia"]).one()
        row.participants = [world.ids["tomas"]]
    for who, shown in (("lin", True), ("noor", True), ("tomas", True), ("maya", False)):
        page = world.client(who).get("/channels/gpu-a02/tp4-a/live").get_json()["parts"]["ch-plan"][1]
        assert ("tomas" in page) == shown


def test_an_override_is_shown_with_its_end_and_taken_back_by_administrators(past: Scene) -> None:
    text = plain(past.client("maya").get("/channels/gpu-b01/g0").text)
    assert "Set by lin until 18:00, or until a booking begins." in text
    assert "Back to the default" not in text
    assert 'data-api="DELETE /channels/gpu-b01/g0/override"' in past.client("lin").get("/channels/gpu-b01/g0").text


def test_the_channels_live_parts(world: Scene) -> None:
    client = world.client("maya")
    first = client.get("/channels/gpu-a01/c7/live")
    parts = first.get_json()["parts"]
    assert {"ch-head", "ch-now", "ch-past", "ch-plan", "ch-override"} <= set(parts)
    assert 'data-progress="loading"' in parts["ch-now"][1]
    world.now += 1000
    again = client.get("/channels/gpu-a01/c7/live", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304, "a bar that moves on is no news"
    assert world.client().get("/channels/gpu-a01/c7/live").status_code == 401


def test_a_name_that_is_markup_is_shown_as_it_is(past: Scene) -> None:
    for path in ("/channels/gpu-b01/g2", "/models", "/usage?by=model", "/try", "/presets/new"):
        page = past.client("lin").get(path).text
        assert "<img" not in page, path
        assert html.escape("<img src=x onerror=alert(1)>") in page, path
    page = past.client("lin").get(f"/models/{HOSTILE}")
    assert page.status_code == 200
    assert "<img" not in page.text


# --- log ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(world: Scene) -> Scene:
    from controller.store.tables import Reservation

    world.ctx.logs = LogStore(world.ctx.settings.state_dir / "logs")
    with world.store.read() as db:
        booking = db.query(Reservation).filter_by(holder_id=world.ids["sofia"]).one().id
    text = b"one\ntwo <b>\nERROR out of memory\n"
    world.ctx.logs.append("gpu-a02", "tp4-a", Launch("l1", NOW - 9, "m", None, booking, True, True), 0, text)
    world.ctx.logs.append("gpu-a02", "tp4-a", Launch("l2", NOW - 5, "d", None, ""), 0, b"hello\n")
    return world


def test_a_log_is_searched_and_downloaded_by_those_who_may_read_it(logs: Scene) -> None:
    base = "/api/v1/channels/gpu-a02/tp4-a/log"
    for who, status in (("lin", 200), ("sofia", 200), ("tomas", 403)):
        for path in (f"{base}?launch=l1", f"{base}/find?launch=l1&q=memory", f"{base}/file?launch=l1"):
            assert logs.client(who).get(path).status_code == status, (who, path)
    client = logs.client("sofia")
    assert client.get(f"{base}/find?launch=l1&q=MEMORY").get_json()["matches"] == [{"offset": 12, "line": 3}]
    assert client.get(f"{base}?launch=l1&offset=4&lines=1").get_json()["line"] == 2
    file = client.get(f"{base}/file?launch=l1")
    assert file.data == b"one\ntwo <b>\nERROR out of memory\n"
    assert file.headers["Content-Disposition"] == 'attachment; filename="gpu-a02-tp4-a-l1.log"'
    assert file.mimetype == "text/plain"
    assert client.get(f"{base}/find?launch=l1&q=").status_code == 422


# --- models and presets ---------------------------------------------------------------------------------------------


def test_a_model_says_where_it_fits_and_how_long_it_took(past: Scene) -> None:
    text = plain(past.client("maya").get("/models/Qwen3-32B-FP8").text)
    for words in ("gpu-a02/tp4-a fits llama.cpp", "gpu-a02 14:28 – ready 50 s", "gpu-a02 12:28 – failed 52 s", "20 GB"):
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


# --- usage ----------------------------------------------------------------------------------------------------------


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


# --- administration and account -------------------------------------------------------------------------------------


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
    assert "That is no day." in plain(client.get("/admin/audit?day=tomorrow").text)


def test_settings_in_force_hide_what_is_secret(tmp_path: Path) -> None:
    world = scene(tmp_path, smtp_password="hunter2", smtp_host="mail.test")
    page = world.client("lin").get("/admin/settings").text
    assert "hunter2" not in page
    assert "(set)" in page
    assert "mail.test" in page


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


# --- wall -----------------------------------------------------------------------------------------------------------


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
    assert "5 of 11 ready" in plain(nobody.get(f"/wall/{secret}").text)


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

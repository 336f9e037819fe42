"""A channel's page and its log: what runs and why, and who may read and do what."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from controller.fleet.logs import Launch, LogStore
from tests.console_scene import HOSTILE, NOW, Scene, scene
from tests.controller.console.reading import plain


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

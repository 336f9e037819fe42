"""The overview: what it says of every state, to whom, in both languages, and how it stays live."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.console import live, overview_parts
from controller.fleet.live import LiveChannel
from controller.store.tables import Reservation
from tests.console_scene import HOSTILE, NOW, Scene, at, scene


def plain(page: str) -> str:
    """The text of a page, as a person reads it."""
    text = re.sub(r"<(script|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
    return (
        " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
        .replace(" , ", ", ")
        .replace(" .", ".")
        .replace(" :", ":")
        .replace(" ：", "：")
    )


def row(world: Scene, channel: str, who: str = "maya", language: str = "en") -> str:
    """One channel's row, as text."""
    answer = world.client(who, language).get("/overview/rows")
    return plain(answer.get_json()["parts"]["ch-" + channel.replace("/", "-")][1])


@pytest.mark.parametrize(
    ("channel", "english", "chinese"),
    [
        (
            "gpu-a01/main",
            ["Ready", "Default, open to all until 19:57", "12 running", "Next You, 20:00"],
            ["就绪", "默认模型，19:57 前所有人可用"],
        ),
        (
            "gpu-a01/c6",
            ["Reserved by lin until 16:00", "long-context", "Now lin, until 16:00", "1 h 32 min left"],
            ["lin 的预约，至 16:00"],
        ),
        (
            "gpu-a01/c7",
            ["Loading", "Preloading for you, from 14:30", "84 s", "in 116 s"],
            ["我的预约 14:30 开始，正在预加载"],
        ),
        (
            "gpu-a02/tp4-a",
            [
                "Fallback",
                "The default answers for sofia while gpt-oss-120b-MXFP4 waits for its next try",
                "Out of GPU memory",
                "Failed 9 times since 13:27.",
                "Next try at 14:32:38, in 4 min 34 s.",
                "Lower -ngl or -c (now 65536).",
                "failed to allocate 61440.00 MiB",
            ],
            ["自动回退", "显存不足", "自 13:27 起失败 9 次。", "下次重试 14:32:38（4 分 34 秒后）。"],
        ),
        (
            "gpu-a02/tp4-b",
            ["Exclusive", "Exclusive for 阿哲; nothing is loaded", "No model", "Fri 09:00 pending"],
            ["阿哲 整卡预约，不加载模型"],
        ),
        (
            "gpu-b01/g0",
            ["Override by lin until 18:00, or until a booking begins"],
            ["lin 手动指定，至 18:00 或下一个预约开始"],
        ),
        (
            "gpu-b01/g1",
            [
                "Switching",
                "Qwen3-32B -Q4_K_M → GLM-4.5-Air -Q4_K_M",
                "Reserved by tomas until 16:00",
                "Draining 2 requests",
            ],
            ["切换中", "等待 2 个请求完成"],
        ),
        (
            "lab-3090/g0",
            ["Nothing loaded", "No default set, so nothing is loaded", "Nothing booked"],
            ["未设置默认模型，不加载"],
        ),
        ("lab-3090/g1", ["Blocked", "wanted Mistral-Small-3.2-24B", "once it is ready", "pid 48213"], ["受阻"]),
        (
            "edge-t4/g0",
            ["Offline", "Last seen at 13:58: Ready", "unknown", "Next noor, 15:00"],
            ["最后一次看到：13:58，就绪"],
        ),
    ],
)
def test_what_is_said_of_each_state(world: Scene, channel: str, english: list[str], chinese: list[str]) -> None:
    text = row(world, channel)
    for words in english:
        assert words in text
    text = row(world, channel, language="zh_Hans")
    for words in chinese:
        assert words.replace(" ", "") in text.replace(" ", "")


def test_a_clock_beyond_the_limit_is_said_with_the_limit(world: Scene) -> None:
    world.ctx.live.update("lab-3090", clock_skew_seconds=3600.0)
    text = plain(world.client("lin").get("/").text)
    assert "Clock +3600 s off, more than 30 s" in text
    assert "The node’s clock is +3600 s off, more than 30 s: its certificate depends on it. Start NTP there." in text
    nodes = plain(world.client("lin").get("/admin/nodes").text)
    assert "+3600 s off, more than 30 s: bookings are corrected, certificates and logs are not." in nodes
    world.ctx.live.update("lab-3090", clock_skew_seconds=-4.2)
    assert "-4.2 s off (limit 30 s), corrected" in plain(world.client("lin").get("/admin/nodes").text)


def test_needs_attention_and_the_bookings_of_the_day(world: Scene) -> None:
    text = plain(world.client("maya").get("/").text)
    assert "Needs attention 4" in text
    assert "edge-t4 No contact since 13:58. The booking on edge-t4/g0 at 15:00 is at risk." in text
    assert "The node’s clock is 4.2 s fast; bookings there are corrected for it." in text
    assert "Today’s bookings 9" in text
    assert "09:00 – 10:00 gpu-b01/g2 tomas" in text
    assert "finished" in text


def test_your_bookings_have_their_buttons_and_others_have_none(world: Scene) -> None:
    with world.store.read() as db:
        ids = {(r.holder_id, r.starts_at): r.id for r in db.query(Reservation)}
    running = ids[world.ids["lin"], at("12:00")]
    yours = world.client("lin").get("/overview/rows").get_json()["parts"]["yours"][1]
    assert f'data-do="end" data-id="{running}"' in yours
    assert f'data-do="extend" data-id="{running}"' in yours
    assert "waiting for approval" in yours
    page = world.client("maya").get("/").text
    assert f'data-id="{running}"' not in page
    assert page.count('data-do="cancel"') == 3
    assert 'data-do="retry"' not in page  # the failure is in sofia's booking
    assert 'data-do="retry"' in world.client("sofia").get("/").text
    assert 'data-do="retry"' in world.client("lin").get("/").text


def test_a_note_is_on_no_page_and_holders_only_where_they_may_be(world: Scene, tmp_path: Path) -> None:
    assert "a note for few" not in world.client("lin").get("/").text
    (tmp_path / "hidden").mkdir()
    hidden = scene(tmp_path / "hidden", show_holders="admins")
    text = plain(hidden.client("maya").get("/").text)
    for name in ("tomas", "sofia", "阿哲", "noor", "lin"):
        assert not re.search(rf"\b{name}\b", text)
    assert "Exclusive booking; nothing is loaded" in text
    assert "The default answers while gpt-oss-120b-MXFP4 waits for its next try" in text
    assert "sofia" in plain(hidden.client("lin").get("/").text)


def test_a_hostile_name_stays_text(world: Scene) -> None:
    page = world.client("maya").get("/").text
    assert "<img" not in page
    assert html.escape(HOSTILE.removesuffix("-Q8_0")) in page
    assert "<img" not in "".join(p[1] for p in world.client("maya").get("/overview/rows").get_json()["parts"].values())


def test_polling_answers_304_until_something_other_than_the_time_changes(world: Scene) -> None:
    client = world.client("maya")
    first = client.get("/overview/rows")
    etag = {"If-None-Match": first.headers["ETag"]}
    world.now = NOW + 5_000  # countdowns tick, the load goes on
    again = client.get("/overview/rows", headers=etag)
    assert again.status_code == 304
    assert again.headers["X-SlotServe-Now"] == str(world.now)
    old = world.live.node("gpu-b01").channels
    world.live.update("gpu-b01", channels={**old, "g2": replace(old["g2"], in_flight=3)})
    changed = client.get("/overview/rows", headers=etag)
    assert changed.status_code == 200
    before, after = first.get_json()["parts"], changed.get_json()["parts"]
    assert [name for name in after if after[name][0] != before[name][0]] == ["ch-gpu-b01-g2"]
    world.now = at("14:30") + 1  # maya's booking begins
    parts = client.get("/overview/rows", headers=etag).get_json()["parts"]
    assert parts["ch-gpu-a01-c7"][0] != before["ch-gpu-a01-c7"][0]


def test_polls_in_between_make_nothing_anew(world: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is kept is each person's own, in their language."""
    made: list[str] = []
    render = live.render

    def counted(name: str, **values: Any) -> str:
        made.append(name)
        return render(name, **values)

    monkeypatch.setattr(live, "render", counted)
    maya, chinese, lin = world.client("maya"), world.client("maya", "zh_Hans"), world.client("lin")
    texts = [client.get("/overview/rows").get_json()["parts"] for client in (maya, chinese, lin)]
    assert len({str(text) for text in texts}) == 3
    made.clear()
    for later in range(1, 5):
        world.now = NOW + later * 2000
        for client, text in zip((maya, chinese, lin), texts, strict=True):
            answer = client.get("/overview/rows").get_json()
            assert (answer["now"], answer["parts"]) == (world.now, text)
    assert made == []
    old = world.live.node("gpu-b01").channels
    world.live.update("gpu-b01", channels={**old, "g2": replace(old["g2"], in_flight=3)})
    maya.get("/overview/rows")
    assert made == ["row"]  # nobody has a booking there: one row for everybody
    world.client("sofia").get("/overview/rows")
    assert made.count("row") == 2  # and the one where sofia's own booking runs


def test_who_says_what_they_have_is_sent_what_differs(world: Scene) -> None:
    client = world.client("maya")
    first = client.get("/overview/rows")
    old = world.live.node("gpu-b01").channels
    world.live.update("gpu-b01", channels={**old, "g2": replace(old["g2"], in_flight=3)})
    changed = client.get("/overview/rows", headers={"If-None-Match": first.headers["ETag"]}).get_json()
    assert list(changed["parts"]) == ["ch-gpu-b01-g2"]
    assert changed["names"] is None  # the same parts as before
    unknown = client.get("/overview/rows", headers={"If-None-Match": 'W/"somethingelse"'}).get_json()
    assert set(unknown["names"]) == set(unknown["parts"]) == set(first.get_json()["parts"])


def test_figures_of_gpus_come_by_themselves(world: Scene) -> None:
    client = world.client("maya")
    etag = client.get("/overview/rows").headers["ETag"]
    gpus = world.live.node("gpu-a01").gpus
    world.live.update("gpu-a01", gpus=tuple(replace(g, utilisation_percent=77) for g in gpus))
    assert client.get("/overview/rows", headers={"If-None-Match": etag}).status_code == 304
    told = client.get("/overview/gpus?nodes=gpu-a01,edge-t4").get_json()["channels"]
    assert set(told) == {"ch-gpu-a01-main", "ch-gpu-a01-c6", "ch-gpu-a01-c7"}  # what is away is not known
    assert told["ch-gpu-a01-main"]["use"] == 77
    assert told["ch-gpu-a01-main"]["memory"] == ["28", "141"]
    assert world.app.test_client().get("/overview/gpus?nodes=gpu-a01").status_code == 401


def test_the_page_begins_with_the_first_rows_and_its_first_poll_brings_the_rest(
    world: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client("maya")
    whole = client.get("/overview/rows").get_json()["parts"]
    channels = sum(name.startswith("ch-") for name in whole)
    for many, left_out in ((100, 0), (5, channels - 5)):
        monkeypatch.setattr(overview_parts, "FIRST_ROWS", many)
        page = client.get("/").text
        later = re.findall(r'data-part="([^"]*)"><div class="ch ch--later" id="\1">', page)
        assert len(later) == left_out
        assert ("data-more" in page) == bool(left_out)
        tag = re.search(r'data-tag="(\w+)"', page)[1]
        answer = client.get("/overview/rows", headers={"If-None-Match": f'W/"{tag}"'})
        if not left_out:
            assert answer.status_code == 304
            continue
        told = answer.get_json()
        assert told["parts"].keys() == set(later)
        assert told["names"] == list(whole)
        assert all(told["parts"][name] == whole[name] for name in later)


def test_times_are_in_the_viewers_zone_with_utc_in_the_tooltip(world: Scene) -> None:
    page = world.client("maya", zone="Europe/Berlin").get("/").text
    assert '<time datetime="2026-11-19T08:00:00Z" title="08:00 UTC">09:00</time>' in page
    assert "Europe/Berlin" in page
    for wrong in ("No/Where", "../../etc/passwd", "x" * 200):
        assert world.client("maya", zone=wrong).get("/").status_code == 200


def test_a_longer_load_is_never_at_its_end_before_it_is_ready(world: Scene) -> None:
    late = LiveChannel(
        "loading", running="z", running_model="m", load_started_at=NOW - 400_000, load_estimated_seconds=140.0
    )
    world.live.update("gpu-a01", channels={**world.live.node("gpu-a01").channels, "c7": late})
    part = world.client("maya").get("/overview/rows").get_json()["parts"]["ch-gpu-a01-c7"][1]
    assert '<progress max="140.0" value="138.6"' in part


def test_an_empty_fleet_says_what_to_do(tmp_path: Path) -> None:
    from controller import sessions
    from controller.context import Context, wall_ms
    from controller.fleet.live import Live
    from controller.settings import Settings
    from controller.store import migrate, users
    from controller.store.session import Store
    from controller.web import create_app

    store = Store(f"sqlite:///{tmp_path / 'e.db'}")
    migrate.upgrade(store)
    app = create_app(Context(Settings(state_dir=tmp_path), store, Live()))
    client = app.test_client()
    with client.session_transaction() as session, store.write() as db:
        sessions.begin(session, db, users.create(db, "lin", None, "admin", 1), wall_ms())
    assert "Add the first one: you get a command to run on that machine." in client.get("/").text

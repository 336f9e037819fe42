"""The timeline: which range is looked at, what its rows say of every state and to whom, what a poll sends."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from controller.console import timeline
from controller.console.show import moment
from controller.store.tables import Channel, Reservation
from tests.console_scene import HOSTILE, NOW, Scene, at, scene

SHANGHAI, BERLIN = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin")


def plain(part: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def lane(world: Scene, channel: str, who: str = "maya", language: str = "en", query: str = "") -> list[str]:
    """The bars of a channel, as text: `k-mine 12:00–16:00 …`."""
    parts = world.client(who, language).get(f"/timeline/rows{query}").get_json()["parts"]
    part = parts["tl-ch-" + channel.replace("/", "-")][1]
    return [
        f"{kind} {plain(inside)}".replace(" – ", "–").replace("– ", "–")
        for kind, inside in re.findall(r'class="bar (k-\w+)[^"]*"[^>]*>(.*?)</(?:a|button|span)></li>', part, re.DOTALL)
    ]


def shown(world: Scene, query: str, now: int = NOW, zone: ZoneInfo = SHANGHAI) -> timeline.Range:
    with world.app.test_request_context(f"/timeline{query}"):
        return timeline.range_of(now, zone)


@pytest.mark.parametrize(
    ("channel", "wanted"),
    [
        ("gpu-a01/c6", ["k-other lin 12:00–16:00", "k-band 16:00–16:57", "k-pre 16:57–17:00", "k-mine You 17:00–18:00"]),
        ("gpu-a02/tp4-a", ["k-fail sofia · fallback 13:00–17:30 gpt-oss-120b"]),
        ("gpu-a02/tp4-b", ["k-excl 阿哲 · exclusive 12:00–20:00 nothing loaded", "k-pending lin · pending Fri 09:00–13:00"]),
        ("gpu-b01/g0", ["k-hand Now–18:00 Qwen3-32B -Q4_K_M override", "k-band from 18:00 Qwen3-32B -Q4_K_M open to all"]),
        ("lab-3090/g0", ["k-none Now nothing is loaded"]),
        ("lab-3090/g1", ["k-fail Now–16:00 Mistral-Small-3.2-24B -Q4_K_M failed", "k-band from 16:00"]),
        ("edge-t4/g0", ["k-off Now–14:57", "k-other noor · at risk 15:00–16:00", "k-unsure from 16:00"]),
    ],
)  # fmt: skip
def test_what_a_row_says_of_each_state(world: Scene, channel: str, wanted: list[str]) -> None:
    bars = lane(world, channel)
    for words in wanted:
        assert any(bar.startswith(words) for bar in bars), bars


def test_a_channel_that_is_maintained_says_so(world: Scene) -> None:
    with world.store.write() as db:
        row = db.query(Reservation).filter_by(holder_id=world.ids["noor"]).one()
        row.maintenance, row.kind, row.model = True, "exclusive", None
    assert any(bar.startswith("k-maint Maintenance 15:00–16:00") for bar in lane(world, "edge-t4/g0"))


def test_only_ones_own_bookings_can_be_dragged_and_one_that_runs_only_at_its_end(world: Scene) -> None:
    parts = world.client("lin").get("/timeline/rows").get_json()["parts"]
    assert parts["tl-ch-gpu-a01-c6"][1].count("data-moves") == 1
    assert 'data-moves="end" data-version="1"' in parts["tl-ch-gpu-a01-c6"][1]
    assert 'data-moves="all"' in parts["tl-ch-gpu-a02-tp4-b"][1]
    assert "data-moves" not in parts["tl-ch-gpu-a02-tp4-a"][1]


def test_hidden_holders_and_hostile_names(world: Scene, tmp_path: Path) -> None:
    page = world.client("maya").get("/timeline").text
    assert "<img" not in page
    assert html.escape(HOSTILE.removesuffix("-Q8_0")) in page
    (tmp_path / "hidden").mkdir()
    hidden = scene(tmp_path / "hidden", show_holders="admins")
    text = plain(hidden.client("maya").get("/timeline").text)
    assert not re.search(r"\b(tomas|sofia|阿哲|noor|lin)\b", text)
    assert "somebody · fallback" in text
    assert "sofia" in plain(hidden.client("lin").get("/timeline").text)


def test_filters_leave_what_they_name(world: Scene) -> None:
    def channels(query: str) -> set[str]:
        page = world.client("maya").get(f"/timeline{query}").text
        return set(re.findall(r'class="tl-row" data-part="[^"]+" data-channel="([^"]+)"', page))

    assert channels("?node=gpu-a02") == {"gpu-a02/tp4-a", "gpu-a02/tp4-b"}
    assert channels("?model=GLM-4.5-Air-Q4_K_M") == {"gpu-b01/g0", "gpu-b01/g1", "gpu-b01/g2"}
    assert channels("?mine=1") == {"gpu-a01/main", "gpu-a01/c6", "gpu-a01/c7"}
    assert channels("?node=none") == set()
    assert "No channel fits this filter" in world.client("maya").get("/timeline?node=none").text


def test_a_poll_is_304_until_something_changes_and_then_sends_that_row(world: Scene) -> None:
    client = world.client("maya")
    first = client.get("/timeline/rows")
    tag = {"If-None-Match": first.headers["ETag"]}
    world.now = NOW + 20_000
    assert client.get("/timeline/rows", headers=tag).status_code == 304
    old = world.live.node("gpu-a01").channels
    world.live.update("gpu-a01", channels={**old, "main": replace(old["main"], phase="stopping")})
    told = client.get("/timeline/rows", headers=tag).get_json()
    assert list(told["parts"]) == ["tl-ch-gpu-a01-main"]
    tag = {"If-None-Match": client.get("/timeline/rows").headers["ETag"]}
    world.now = at("17:00") + 1  # maya's booking begins
    assert "tl-ch-gpu-a01-c6" in client.get("/timeline/rows", headers=tag).get_json()["parts"]
    assert world.app.test_client().get("/timeline/rows").status_code == 401


def test_bookings_outside_the_range_are_not_read(world: Scene) -> None:
    assert not [
        bar for bar in lane(world, "gpu-a01/c6", query="?from=2026-11-25T00:00") if not bar.startswith("k-band")
    ]
    week = lane(world, "gpu-a02/tp4-b", query="?view=week")
    assert any(bar.startswith("k-pending") for bar in week)


@pytest.mark.parametrize(
    "query",
    ["?from=nonsense", "?from=2026-11-19T12:00Z", "?from=9999-01-01T00:00", "?view=century", "?node=%00&model=%22%3E"],
)
def test_odd_addresses_show_the_usual_range(world: Scene, query: str) -> None:
    assert world.client("maya").get(f"/timeline{query}").status_code == 200
    assert shown(world, query) == shown(world, "")


def test_the_days_when_the_clocks_change_are_as_long_as_they_are(world: Scene) -> None:
    with world.app.test_request_context("/timeline"):
        _days_of_change(world)


def _days_of_change(world: Scene) -> None:
    spring = shown(world, "?from=2026-03-29T00:00", zone=BERLIN)
    assert (spring.end - spring.start) / 3_600_000 == 23
    assert [words for _, words in spring.ticks][:3] == ["00:00", "04:00", "06:00"]  # 02:00 does not exist
    autumn = shown(world, "?from=2026-10-25T00:00", zone=BERLIN)
    assert (autumn.end - autumn.start) / 3_600_000 == 25
    assert [words for _, words in autumn.ticks].count("02:00") == 2
    week = shown(world, "?view=week&from=2026-10-19T00:00", zone=BERLIN)
    assert [words for _, words in week.days][-1].startswith("Sun 25")
    assert moment(week.end, BERLIN).hour == 0


def test_a_view_moves_by_the_wall_clock(world: Scene) -> None:
    day = shown(world, "")
    assert day.follows
    assert moment(day.start, SHANGHAI).strftime("%H:%M") == "12:00"
    assert (day.moved(1), day.moved(-1)) == ("2026-11-20T00:00", "2026-11-19T00:00")
    week = shown(world, "?view=week")
    assert (week.moved(1), week.moved(-1)) == ("2026-11-26T00:00", "2026-11-12T00:00")
    assert 'href="/timeline?from=2026-11-20T00%3A00"' in world.client("maya").get("/timeline").text


def test_a_channel_that_takes_no_bookings_offers_none(world: Scene) -> None:
    from controller.store.tables import Node

    with world.store.write() as db:
        db.get(Node, db.get(Channel, world.ids["gpu-b01/g0"]).node_id).cordoned = True
    page = world.client("maya").get("/timeline").text
    row = re.search(r'<div class="tl-row" data-part="tl-ch-gpu-b01-g0".*?</ol>', page, re.DOTALL)
    assert row
    assert "data-closed" in row[0]
    assert "data-book" not in row[0]


def test_chinese_throughout(world: Scene) -> None:
    page = world.client("maya", "zh_Hans").get("/timeline").text
    text = plain(re.sub(r'<[^>]+lang="en".*?</', " ", page))
    assert "2026年11月19日 周四 – 20日 周五" in text
    for word in ("pending", "exclusive", "open to all", "from 1", "Today", "Yours", "Maintenance", "nothing"):
        assert word not in text

"""My bookings, a booking's page, the approver's inbox: what they say and to whom; and the API's sentences translated."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from controller.console.calls import snippets
from controller.console.spoken import spoken
from controller.said import fault, say
from controller.scheduling.hints import Hint
from controller.store.tables import Channel, Reservation
from tests.console_scene import Scene, at


def plain(part: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def ids(world: Scene) -> dict[tuple[str, int], str]:
    names = {i: name for name, i in world.ids.items()}
    with world.store.read() as db:
        return {(names[r.holder_id], r.starts_at): r.id for r in db.query(Reservation)}


def token(client: Any) -> dict[str, str]:
    page = client.get("/").text
    return {"X-CSRF-Token": re.search(r'name="csrf-token" content="([^"]+)"', page)[1]}


def test_my_bookings_in_their_order_with_what_can_be_done(world: Scene) -> None:
    page = world.client("lin").get("/bookings").text
    text = plain(page)
    assert text.index("Running") < text.index("Waiting for approval")
    assert "17:00 is the longest: maya’s booking begins then." in text
    assert "Ready · 1 request running" in text
    running = ids(world)["lin", at("12:00")]
    assert f'data-do="end" data-id="{running}"' in page
    assert f'data-do="extend" data-id="{running}" data-to="{at("17:00")}"' in page
    assert f'data-to="{at("18:00")}"' not in page  # beyond the longest
    empty = plain(world.client("sofia").get("/bookings/past").text)
    assert "Nothing here yet" in empty


def test_the_longest_is_the_channels_own_where_nothing_is_booked_behind(world: Scene) -> None:
    with world.store.write() as db:
        db.get(Channel, world.ids["gpu-a02/tp4-a"]).policy = {"max_hours": 6}
    text = plain(world.client("sofia").get("/bookings").text)
    assert "19:00 is the longest that this channel allows without asking." in text


def test_a_booking_page_for_its_holder_and_for_others(world: Scene) -> None:
    booking = ids(world)["lin", at("12:00")]
    own = plain(world.client("lin").get(f"/bookings/{booking}").text)
    for words in (
        "a note for few",
        "How to call it",
        "http://gpu-a01:8710/channels/c6/v1",
        "End now",
        "Wanted",
        "On the channel now",
    ):
        assert words in own
    other = plain(world.client("maya").get(f"/bookings/{booking}").text)
    assert "a note for few" not in other
    assert "Only its holder and the people the holder named may call it" in other
    assert "The history is for the holder" in other
    assert "End now" not in other
    for path in (f"/bookings/{booking}/live", "/bookings/live", "/approvals/live"):
        assert world.app.test_client().get(path).status_code == 401
    assert world.client("lin").get("/bookings/nosuch").status_code == 404


def test_the_bare_card_is_the_holders(world: Scene) -> None:
    booking = ids(world)["阿哲", at("12:00")]
    page = plain(world.client("阿哲").get(f"/bookings/{booking}").text)
    assert "export CUDA_VISIBLE_DEVICES=GPU-gpu-a02-1" in page
    assert "Host gpu-a02" in page
    assert re.search(r"\b0 processes, [\d,]+ MiB used", page), "what is on the card at the hand-over"
    assert "CUDA_VISIBLE_DEVICES" not in world.client("maya").get(f"/bookings/{booking}").text


def test_what_became_of_a_booking_is_told_in_its_order(world: Scene) -> None:
    client = world.client("maya")
    head = token(client)
    body = {
        "channel": "gpu-b01/g0",
        "model": "Qwen3-32B-Q4_K_M",
        "starts_at": "2026-11-20T10:00:00+08:00",
        "ends_at": "2026-11-20T11:00:00+08:00",
    }
    made = client.post("/api/v1/reservations", json=body, headers=head).get_json()
    client.patch(
        f"/api/v1/reservations/{made['id']}", json={"version": 1, "ends_at": "2026-11-20T12:00:00+08:00"}, headers=head
    )
    client.post(f"/api/v1/reservations/{made['id']}/cancel", json={"reason": "not needed"}, headers=head)
    text = plain(client.get(f"/bookings/{made['id']}").text).replace(" – ", "–")
    assert re.search(
        r"maya booked: Fri 10:00–11:00 .* maya changed: Fri 10:00–11:00 → Fri 10:00–12:00 .* maya cancelled “not needed”",
        text,
    ), text


def test_the_inbox_says_what_a_request_blocks(world: Scene) -> None:
    with world.store.write() as db:
        db.get(Channel, world.ids["gpu-b01/g0"]).policy = {"approval": "always"}
    maya, tomas = world.client("maya"), world.client("tomas")
    body = {
        "channel": "gpu-b01/g0",
        "model": "Qwen3-32B-Q4_K_M",
        "starts_at": "2026-11-19T19:00:00+08:00",
        "ends_at": "2026-11-19T20:00:00+08:00",
    }
    assert (
        maya.post("/api/v1/reservations", json={**body, "note": "please"}, headers=token(maya)).get_json()["status"]
        == "pending"
    )
    assert tomas.post("/api/v1/reservations", json=body, headers=token(tomas)).status_code == 409
    noor = world.client("noor")
    page = noor.get("/approvals")
    text = plain(page.text).replace(" – ", "–")
    for words in (
        "maya",
        "19:00–20:00",
        "“please”",
        "tomas wanted 19:00–20:00 and was turned away.",
        "maya that week",
        "lin",
    ):
        assert words in text
    assert '<span class="badge">2</span>' in page.text
    assert world.client("maya").get("/approvals").status_code == 403
    assert 'href="/approvals"' not in world.client("maya").get("/").text


def test_snippets_say_the_same_thing_and_hold_no_key() -> None:
    for snippet in snippets("http://n:1/channels/c/v1", 'it\'s "a" model', "p"):
        assert "SLOTSERVE_API_KEY" in snippet.text
        assert "http://n:1/channels/c/v1" in snippet.text
    python = next(s.text for s in snippets("http://n:1/v1", "a'b\"c", None) if s.key == "python")
    compile(python, "snippet", "exec")


@pytest.mark.parametrize(
    ("said", "chinese"),
    [
        (say("%(hours)s h at most on this channel", hours="8"), "此通道最长 8 小时"),
        (
            say(
                "Over a limit, which you may pass: %(limit)s.",
                limit=say("%(hours)s h at most on this channel", hours="8"),
            ),
            "超出限制，但你可以越过：此通道最长 8 小时。",
        ),
        (
            Hint("loading_at_start", "About %(seconds)d s at the start go to loading.", {"seconds": 62}),
            "开头约 62 秒用于加载。",
        ),
        (fault("starts_at", say("is in the past")), "开始：已经过去"),
        ("something that somebody typed", "something that somebody typed"),
    ],
)
def test_the_controllers_sentences_are_spoken_in_the_readers_language(
    world: Scene, said: str | Hint, chinese: str
) -> None:
    words = str(said) if isinstance(said, Hint) else said
    with world.app.test_request_context("/", headers={"Cookie": "language=zh_Hans"}):
        assert spoken(words) == chinese
    with world.app.test_request_context("/", headers={"Cookie": "language=en"}):
        assert spoken(words) == words


def test_the_console_gets_its_own_language_from_the_api_and_keys_get_english(world: Scene) -> None:
    body = {
        "channel": "gpu-b01/g0",
        "model": "none",
        "starts_at": "2026-11-20T10:00:00+08:00",
        "ends_at": "2026-11-20T11:00:00+08:00",
    }
    client = world.client("maya", "zh_Hans")
    told = client.post("/api/v1/reservations/check", json=body, headers=token(client)).get_json()
    assert told["problems"][0]["message"] == "此通道无法加载模型 'none'；请查看模型列表"
    assert told["policy"][0]["message"] == "最长 8 小时"
    key = {"Authorization": f"Bearer {world.keys['maya']}", "Accept-Language": "zh"}
    told = world.app.test_client().post("/api/v1/reservations/check", json=body, headers=key).get_json()
    assert told["problems"][0]["message"].startswith("no model")


def test_calendar_feeds_are_made_and_listed_without_their_secret(world: Scene) -> None:
    client = world.client("maya")
    made = client.post("/api/v1/feeds", json={"name": "phone", "channel": None}, headers=token(client)).get_json()
    page = client.get("/bookings/calendar").text
    assert "phone" in plain(page)
    assert "my own bookings" in plain(page)
    assert made["secret"] not in page
    assert made["secret"] not in world.client("lin").get("/bookings/calendar").text


def test_pages_are_packed_for_who_takes_it(world: Scene) -> None:
    import gzip

    client = world.client("maya")
    packed = client.get("/", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert "gpu-a01" in gzip.decompress(packed.data).decode()
    assert "Content-Encoding" not in client.get("/").headers


def test_a_booking_whose_node_is_away_is_moved_by_one_click(world: Scene) -> None:
    booking = ids(world)["lin", at("12:00")]
    with world.store.write() as db:
        row = db.get(Reservation, booking)
        row.problem, row.model, row.preset, row.kind = "no contact with node gpu-a01", None, None, "exclusive"
    page = world.client("lin").get(f"/bookings/{booking}").text
    assert "There is no contact with the node at present" in plain(page)
    offered = re.findall(r"data-api=\"POST /reservations/(\w+)/move\" data-body='(\{.*?\})'", page)
    assert offered, plain(page)
    assert {one for one, _ in offered} == {booking}
    assert "Move to " + re.search(r'"channel": ?"([^"]+)"', html.unescape(offered[0][1]))[1] in plain(page)
    assert "/move" not in world.client("maya").get(f"/bookings/{booking}").text  # who may not move it

"""A channel's history over REST, on both databases."""

from __future__ import annotations

from typing import Any

from controller.store.channel_states import Doing, record
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, NOW, World
from tests.parts import BOTH

DATABASES = BOTH
READY = Doing("ready", "small", None)


def did(w: World, *steps: tuple[int, Doing], channel: str = "a") -> None:
    for minute, doing in steps:
        with w.store.write() as session:
            record(session, {channel: doing}, NOW + minute * MIN)


def brief(answer: Any) -> list[tuple[Any, ...]]:
    minute = {text_of(NOW + m * MIN): m for m in range(-2000, 2000)}
    return [(minute[i["from"]], minute[i["to"]], i["phase"], i["reservation"]) for i in answer["items"]]


def test_what_a_channel_did(w: World) -> None:
    assert w.get("/channels/n1/a/history", who="tom")["items"] == []
    did(w, (0, Doing("off")), (5, Doing("loading", "small")), (6, READY), (7, READY))
    booking = w.book(10 * MIN, 20 * MIN)
    w.now = NOW + 30 * MIN
    answer = w.get("/channels/n1/a/history", who="tom")
    assert (answer["channel"], answer["next"]) == ("n1/a", None)
    assert brief(answer) == [
        (0, 5, "off", None),
        (5, 6, "loading", None),
        (6, 10, "ready", None),
        (10, 20, "ready", booking["id"]),
        (20, 30, "ready", None),
    ]
    first = answer["items"][1]
    assert (first["model"], first["preset"], first["state"], first["fallback"]) == ("small", None, "loading", False)
    window = f"from={text_of(NOW + 7 * MIN)}&to={text_of(NOW + 12 * MIN)}"
    assert brief(w.get(f"/channels/n1/a/history?{window}")) == [
        (7, 10, "ready", None),
        (10, 12, "ready", booking["id"]),
    ]
    assert w.get("/channels/n1/b/history")["items"] == []


def test_page_by_page(w: World) -> None:
    did(w, *((m, Doing("ready", f"m{m}")) for m in range(7)))
    w.now = NOW + HOUR
    whole, found, cursor = brief(w.get("/channels/n1/a/history")), [], ""
    assert len(whole) == 7
    while cursor is not None:
        page = w.get(f"/channels/n1/a/history?limit=3&cursor={cursor}")
        found += brief(page)
        cursor = page["next"]
    assert found == whole


def test_why_it_failed_and_what_it_prepares(w: World) -> None:
    booking = w.book(10 * MIN, 20 * MIN)
    with w.store.write() as session:
        from controller.store.tables import Reservation

        session.get(Reservation, booking["id"]).committed = True
    did(w, (5, Doing("loading", "small")), (6, Doing("retry_wait", reason="out of GPU memory")), (30, Doing("off")))
    w.now = NOW + 40 * MIN
    items = w.get("/channels/n1/a/history")["items"]
    assert [(i["phase"], i["preparing"], i["reservation"], i["reason"], i["state"]) for i in items] == [
        ("loading", booking["id"], None, None, "loading"),
        ("retry_wait", booking["id"], None, "out of GPU memory", "failed"),
        ("retry_wait", None, booking["id"], "out of GPU memory", "failed"),
        ("retry_wait", None, None, "out of GPU memory", "failed"),
        ("off", None, None, None, "idle"),
    ]


def test_bad_windows_and_channels(w: World) -> None:
    assert (
        "to" in w.bad(422, "GET", f"/channels/n1/a/history?from={text_of(NOW)}&to={text_of(NOW)}")["error"]["details"]
    )
    w.bad(422, "GET", "/channels/n1/a/history?cursor=x")
    w.bad(422, "GET", "/channels/n1/a/history?from=2027-01-01T00:00")
    w.bad(404, "GET", "/channels/n1/none/history")
    ahead = f"from={text_of(NOW + HOUR)}&to={text_of(NOW + 2 * HOUR)}"
    assert w.get(f"/channels/n1/a/history?{ahead}")["items"] == []

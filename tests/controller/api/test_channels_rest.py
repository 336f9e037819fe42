"""Channels through REST: what they say, what administrators set, commands, plan and log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import event, select

from controller.channel_view import channel_states
from controller.fleet.live import LiveChannel, LiveFailure
from controller.store import channels
from controller.store.launches import resolve
from controller.store.tables import Channel, Command, NodeModel, Reservation
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, NOW, World
from tests.parts import BOTH

DATABASES = BOTH

FIELDS = {
    "target", "why", "until", "phase", "running", "reservation", "failure", "fallback", "load", "in_flight", "gateway_url",
    "default_model", "default_preset", "preload_lead_seconds", "policy", "node", "name", "id",
}  # fmt: skip


LAUNCH = {"model": "small", "preset": None, "engine": "llama.cpp", "args": [], "env": {}, "load_timeout_seconds": None}


def set_default(w: World, model: str | None = "small", channel: str = "a") -> Any:
    return w.good("PATCH", f"/channels/n1/{channel}", {"default_model": model, "default_preset": None})


def test_a_fresh_channel(w: World) -> None:
    item = w.get("/channels/n1/a", "tom")
    assert item.keys() >= FIELDS
    assert (item["id"], item["target"], item["why"], item["until"]) == ("n1/a", None, "idle", None)
    assert (item["phase"], item["running"], item["failure"], item["load"]) == ("unknown", None, None, None)
    assert (item["preload_lead_seconds"], item["fallback"], item["in_flight"]) == (180, False, 0)
    assert item["gateway_url"] == "http://n1:8710"
    assert item["policy"]["max_hours"] == 8
    assert [c["id"] for c in w.get("/channels")["items"]] == ["n1/a", "n1/b"]
    w.bad(404, "GET", "/channels/n1/nope")
    w.bad(404, "GET", "/channels/nope/a")


def test_target_follows_the_rules(w: World) -> None:
    set_default(w)
    item = w.get("/channels/n1/a")
    assert (item["target"], item["why"]) == ({"model": "small", "preset": None}, "default")
    booked = w.book(HOUR, 2 * HOUR, model="org/big model")
    item = w.get("/channels/n1/a")
    assert item["until"] == text_of(w.now + HOUR - 180_000)
    assert item["next"]["id"] == booked["id"]
    w.now += HOUR - 180_000
    item = w.get("/channels/n1/a")
    assert (item["why"], item["target"]["model"], item["reservation"]) == ("preload", "org/big model", booked["id"])
    assert item["booking"] is None
    w.now += 180_000
    item = w.get("/channels/n1/a", "tom")
    assert (item["why"], item["booking"]["holder"], item["until"]) == ("reserved", "maya", text_of(w.now + HOUR))


def test_what_the_node_says(w: World) -> None:
    failure = LiveFailure(
        "i", "small", None, "out_of_memory", "out of GPU memory: lower -ngl", 2, w.now, w.now, w.now + 9000, "e"
    )
    said = LiveChannel(
        "loading", "i", "small", None, False, failure, 3, load_started_at=w.now - 1500, load_estimated_seconds=17.0
    )
    w.ctx.live.update("n1", channels={"a": said}, gateway_urls=("http://elsewhere:1",))
    item = w.get("/channels/n1/a")
    assert item["phase"] == "loading"
    assert item["running"] == {"model": "small", "preset": None}
    assert item["load"] == {"elapsed_seconds": 1.5, "estimated_seconds": 17.0}
    assert item["failure"]["category"] == "out_of_memory"
    assert item["failure"]["retry_at"] == text_of(w.now + 9000)
    assert (item["failure"]["count"], item["in_flight"], item["gateway_url"]) == (2, 3, "http://elsewhere:1")
    w.ctx.live.update("n1", online=False)
    assert w.get("/channels/n1/a")["phase"] == "unknown"


def test_lead_and_policy(w: World) -> None:
    path = "/channels/n1/a"
    assert w.good("PATCH", path, {"preload_lead_seconds": 0})["preload_lead_seconds"] == 0
    assert w.good("PATCH", path, {"preload_lead_seconds": None})["preload_lead_seconds"] == 180
    assert w.good("PATCH", path, {"policy": {"max_hours": 2}})["policy"]["max_hours"] == 2
    merged = w.good("PATCH", path, {"policy": {"approval": "over", "approval_over_hours": 1}})["policy"]
    assert (merged["max_hours"], merged["approval"]) == (2, "over")
    limited = w.good("PATCH", path, {"policy": {"max_concurrent": 8, "max_concurrent_per_key": 2}})["policy"]
    assert (limited["max_concurrent"], limited["max_concurrent_per_key"]) == (8, 2)
    assert w.good("PATCH", path, {"policy": {"max_concurrent": 0}})["policy"]["max_concurrent"] is None, "no limit"
    assert w.good("PATCH", path, {"policy": None})["policy"]["max_hours"] == 8
    w.bad(403, "PATCH", path, {"preload_lead_seconds": 0}, "ada")
    for body, field in (
        ({"preload_lead_seconds": -1}, "preload_lead_seconds"),
        ({"preload_lead_seconds": "1"}, "preload_lead_seconds"),
        ({"preload_lead_seconds": 1e9}, "preload_lead_seconds"),
        ({"policy": {"colour": 1}}, "policy.colour"),
        ({"policy": {"max_hours": "many"}}, "policy.max_hours"),
        ({"policy": {"max_hours": False}}, "policy.max_hours"),
        ({"policy": {"max_concurrent": -1}}, "policy.max_concurrent"),
        ({"policy": {"max_concurrent": 2.5}}, "policy.max_concurrent"),
        ({"policy": {"max_concurrent_per_key": "2"}}, "policy.max_concurrent_per_key"),
        ({"policy": {"max_concurrent_per_key": False}}, "policy.max_concurrent_per_key"),
        ({"policy": []}, "policy"),
        ({"default_model": "nope"}, "default_model"),
        ({"default_model": "only-b"}, "default_model"),
        ({"default_model": "small", "default_preset": "nope"}, "default_preset"),
        ({"default_preset": "nope"}, "default_preset"),
        ({"name": "x"}, "name"),
    ):
        assert field in w.bad(422, "PATCH", path, body)["error"]["details"], body


def test_override(w: World) -> None:
    set_default(w)
    path = "/channels/n1/a/override"
    item = w.good("PUT", path, {"model": "org/big model", "preset": None, "until": text_of(w.now + HOUR)})
    assert (item["why"], item["target"]["model"], item["until"]) == ("override", "org/big model", text_of(w.now + HOUR))
    assert (item["override"]["by"], item["hints"]) == ("root", [])
    item = w.good("PUT", path, {"unload": True})
    assert (item["why"], item["target"], item["override"]["unload"]) == ("override", None, True)
    assert w.good("DELETE", path)["why"] == "default"
    w.good("PUT", path, {"unload": True, "until": text_of(w.now + MIN)})
    w.now += MIN
    assert (w.get("/channels/n1/a")["why"], w.get("/channels/n1/a")["override"]) == ("default", None)
    w.good("PUT", path, {"unload": True})
    w.now += 1
    w.book(0, HOUR)
    assert w.get("/channels/n1/a")["override"] is None  # spent by what has begun, for ever
    assert w.good("PUT", path, {"unload": True, "until": None})["hints"][0]["code"] == "override_after_booking"
    w.bad(403, "PUT", path, {"unload": True}, "ada")
    w.bad(403, "DELETE", path, who="maya")
    w.bad(404, "PUT", "/channels/n1/zz/override", {"unload": True})
    for body, field in (
        ({}, "model"),
        ({"unload": False}, "model"),
        ({"unload": True, "model": "small"}, "model"),
        ({"model": "nope"}, "model"),
        ({"model": "small", "preset": "nope"}, "preset"),
        ({"unload": True, "preset": "p"}, "preset"),
        ({"unload": True, "until": text_of(w.now)}, "until"),
        ({"unload": True, "until": "2027-01-15T10:00:00"}, "until"),
        ({"unload": "yes"}, "unload"),
    ):
        assert field in w.bad(422, "PUT", path, body)["error"]["details"], body


def test_reload_and_retry_are_commands_for_the_node(w: World) -> None:
    w.bad(403, "POST", "/channels/n1/a/reload", {}, "maya")
    booked = w.book(0, HOUR)
    with w.store.write() as session:
        session.get(Reservation, booked["id"]).pinned = {**LAUNCH, "identity": "old"}  # type: ignore[union-attr]
    assert w.get("/channels/n1/a")["booking"]["edited_since"] is True
    w.bad(403, "POST", "/channels/n1/a/reload", {}, "noor")
    made = w.good("POST", "/channels/n1/a/reload", {}, "maya")
    assert (made["kind"], made["state"]) == ("reload", "waiting")
    w.good("POST", "/channels/n1/a/retry", {"reason": "mended"}, "maya")
    w.good("POST", "/channels/n1/b/retry")
    with w.store.read() as session:
        rows = list(session.scalars(select(Command).order_by(Command.id)))
        assert [(c.kind, c.channel, c.node_id) for c in rows] == [
            ("reload", "a", "n"),
            ("retry", "a", "n"),
            ("retry", "b", "n"),
        ]
        assert all(c.deadline > w.now for c in rows)
        assert session.get(Reservation, booked["id"]).pinned is None  # type: ignore[union-attr]
    assert w.woken.count("commands") == 3
    assert w.get(f"/channels/n1/a/commands/{made['id']}")["state"] == "waiting"
    w.ctx.live.update("n1", online=False)
    assert "away" in w.bad(409, "POST", "/channels/n1/a/retry")["error"]["message"]


def test_plan(w: World) -> None:
    set_default(w)
    booked = w.book(HOUR, 2 * HOUR, model="org/big model")
    steps = w.get("/channels/n1/a/plan?hours=24", "tom")["steps"]
    assert [s["why"] for s in steps] == ["default", "preload", "reserved", "default"]
    assert steps[1]["target"] == {"model": "org/big model", "preset": None}
    assert steps[1]["fallback"] == {"model": "small", "preset": None}
    assert [s["reservation"] for s in steps] == [None, booked["id"], booked["id"], None]
    assert steps[2]["at"] == text_of(w.now + HOUR)
    assert len(w.get("/channels/n1/a/plan?hours=0.5")["steps"]) == 1
    w.now += HOUR + MIN
    assert w.get("/channels/n1/a/plan")["steps"][0]["at"] == booked["starts_at"]  # since when it holds
    w.now -= HOUR + MIN
    for query in ("hours=0", "hours=50", "hours=x", "hours=nan"):
        w.bad(422, "GET", f"/channels/n1/a/plan?{query}")
    assert len(w.get("/channels/n1/a/plan?limit=1&from=x")["steps"]) == 4  # what nobody knows is passed over


class Logs:
    def __init__(self, *launches: dict[str, Any]) -> None:
        self.kept = launches

    def launches(self, node: str, channel: str) -> list[dict[str, Any]]:
        return list(self.kept) if (node, channel) == ("n1", "a") else []

    def read(self, node: str, channel: str, offset: int, limit: int, launch: str = "current") -> dict[str, Any]:
        return {"file": launch, "offset": offset, "next_offset": offset + 2, "text": "hi", "ended": False}


def launch(name: str, booking: str = "", failed: bool = False) -> dict[str, Any]:
    return {
        "id": name, "launched_at": 1, "model": "small", "preset": None, "reservation_id": booking, "ended": failed,
        "failed": failed, "size": 2,
    }  # fmt: skip


def test_log(w: World) -> None:
    path = "/channels/n1/a/log"
    w.bad(404, "GET", path)
    booked = w.book(0, HOUR, participants=["noor"])
    w.ctx.logs = Logs(launch("l3", booked["id"]), launch("l2"), launch("l1", failed=True))
    for who, status in (("maya", 200), ("noor", 200), ("root", 200), ("tom", 403), ("ada", 403)):
        assert w.call("GET", f"{path}?offset=0&limit=1000000", who=who).status_code == status, who
    said = w.get(f"{path}?offset=4&launch=previous", "tom")
    assert (said["file"], said["offset"], said["next_offset"], said["text"]) == ("l1", 4, 6, "hi")
    assert w.get(f"{path}?launch=l2", "tom")["file"] == "l2"
    assert [one["id"] for one in w.get(f"{path}/launches", "tom")["items"]] == ["l3", "l2", "l1"]
    w.bad(404, "GET", f"{path}?launch=l9")
    for query in ("offset=x", "limit=0", "limit=99999999", "launch=../../etc/passwd", "offset=99999999999999999999"):
        w.bad(422, "GET", f"{path}?{query}")


def test_models(w: World) -> None:
    items = w.get("/models", "tom")["items"]
    assert [m["name"] for m in items] == ["only-b", "org/big model", "small"]
    big = w.get("/models/org/big%20model", "tom")
    assert w.get("/models/org%2Fbig%20model", "tom") == big
    assert big["size_bytes"] == 20_000_000_000
    assert big["nodes"] == ["n1"]
    assert big["exceeds_gpu_memory"] == {"n1/a": False, "n1/b": True}  # a has no GPU: never "exceeds"
    assert big["engines"] == ["llama.cpp"]
    assert big["load_seconds"]["n1/a"] == 55.0
    assert "path" not in big["copies"][0]
    assert "path" in w.get("/models/small")["copies"][0]
    facts = ("architecture", "context_length", "quantisation", "parameters", "projector")
    assert [big[f] for f in facts] == [None] * 5, "not known is null, never 0"
    with w.store.write() as session:
        row = session.get(NodeModel, ("n", "small"))
        row.architecture, row.context_length, row.quantisation, row.parameters = "llama", 8192, "Q4_K_M", 8_000_000_000
        row.projector = "/models/secret place/mmproj-F16.gguf"
    said = w.get("/models/small", "tom")
    assert [said[f] for f in facts] == ["llama", 8192, "Q4_K_M", 8_000_000_000, "mmproj-F16.gguf"]
    made = w.good("POST", "/presets/check", {"model": "small", "engine": "llama.cpp", "args": []}, "tom")["command"]
    assert made[made.index("--mmproj") + 1] == "/models/secret place/mmproj-F16.gguf"
    w.bad(404, "GET", "/models/nope")
    w.bad(400, "GET", "/models/a%00b")
    page = w.get("/models?limit=2")
    assert [m["name"] for m in w.get(f"/models?limit=2&cursor={page['next']}")["items"]] == ["small"]


def test_etag(w: World) -> None:
    first = w.call("GET", "/channels", who="tom")
    tag = first.headers["ETag"]
    assert w.call("GET", "/channels", who="tom", headers={"If-None-Match": tag}).status_code == 304
    w.now += MIN
    assert w.call("GET", "/channels", who="tom", headers={"If-None-Match": tag}).status_code == 304
    set_default(w)
    assert w.call("GET", "/channels", who="tom", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize("count", [1, 12])
def test_statements_do_not_grow_with_the_channels(w: World, count: int) -> None:
    with w.store.write() as session:
        session.add_all(
            Channel(id=f"c{i}", node_id="n", name=f"c{i}", created_at=0, default_model="small", engines=["llama.cpp"])
            for i in range(count)
        )
    statements: list[str] = []
    event.listen(w.store.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    assert w.get("/channels?limit=50")["items"]
    assert len(statements) < 25, len(statements)


def polled(w: World, who: str = "tom", query: str = "") -> tuple[bytes, int]:
    """The list of channels, and how many statements it took."""
    statements: list[str] = []

    def note(*args: Any) -> None:
        statements.extend([args[2]] if args[2] != "BEGIN" else [])

    event.listen(w.store.engine, "before_cursor_execute", note)
    answer = w.call("GET", f"/channels{query}", who=who)
    event.remove(w.store.engine, "before_cursor_execute", note)
    assert answer.status_code == 200
    return answer.get_data(), len(statements)


def test_polling_is_cheap_and_never_stale(w: World) -> None:
    set_default(w)
    w.get("/me", "tom"), w.get("/me", "maya")
    first, many = polled(w)
    again, few = polled(w)
    assert again == first
    assert few <= 2 < many  # who calls, and the revision
    _, few = polled(w, "maya")
    assert few <= 2
    for change in (
        lambda: w.book(2 * HOUR, 3 * HOUR),
        lambda: w.ctx.live.update("n1", channels={"a": LiveChannel("ready", "i", "small")}),
        lambda: w.ctx.live.update("n1", channels={"a": LiveChannel("ready", "i", "small", in_flight=3)}),
    ):
        change()
        newer, _ = polled(w)
        assert newer != first
        first = newer
    assert json.loads(polled(w, "maya")[0])["items"][0]["next"]["mine"] is True
    assert json.loads(first)["items"][0]["next"]["mine"] is False
    for passed, field, value in (
        (2 * HOUR - 180_000 - 1, "why", "default"),
        (1, "why", "preload"),
        (180_000, "why", "reserved"),
        (HOUR, "why", "default"),
    ):
        w.now += passed
        assert json.loads(polled(w)[0])["items"][0][field] == value
        assert polled(w)[0] == polled(w)[0]
    w.good("PATCH", f"/users/{w.ids['tom']}", {"role": "admin"})
    assert json.loads(polled(w)[0])["items"]


def test_the_progress_of_a_load_is_never_older_than_half_a_second(w: World) -> None:
    w.ctx.live.update("n1", channels={"a": LiveChannel("loading", "i", "small", load_started_at=w.now)})
    for _ in range(5):
        w.now += 300
        shown = json.loads(polled(w)[0])["items"][0]["load"]["elapsed_seconds"] * 1000
        assert -500 <= shown - (w.now - NOW) <= 0


def test_a_booking_that_comes_within_a_day_appears(w: World) -> None:
    w.book(25 * HOUR, 26 * HOUR)
    assert json.loads(polled(w)[0])["items"][0]["upcoming"] == []
    w.now += HOUR
    assert json.loads(polled(w)[0])["items"][0]["upcoming"] == []
    w.now += 1
    assert len(json.loads(polled(w)[0])["items"][0]["upcoming"]) == 1


def test_reload_takes_an_edit_and_touches_the_channel(w: World) -> None:
    """Pinned is what the planner keeps a running booking to; without a pin the next look takes the preset as it is."""
    preset = w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp", "args": ["-c", "8"]})
    booked = w.book(0, HOUR, preset="p")
    w.good("PATCH", f"/presets/{preset['id']}", {"args": ["-c", "16"]})
    channel = w.get("/channels/n1/a", "maya")
    assert (channel["target"]["preset"], channel["booking"]["edited_since"]) == ("p", True)
    touched: list[frozenset[str]] = []
    w.store.on_commit(touched.append)
    w.good("POST", "/channels/n1/a/reload", {}, "maya")
    assert frozenset({"a"}) in touched
    with w.store.read() as session:
        assert session.get(Reservation, booked["id"]).pinned is None  # type: ignore[union-attr]
    assert w.get("/channels/n1/a", "maya")["booking"]["edited_since"] is False


def test_an_edit_is_taken_at_once_while_the_target_waits_after_a_failure(w: World) -> None:
    preset = w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp", "args": ["-c", "8"]})
    booked = w.book(0, HOUR, preset="p")
    with w.store.read() as session:
        place = channels.by_full_name(session, "n1/a")
        assert place is not None
        launch = resolve(session, *place, "small", "p")
    assert launch is not None
    with w.store.write() as session:
        session.get(Reservation, booked["id"]).pinned = dict(launch)  # type: ignore[union-attr]
    identity = launch["identity"]
    failure = LiveFailure(identity, "small", "p", "crashed", "it died", 1, w.now, w.now, w.now + 9000, "e")
    w.good("PATCH", f"/presets/{preset['id']}", {"args": ["-c", "16"]})
    for said, taken in (
        (LiveChannel("ready", identity, "small", "p"), False),
        (LiveChannel("loading", identity, "small", "p", failure=failure), False),  # the retry has begun
        (LiveChannel("retry_wait", failure=failure), True),
        (LiveChannel("ready", "default", "small", None, True, failure), True),  # its fallback serves
    ):
        w.ctx.live.update("n1", channels={"a": said})
        with w.store.read() as session:
            state = channel_states(session, w.ctx, w.now, {"n"})["a"]
        assert (state.input.reservations[0].target.identity != identity) is taken, said  # type: ignore[union-attr]
        assert (booked["id"] in state.pins) is taken
        assert w.get("/channels/n1/a")["booking"]["edited_since"] is not taken

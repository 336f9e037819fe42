"""Booking through REST: make, check, conflict, change, extend, end, decide; what is told and to whom."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from controller.store.tables import Channel, Node, NodeModel, Usage
from controller.times import text_of
from tests.controller.api.conftest import DAY, HOUR, MIN, World, make
from tests.parts import BOTH

DATABASES = BOTH


def test_book_and_read_back(w: World) -> None:
    made = w.book(HOUR, 2 * HOUR, note="a talk\nwith lines", participants=["noor", w.ids["tom"], "noor", "maya"])
    assert made["status"] == "approved"
    assert made["running"] is False
    assert made["channel"] == "n1/a"
    assert (made["holder"], made["booked_by"], made["mine"]) == ("maya", "maya", True)
    assert made["participants"] == [w.ids["noor"], w.ids["tom"]]
    assert made["starts_at"] == text_of(w.now + HOUR)
    assert made["load_seconds"] == pytest.approx(1_000_000_000 / 500e6 + 15)
    assert made["ready_at"] == made["starts_at"]
    assert made["exceeds_gpu_memory"] is False
    assert w.get(f"/reservations/{made['id']}", "maya")["note"] == "a talk\nwith lines"
    assert [r["id"] for r in w.get("/reservations", "tom")["items"]] == [made["id"]]


def test_an_idle_booking_is_seen_and_what_it_was_used_for(w: World) -> None:
    made = w.book(0, 2 * HOUR, participants=["noor"])
    path, begun = f"/reservations/{made['id']}", w.now

    def codes() -> list[str]:
        return [h["code"] for h in w.get(path, "maya")["hints"]]

    w.now = begun + 14 * MIN
    assert "not_called" not in codes()
    w.now = begun + 40 * MIN
    assert "not_called" in codes()
    assert "40 minutes ago" in str(w.get(path, "root")["hints"])
    assert w.get(path, "maya")["calls"] == {"requests": 0, "last_at": None}
    assert "calls" not in w.get(path, "tom")
    assert "not_called" not in str(w.get(path, "tom"))
    with w.ctx.store.write() as session:
        node = session.scalars(select(Node.id).where(Node.name == "n1")).one()
        of = {"node_id": node, "model": "small", "key_id": "k", "duration": 1.0, "first_byte": 0.1, "status": 200}
        of |= {"outcome": "ok", "bytes_in": 1, "bytes_out": 1}
        theirs, others = [("maya", "a", 0), ("noor", "a", MIN)], [("tom", "a", 0), ("maya", "b", 0)]
        for number, (who, channel, after) in enumerate([*theirs, *others, ("maya", "a", -1), ("maya", "a", 2 * HOUR)]):
            at = begun + after
            session.add(Usage(id=f"u{number}", user_id=w.ids[who], channel=channel, at=at, **of))
    assert w.get(path, "maya")["calls"] == {"requests": 2, "last_at": text_of(begun + MIN)}
    assert "not_called" not in codes()
    w.now = begun + 3 * HOUR
    assert w.get(path, "maya")["calls"]["requests"] == 2, "also when it is over"
    assert "calls" not in w.get(f"/reservations/{w.book(DAY, DAY + HOUR)['id']}", "maya"), "it has not begun"


def test_note_and_participants_are_private(w: World) -> None:
    made = w.book(HOUR, 2 * HOUR, note="secret", participants=["noor"])
    path = f"/reservations/{made['id']}"
    for who in ("maya", "noor", "ada", "root"):
        assert w.get(path, who)["note"] == "secret", who
    stranger = w.get(path, "tom")
    assert stranger["note"] is None
    assert stranger["participants"] is None
    assert "secret" not in str(stranger)
    assert stranger["holder"] == "maya"


def test_holder_names_may_be_for_administrators_only(tmp_path: Any) -> None:
    w = make(tmp_path, show_holders="admins")
    made = w.book(0, HOUR)
    path = f"/reservations/{made['id']}"
    assert [w.get(path, who)["holder"] for who in ("root", "maya", "tom", "ada")] == ["maya", "maya", None, None]
    said = w.bad(409, "POST", "/reservations", w.wish(0, HOUR), "tom")
    assert "maya" not in str(said)
    assert w.get("/channels/n1/a", "tom")["booking"]["holder"] is None
    w.bad(403, "GET", "/reservations?holder=maya", who="tom")
    w.store.close()


def test_now_missing_and_a_little_past(w: World) -> None:
    made = w.good(
        "POST", "/reservations", {"channel": "n1/a", "model": "small", "ends_at": text_of(w.now + HOUR)}, "maya"
    )
    assert made["running"] is True
    assert made["starts_at"] == text_of(w.now)
    w.good("POST", f"/reservations/{made['id']}/end", who="maya")
    made = w.book(-59_000, HOUR)
    assert made["starts_at"] == text_of(w.now)
    assert "counts_as_now" in [h["code"] for h in made["hints"]]
    w.good("POST", f"/reservations/{made['id']}/end", who="maya")
    made = w.good("POST", "/reservations", {**w.wish(0, HOUR), "starts_at": "now", "preset": None}, "maya")
    assert made["hints"] == []
    said = w.bad(422, "POST", "/reservations", w.wish(-61_000, HOUR, "n1/b"), "maya")
    assert said["problems"][0]["field"] == "starts_at"


def test_conflict_names_what_is_in_the_way_and_offers_times(w: World) -> None:
    first = w.book(HOUR, 2 * HOUR)
    said = w.bad(409, "POST", "/reservations", w.wish(90 * MIN, 150 * MIN), "noor")
    assert [c["id"] for c in said["conflicts"]] == [first["id"]]
    assert said["conflicts"][0]["holder"] == "maya"
    offered = said["suggestions"]
    assert {"n1/a", "n1/b"} == {s["channel"] for s in offered}
    again = {**w.wish(0, 0), **{k: offered[0][k] for k in ("channel", "starts_at", "ends_at")}}
    assert w.good("POST", "/reservations", again, "noor")["status"] == "approved"
    assert w.get("/reservations?channel=n1/a&status=approved")["items"][0]["id"] == first["id"]


def test_back_to_back_is_fine_and_said(w: World) -> None:
    w.book(HOUR, 2 * HOUR)
    after = w.book(2 * HOUR, 3 * HOUR, "noor")
    assert [h["code"] for h in after["hints"]] == ["no_reload"]
    other = w.good("POST", "/reservations/check", w.wish(3 * HOUR, 4 * HOUR, model="org/big model"), "tom")
    assert [h["code"] for h in other["hints"]] == ["loading_at_start"]
    clear = w.good("POST", "/reservations/check", w.wish(3 * HOUR, 4 * HOUR, kind="exclusive"), "tom")
    assert [h["code"] for h in clear["hints"]] == ["clearing_at_start"]
    assert clear["load_seconds"] == 0


def test_an_incomplete_model_may_be_booked_and_is_told_everywhere(w: World) -> None:
    with w.store.write() as session:
        row = session.get(NodeModel, ("n", "small"))
        row.incomplete, row.detail = True, "part 2 of 3 is missing"
    words = "incomplete on this node (part 2 of 3 is missing): it cannot be loaded before its files are there"
    for made in (w.good("POST", "/reservations/check", w.wish(0, HOUR), "maya"), w.book(HOUR, 2 * HOUR)):
        (hint,) = [h for h in made["hints"] if h["code"] == "incomplete_model"]
        assert words in hint["message"]
    (listed,) = [m for m in w.get("/models", "maya")["items"] if m["name"] == "small"]
    assert (listed["incomplete"], listed["detail"]) == (True, "part 2 of 3 is missing")
    preset = w.good("POST", "/presets", {"model": "small", "name": "p", "engine": "llama.cpp", "args": []}, "maya")
    assert "incomplete on n1 (part 2 of 3" in preset["hints"][0]["message"]
    override = w.good("PUT", "/channels/n1/a/override", {"model": "small"})
    assert "incomplete_model" in [h["code"] for h in override["hints"]]
    found = w.get("/slots?model=small&minutes=60", "maya")["items"]
    assert {(s["incomplete"], "the model is incomplete there (part 2 of 3 is missing)" in s["why"]) for s in found} == {
        (True, True)
    }


def test_windows_where_the_model_is_whole_come_first(w: World) -> None:
    with w.store.write() as session:
        session.add(Node(id="o", name="o1", created_at=w.now, certificate_serial="2"))
        session.flush()
        session.add(Channel(id="oa", node_id="o", name="a", created_at=w.now, engines=["llama.cpp"], gpu_uuids=[]))
        session.add(NodeModel(
            node_id="o", name="only-b", path="/m", size_bytes=1, format="gguf", channels=["a"], seen_at=w.now,
        ))  # fmt: skip
        session.get(NodeModel, ("n", "only-b")).incomplete = True
    w.ctx.live.update("n1", online=True, version="1")
    found = [s["channel"] for s in w.get("/slots?model=only-b&minutes=60", "maya")["items"]]
    assert found[0] == "o1/a", "though that node is away at present"
    assert "n1/b" in found


def test_a_load_that_takes_longer_than_it_may_is_told(w: World) -> None:
    wish = w.wish(0, HOUR, model="org/big model")
    assert "load_timeout_short" not in [h["code"] for h in w.good("POST", "/reservations/check", wish, "maya")["hints"]]
    with w.store.write() as session:  # 20 GB at 20 MB/s: 1,015 s
        session.get(Node, "n").own_settings = {"disk_read_mbps": 20.0}
    hints = {h["code"]: h["message"] for h in w.good("POST", "/reservations/check", wish, "maya")["hints"]}
    assert "take about 1015 s to load, but is given up after 600 s" in hints["load_timeout_short"]
    body = {"model": "org/big model", "name": "p", "engine": "llama.cpp", "args": []}
    made = w.good("POST", "/presets", body, "maya")
    assert [h["code"] for h in made["hints"]] == ["load_timeout_short"]
    assert "On n1 it will take about 1015 s" in made["hints"][0]["message"]
    mended = w.good("PATCH", f"/presets/{made['id']}", {"load_timeout_seconds": 1500}, "maya")
    assert mended["hints"] == []
    wish = w.wish(0, HOUR, model="org/big model", preset="p")
    assert "load_timeout_short" not in [h["code"] for h in w.good("POST", "/reservations/check", wish, "maya")["hints"]]
    with w.store.write() as session:
        session.get(Node, "n").own_settings = {"disk_read_mbps": 20.0, "load_timeout_seconds": 2000.0}
    said = w.good("PATCH", f"/presets/{made['id']}", {"load_timeout_seconds": None}, "maya")
    assert said["hints"] == [], "the node's own limit counts"


def test_check_writes_nothing_and_says_everything(w: World) -> None:
    revision = w.store.revision()
    w.get("/me", "maya")  # the first use of a key is noted
    before = w.store.revision()
    said = w.good("POST", "/reservations/check", w.wish(0, HOUR, "n1/b", model="org/big model"), "maya")
    assert said["problems"] == []
    assert said["exceeds_gpu_memory"] is True
    assert said["load_seconds"] == 20_000_000_000 / 500e6 + 15
    assert said["ready_at"] == text_of(w.now + 55_000)
    assert "exceeds_gpu_memory" in [h["code"] for h in said["hints"]]
    assert w.store.revision() == before > revision
    assert (
        w.good("POST", "/reservations/check", w.wish(0, HOUR, model="org/big model"), "maya")["exceeds_gpu_memory"]
        is False
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "nonsense"}, "model"),
        ({"model": "only-b"}, "model"),  # lies on the node, but not in this channel's folders
        ({"model": None}, "model"),
        ({"preset": "nonsense"}, "preset"),
        ({"channel": "n1/nonsense"}, "channel"),
        ({"channel": "nonsense"}, "channel"),
        ({"channel": ""}, "channel"),
        ({"kind": "sideways"}, "kind"),
        ({"kind": "exclusive"}, "model"),
        ({"starts_at": "2027-01-15T10:00:00"}, "starts_at"),
        ({"ends_at": "2027-01-15T10:00:00"}, "ends_at"),
        ({"ends_at": "0500-01-15T10:00:00Z"}, "ends_at"),
        ({"starts_at": "0500-01-15T10:00:00Z"}, "starts_at"),
        ({"starts_at": "9999-12-31T23:59:59-14:00"}, "starts_at"),
        ({"starts_at": "2027-02-30T10:00:00Z"}, "starts_at"),
        ({"starts_at": "2027-01-15T24:00:01Z"}, "starts_at"),
        ({"starts_at": "yesterday"}, "starts_at"),
        ({"starts_at": 1800000000}, "starts_at"),
        ({"starts_at": True}, "starts_at"),
        ({"ends_at": None}, "ends_at"),
        ({"ends_at": "now"}, "ends_at"),
        ({"ends_at": text_of(1_800_000_000_000 + HOUR)}, "ends_at"),  # zero length
        ({"ends_at": text_of(1_800_000_000_000 + 1000)}, "ends_at"),  # reversed
        ({"ends_at": text_of(1_800_000_000_000 + 10 * HOUR)}, "ends_at"),  # over 8 h
        ({"starts_at": text_of(1_800_000_000_000 + 31 * DAY), "ends_at": text_of(1_800_000_000_000 + 31 * DAY + HOUR)}, "starts_at"),
        ({"note": "x" * 10_000}, "note"),
        ({"note": "a\x00b"}, "note"),
        ({"note": "\ud800"}, "note"),
        ({"note": 3}, "note"),
        ({"participants": ["nobody"]}, "participants.0"),
        ({"participants": "maya"}, "participants"),
        ({"participants": [3]}, "participants.0"),
        ({"participants": ["x" * 300]}, "participants.0"),
        ({"holder": "nobody"}, "holder"),
        ({"model": "x" * 600}, "model"),
        ({"model": ["small"]}, "model"),
        ({"colour": "red"}, "colour"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(w: World, change: dict[str, Any], field: str) -> None:
    body = {**w.wish(HOUR, 2 * HOUR), **change}
    said = w.bad(422, "POST", "/reservations", body, "maya")
    assert field in [p["field"] for p in said["problems"]]
    assert field in said["error"]["message"] or field in said["error"]["details"]
    assert w.get("/reservations")["items"] == []
    checked = w.call("POST", "/reservations/check", body, "maya")
    assert checked.status_code in (200, 422)
    assert checked.status_code == 422 or field in [p["field"] for p in checked.get_json()["problems"]]


@pytest.mark.parametrize(
    ("raw", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"note": NaN}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"version": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b"channel=n1/a", "application/x-www-form-urlencoded", 415),
        (b"x" * (1 << 21), "application/json", 413),
        (b"", "application/json", 422),
    ],
)
def test_bodies_that_are_none(w: World, raw: bytes, kind: str, status: int) -> None:
    w.bad(status, "POST", "/reservations", data=raw, headers={"Content-Type": kind})


def test_list_filters_and_pages(w: World) -> None:
    made = [w.book(i * HOUR, (i + 1) * HOUR, "maya" if i % 2 else "noor", "n1/a")["id"] for i in range(5)]
    other = w.book(0, HOUR, "tom", "n1/b")["id"]
    assert {r["id"] for r in w.get("/reservations")["items"]} == {*made, other}
    assert [r["id"] for r in w.get("/reservations?channel=n1/a&holder=me", "maya")["items"]] == [made[1], made[3]]
    assert [r["id"] for r in w.get(f"/reservations?holder={w.ids['tom']}")["items"]] == [other]
    window = f"from={text_of(w.now + HOUR)}&to={text_of(w.now + 3 * HOUR)}"
    assert [r["id"] for r in w.get(f"/reservations?{window}")["items"]] == made[1:3]
    assert {r["id"] for r in w.get("/reservations?status=running")["items"]} == {made[0], other}
    seen, cursor = [], ""
    while True:
        page = w.get(f"/reservations?limit=2{cursor}")
        assert len(page["items"]) <= 2
        seen += [r["id"] for r in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(seen) == sorted([*made, other])
    plus = "2027-01-15T17:00:00+08:00"  # an unescaped plus sign arrives as a space
    assert [r["id"] for r in w.get(f"/reservations?channel=n1/a&to={plus}")["items"]] == [made[0]]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("cursor=abc", "cursor"), ("cursor=%00", "cursor"),
        ("from=2027-01-15", "from"), ("from=2027-01-15T10:00:00", "from"), ("channel=nope", "channel"), ("status=odd", "status"),
        ("holder=nobody", "holder"), ("from=2027-01-16T00:00:00Z&to=2027-01-15T00:00:00Z", "to"), ("to=2027-13-01T00:00:00Z", "to"),
    ],
)  # fmt: skip
def test_bad_queries_name_the_field(w: World, query: str, field: str) -> None:
    assert field in w.bad(422, "GET", f"/reservations?{query}")["error"]["details"]


def test_gone_and_cordoned(w: World) -> None:
    w.good("PATCH", "/nodes/n1", {"cordoned": True})
    assert "channel" in [p["field"] for p in w.bad(422, "POST", "/reservations", w.wish(0, HOUR), "maya")["problems"]]


def test_slots(w: World) -> None:
    w.book(0, 2 * HOUR)
    found = w.get("/slots?model=small&minutes=60", "maya")["items"]
    assert [f["channel"] for f in found[:2]] == ["n1/b", "n1/a"]
    assert found[0]["starts_at"] == text_of(w.now)
    assert found[1]["starts_at"] == text_of(w.now + 2 * HOUR)
    assert found[1]["reload"] is False  # the booking before it has the same model
    assert found[1]["why"].startswith("no reload")
    assert w.get("/slots?kind=exclusive&minutes=30&channel=n1/b")["items"][0]["load_seconds"] == 0
    for query in ("model=nope", "minutes=0", "minutes=nan", "kind=model", "kind=exclusive&model=small",
                  "model=small&preset=x", "after=2027-01-15T10:00:00", "channel=x&model=small"):  # fmt: skip
        w.bad(422, "GET", f"/slots?{query}")


def test_check_has_one_shape_and_tells_what_an_administrator_passes(w: World) -> None:
    good = w.good("POST", "/reservations/check", w.wish(0, HOUR), "maya")
    for change in ({"channel": "n1/zzz"}, {"holder": "nobody"}, {"holder": "noor"}, {"model": "zzz"}):
        said = w.good("POST", "/reservations/check", {**w.wish(0, HOUR), **change}, "maya")
        assert said.keys() == good.keys()
        assert (said["status"], len(said["problems"])) == ("refused", 1)
    said = w.good("POST", "/reservations/check", w.wish(0, 9 * HOUR))
    assert (said["status"], said["problems"]) == ("approved", [])
    assert said["hints"][0]["code"] == "too_long"

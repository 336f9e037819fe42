"""Usage in sums over REST: hours by what channels did, requests by person, model and channel; as JSON and CSV."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from controller.csv_text import csv_text
from controller.store.channel_states import Doing, record
from controller.store.tables import Usage, User
from controller.times import parse, text_of
from controller.usage_days import day_starts
from tests.booking_world import Statements
from tests.controller.api.conftest import DAY, HOUR, MIN, NOW, World
from tests.parts import BOTH

DATABASES = BOTH
HOUR_STATES = ("reserved", "loading", "served", "failed", "idle", "unknown", "fallback")


def served(w: World, who: str, channel: str = "a", count: int = 1, at: int = NOW, **more: Any) -> None:
    with w.store.write() as session:
        for n in range(count):
            values = {
                "model": "small", "duration": 2.0, "first_byte": 0.5, "status": 200, "bytes_in": 10, "bytes_out": 20,
                "prompt_tokens": 3, "completion_tokens": 4, **more,
            }  # fmt: skip
            session.add(
                Usage(
                    id=f"{who}{channel}{at}{n}{values['model']}{values['status']}", node_id="n", channel=channel, key_id="k",
                    user_id=w.ids[who], at=at, outcome="ok", **values,
                )
            )  # fmt: skip


def did(w: World, *steps: tuple[float, Doing], channel: str = "a") -> None:
    for hour, doing in steps:
        with w.store.write() as session:
            record(session, {channel: doing}, NOW + round(hour * HOUR))


def hours(row: dict[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in HOUR_STATES if row[name]}


def test_hours_by_what_channels_did(w: World) -> None:
    did(w, (0, Doing("off")), (1, Doing("loading", "small")), (2, Doing("ready", "small")), (6, Doing("retry_wait")),
        (7, Doing("ready", "other", fallback=True)), (8, Doing("unknown")))  # fmt: skip
    booking = w.book(4 * HOUR, 9 * HOUR)
    w.now = NOW + 10 * HOUR
    w.good(
        "POST", f"/reservations/{w.book(10 * HOUR, 12 * HOUR)['id']}/cancel", {}, "maya"
    )  # never began: not reserved
    answer = w.get(f"/usage/summary?from={text_of(NOW)}&to={text_of(NOW + DAY)}")
    assert [(h["channel"], h["day"]) for h in answer["hours"]] == [("n1/a", "2027-01-15")]
    expected = {"reserved": 5, "loading": 1, "served": 5, "failed": 1, "idle": 1, "unknown": 2, "fallback": 1}
    assert hours(answer["hours"][0]) == hours(answer["channels"][0]) == hours(answer["totals"]) == expected
    assert [(p["user"], p["reserved"]) for p in answer["people"]] == [("maya", 5)]
    assert booking["id"]


def test_hours_fall_on_the_days_of_the_zone(w: World) -> None:
    did(w, (0, Doing("ready", "small")))  # 2027-01-15T08:00Z
    w.now = NOW + 30 * HOUR
    span = f"from={text_of(NOW)}&to={text_of(w.now)}"
    for zone, expected in (
        ("UTC", {"2027-01-15": 16, "2027-01-16": 14}),
        ("Asia/Shanghai", {"2027-01-15": 8, "2027-01-16": 22}),
        ("America/New_York", {"2027-01-15": 21, "2027-01-16": 9}),
    ):
        answer = w.get(f"/usage/summary?{span}&zone={zone}")
        assert {h["day"]: h["served"] for h in answer["hours"]} == expected
    w.bad(422, "GET", "/usage/summary?zone=Mars/Olympus")


def test_days_of_23_and_25_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    for first, lengths in (("2027-03-27", (24, 23, 24)), ("2027-10-30", (24, 25, 24))):
        start = parse(f"{first}T12:00:00Z")
        begins = day_starts(start, start + 4 * DAY, zone)
        assert begins[0][1] == first
        assert tuple((b - a) // HOUR for (a, _), (b, _) in pairwise(begins[:4])) == lengths
        assert begins[0][0] <= start


def test_requests_in_sums(w: World) -> None:
    served(w, "maya", count=3)
    served(w, "maya", status=503, first_byte=0.0, prompt_tokens=None, completion_tokens=None)
    served(w, "noor", "b", count=2, model="only-b", first_byte=1.5)
    served(w, "noor", at=NOW - 40 * DAY)
    w.now = NOW + 1
    answer = w.get("/usage/summary")
    people = {p["user"]: p for p in answer["people"]}
    assert (people["maya"]["requests"], people["maya"]["failed"]) == (4, 1)
    assert (people["maya"]["prompt_tokens"], people["maya"]["first_byte_seconds"]) == (9, 0.5)
    assert people["noor"]["completion_tokens"] == 8
    assert [(m["model"], m["requests"]) for m in answer["models"]] == [("only-b", 2), ("small", 4)]
    assert [(c["channel"], c["requests"], c["failed_requests"]) for c in answer["channels"]] == [
        ("n1/a", 4, 1),
        ("n1/b", 2, 0),
    ]
    totals = answer["totals"]
    assert (totals["requests"], totals["failed_requests"], totals["first_byte_seconds"]) == (6, 1, 0.9)
    assert (totals["bytes_in"], totals["seconds"]) == (60, 12.0)
    assert [c["channel"] for c in w.get("/usage/summary?channel=n1/b")["channels"]] == ["n1/b"]
    w.bad(422, "GET", "/usage/summary?channel=n1/none")


def test_ones_own_for_users_everybodys_for_administrators(w: World) -> None:
    served(w, "maya")
    served(w, "noor")
    did(w, (0, Doing("ready", "small")))
    w.book(HOUR, 2 * HOUR)
    w.book(3 * HOUR, 5 * HOUR, "noor")
    w.now = NOW + 10 * HOUR
    mine = w.get("/usage/summary", "maya")
    assert [(p["user"], p["requests"], p["reserved"]) for p in mine["people"]] == [("maya", 1, 1)]
    assert mine["totals"]["requests"] == 1
    assert "noor" not in str(mine)
    assert mine["totals"]["served"] == 10  # what a channel did is no secret
    theirs = w.get("/usage/summary?user=noor")
    assert (theirs["totals"]["served"], theirs["totals"]["reserved"]) == (2, 2)
    assert w.get("/usage/summary?user=maya", "maya")["totals"]["served"] == 1
    assert {p["user"] for p in w.get("/usage/summary")["people"]} == {"maya", "noor"}
    for path in ("/usage/summary?user=noor", "/usage/summary?user=*", "/usage?user=noor&format=csv"):
        w.bad(403, "GET", path, who="maya")
    w.bad(422, "GET", "/usage/summary?user=nobody")
    w.bad(422, "GET", f"/usage/summary?from={text_of(NOW)}&to={text_of(NOW)}")
    w.bad(422, "GET", "/usage/summary?from=1980-01-01T00:00:00Z")


def test_tables_for_spreadsheets(w: World) -> None:
    with w.store.write() as session:
        session.get(User, w.ids["maya"]).name = '=HYPERLINK(0),"x"\u00e9'
    served(w, "maya", model="+cmd|' /C calc'!A0")
    served(w, "noor")
    w.now = NOW + 1
    answer = w.call("GET", "/usage?user=*&format=csv")
    assert answer.mimetype == "text/csv"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="usage.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 2
    assert {r["user"] for r in rows} == {'\'=HYPERLINK(0),"x"\u00e9', "noor"}
    assert {r["model"] for r in rows} == {"'+cmd|' /C calc'!A0", "small"}
    did(w, (0.1, Doing("ready", "small")))
    w.now = NOW + HOUR
    for table in ("hours", "people", "models", "channels"):
        found = list(csv.DictReader(io.StringIO(w.call("GET", f"/usage/summary?format=csv&table={table}").text)))
        shape = w.get("/usage/summary")[table]
        assert [list(r) for r in found] == [list(s) for s in shape]
        assert len(found) == len(shape) > 0


def test_no_cell_begins_a_formula() -> None:
    cells = ["=1", "+1", "-1", "@x", "\tx", "\rx", "ok", "a=b", None, -5, 1.5, ""]
    read = list(csv.reader(io.StringIO(csv_text([str(i) for i in range(len(cells))], [cells]), newline="")))[1]
    assert read == ["'=1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "ok", "a=b", "", "-5", "1.5", ""]


def test_a_fixed_number_of_statements(w: World) -> None:
    counts = set()
    for size in (1, 20):
        served(w, "maya", count=size, at=NOW + size)
        did(w, *((size * 2 + n / 100, Doing("ready", f"m{n}")) for n in range(size)))
        w.book(size * 10 * MIN, size * 10 * MIN + 5 * MIN)
        w.now = NOW + 100 * HOUR
        w.get("/usage/summary")  # notes the use of the key
        with Statements(w.store) as sent:
            w.get("/usage/summary")
        counts.add(sum(not s.startswith(("BEGIN", "PRAGMA")) for s in sent.texts))
        w.now = NOW
    assert len(counts) == 1

"""Repeated bookings and maintenance through REST: what the preview says is what is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.times import text_of
from tests.booking_world import Statements
from tests.controller.api.conftest import DAY, HOUR, MIN, World
from tests.parts import BOTH

DATABASES = BOTH
DAILY = {"every": "day", "zone": "Europe/Berlin", "count": 3}


def days(w: World, **more):
    """Tomorrow 9:00 for an hour in Berlin, and again."""
    return w.wish(DAY, DAY + HOUR, repeat={**DAILY, **more})


def test_made_as_previewed_and_all_or_nothing(w: World) -> None:
    said = w.good("POST", "/reservations/check", days(w), "maya")
    assert (said["status"], said["problems"]) == ("approved", [])
    assert w.get("/reservations")["items"] == []
    made = w.good("POST", "/reservations", days(w, count=3), "maya")
    rows = made["series"]["made"]
    assert [(r["starts_at"], r["ends_at"]) for r in rows] == [
        (o["starts_at"], o["ends_at"]) for o in said["occurrences"]
    ]
    assert {r["series_id"] for r in rows} == {made["series"]["id"]}
    assert [r["id"] for r in w.get(f"/reservations?series={made['series']['id']}")["items"]] == [r["id"] for r in rows]
    assert w.get(f"/reservations/{rows[1]['id']}")["series"]["rule"]["every"] == "day"
    clash = w.bad(
        409, "POST", "/reservations", w.wish(DAY + 30 * MIN, DAY + 2 * HOUR, repeat={**DAILY, "count": 5}), "noor"
    )
    assert [c["id"] for c in clash["conflicts"]] == [r["id"] for r in rows]
    assert clash["suggestions"]
    assert len(w.get("/reservations")["items"]) == 3, "nothing of it was made"


def test_the_clashing_ones_left_out_said_before(w: World) -> None:
    taken = w.book(2 * DAY, 2 * DAY + HOUR, "noor")
    wish = days(w, on_conflict="skip")
    said = w.good("POST", "/reservations/check", wish, "maya")
    assert [o["status"] for o in said["occurrences"]] == ["approved", "skipped", "approved"]
    assert said["occurrences"][1]["conflicts"] == [taken["id"]]
    assert "skips" in [h["code"] for h in said["hints"]]
    assert said["status"] == "approved"
    made = w.good("POST", "/reservations", wish, "maya")
    assert len(made["series"]["made"]) == 2
    assert [o["starts_at"] for o in made["series"]["skipped"]] == [text_of(w.now + 2 * DAY)]
    assert made["series"]["rule"]["skipped"] == [text_of(w.now + 2 * DAY)]
    w.bad(409, "POST", "/reservations", wish, "tom")  # now all of them clash


def test_rules_hold_for_each_and_together(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"max_hours_held": 2.5, "max_days_ahead": 2}})
    said = w.bad(422, "POST", "/reservations", days(w), "maya")
    assert [p["code"] for p in said["problems"]] == ["too_far_ahead", "too_many_hours_held"]
    assert said["problems"][0]["message"].startswith(text_of(w.now + 3 * DAY))
    w.good("PATCH", "/channels/n1/a", {"policy": {"requests": True}})
    made = w.good("POST", "/reservations", days(w), "maya")
    assert [r["status"] for r in made["series"]["made"]] == ["approved", "approved", "pending"]
    told = w.get("/notifications", "ada")["items"]
    assert [n["kind"] for n in told] == ["requested"]


@pytest.mark.parametrize(
    ("repeat", "field"),
    [
        ({"zone": "Mars/Base"}, "repeat.zone"),
        ({"zone": "../etc/passwd"}, "repeat.zone"),
        ({"zone": ""}, "repeat.zone"),
        ({"count": None}, "repeat.until"),
        ({"until": "2027-02-01"}, "repeat.until"),
        ({"count": None, "until": "2027-01-01"}, "repeat.until"),
        ({"count": None, "until": "2027-02-30"}, "repeat.until"),
        ({"count": None, "until": "2027-02-01T10:00:00"}, "repeat.until"),
        ({"count": 0}, "repeat.count"),
        ({"count": 367}, "repeat.count"),
        ({"every": "month"}, "repeat.every"),
        ({"days": ["someday"]}, "repeat.days.0"),
        ({"on_conflict": "push"}, "repeat.on_conflict"),
        ({"colour": 1}, "repeat.colour"),
    ],
)
def test_rules_that_cannot_be_name_the_field(w: World, repeat, field) -> None:
    said = w.bad(422, "POST", "/reservations", days(w, **repeat), "maya")
    assert field in [p["field"] for p in said["problems"]]
    checked = w.call("POST", "/reservations/check", days(w, **repeat), "maya")
    assert checked.status_code == 422 or field in [p["field"] for p in checked.get_json()["problems"]]


def test_windows_that_would_meet_each_other(w: World) -> None:
    w.good("PATCH", "/channels/n1/a", {"policy": {"max_hours": 0}})
    said = w.bad(422, "POST", "/reservations", w.wish(DAY, 2 * DAY + 1, repeat=DAILY), "maya")
    assert said["problems"][0]["field"] == "repeat.days"


def test_cancelling_one_the_following_or_all(w: World) -> None:
    made = w.good("POST", "/reservations", days(w, count=5), "maya")["series"]["made"]
    w.good("POST", f"/reservations/{made[1]['id']}/cancel", who="maya")
    said = w.good("POST", f"/reservations/{made[3]['id']}/cancel", {"scope": "following"}, "maya")
    assert [r["id"] for r in said["changed"]] == [made[3]["id"], made[4]["id"]]
    w.bad(403, "POST", f"/reservations/{made[0]['id']}/cancel", {"scope": "all", "reason": "x"}, "noor")
    w.bad(422, "POST", f"/reservations/{made[0]['id']}/cancel", {"scope": "all"})  # somebody else's: say why
    w.now += DAY + 30 * MIN
    said = w.good("POST", f"/reservations/{made[4]['id']}/cancel", {"scope": "all", "reason": "moved"})
    assert [r["status"] for r in said["changed"]] == ["ended_early", "cancelled"]
    assert len(w.get("/notifications", "maya")["items"]) == 1, "told once"
    w.bad(422, "POST", f"/reservations/{made[0]['id']}/cancel", {"scope": "all"}, "maya")
    single = w.book(HOUR, 2 * HOUR)
    assert "scope" in str(w.bad(422, "POST", f"/reservations/{single['id']}/cancel", {"scope": "all"}, "maya"))


def test_the_number_of_statements_does_not_grow_with_the_windows(w: World) -> None:
    w.get("/me", "maya")

    def count(windows: int) -> int:
        with Statements(w.store) as sent:
            w.good("POST", "/reservations/check", days(w, count=windows), "maya")
        return sent.count

    assert count(2) == count(25)


def test_maintenance_is_for_administrators_and_a_booking_like_any_other(w: World) -> None:
    mine, running = w.book(2 * HOUR, 3 * HOUR), w.book(0, HOUR, "noor")
    wish = {**w.wish(30 * MIN, 3 * HOUR, kind="exclusive"), "maintenance": True, "note": "new driver"}
    w.bad(403, "POST", "/reservations", wish, "maya")
    assert w.good("POST", "/reservations/check", wish, "ada")["problems"][0]["code"] == "forbidden"
    said = w.good("POST", "/reservations/check", wish)
    assert {c["id"]: c["would_be"] for c in said["conflicts"]} == {mine["id"]: "cancelled", running["id"]: "shortened"}
    w.bad(409, "POST", "/reservations", wish)
    said = w.good("POST", "/reservations/check", {**wish, "clear_conflicts": True})
    assert (said["problems"], said["status"]) == ([], "approved")
    assert "reason" in str(w.bad(422, "POST", "/reservations", {**wish, "clear_conflicts": True}))
    made = w.good("POST", "/reservations", {**wish, "clear_conflicts": True, "reason": "new driver"})
    assert (made["maintenance"], made["kind"], made["holder"], made["status"]) == (
        True,
        "exclusive",
        "root",
        "approved",
    )
    assert w.get(f"/reservations/{mine['id']}")["status"] == "cancelled"
    shorter = w.get(f"/reservations/{running['id']}")
    assert (shorter["status"], shorter["ends_at"], shorter["running"]) == ("approved", made["starts_at"], True)
    assert "new driver" in w.get("/notifications", "maya")["items"][0]["text"]
    assert "new driver" in w.get("/notifications", "noor")["items"][0]["text"]
    assert w.get("/reservations?channel=n1/a&status=approved")["items"][1]["maintenance"] is True
    w.bad(409, "POST", "/reservations", w.wish(HOUR, 2 * HOUR), "maya")
    for change in ({"kind": "model"}, {"holder": "maya"}, {"maintenance": False, "clear_conflicts": True}):
        w.bad(
            422,
            "POST",
            "/reservations",
            {**w.wish(5 * HOUR, 6 * HOUR, kind="exclusive"), "maintenance": True, **change},
        )
    w.good("PATCH", "/nodes/n1", {"cordoned": True})
    later = {k: v for k, v in w.wish(DAY, DAY + 20 * HOUR).items() if k not in ("kind", "model")}
    assert w.good("POST", "/reservations", {**later, "maintenance": True})["maintenance"] is True, (
        "also on a cordoned node"
    )


def test_the_bare_card_tells_its_holder_what_to_use(w: World) -> None:
    from controller.fleet.live import LiveGpu, LiveGpuProcess

    processes = (LiveGpuProcess(4711, "lin", "python", 1 << 30, None), LiveGpuProcess(5, "", "llama-server", 1, "b"))
    gpu = LiveGpu(0, "GPU-1", "A100", 8 << 30, 1 << 30, 50, processes=processes)
    w.ctx.live.update("n1", gpus=(gpu,), gateway_urls=("http://10.1.2.3:8710",))
    made = w.book(0, HOUR, channel="n1/b", kind="exclusive", participants=["noor"])
    assert made["bare_card"] == {
        "node": "n1",
        "host": "10.1.2.3",
        "gpu_uuids": ["GPU-1"],
        "cuda_visible_devices": "CUDA_VISIBLE_DEVICES=GPU-1",
        "message": "No model runs in this time: the card is yours, on the node itself.",
        "processes": [{"pid": 4711, "user": "lin", "command": "python", "memory_bytes": 1 << 30}],
        "in_use": {"processes": 2, "memory_used_bytes": 1 << 30, "memory_total_bytes": 8 << 30},
    }
    w.ctx.live.update("n1", gpus=(replace(gpu, memory_total_bytes=0, memory_used_bytes=0, processes=()),))
    assert w.get(f"/reservations/{made['id']}", "noor")["bare_card"]["in_use"] is None, "unknown is not zero"
    w.ctx.live.update("n1", gpus=(replace(gpu, memory_used_bytes=3 << 20, processes=()),))
    handed_over = w.get(f"/reservations/{made['id']}", "noor")["bare_card"]["in_use"]
    assert (handed_over["processes"], handed_over["memory_used_bytes"]) == (0, 3 << 20)
    assert w.get(f"/reservations/{made['id']}", "noor")["bare_card"]["gpu_uuids"] == ["GPU-1"]
    assert "bare_card" not in w.get(f"/reservations/{made['id']}", "tom"), (
        "whose processes they are is not for everybody"
    )
    assert w.book(0, HOUR, kind="exclusive")["bare_card"]["cuda_visible_devices"] is None


def test_neighbours_on_both_sides(w: World) -> None:
    w.book(0, HOUR)
    w.book(2 * HOUR, 3 * HOUR, "noor", model="org/big model")
    between = w.good("POST", "/reservations/check", w.wish(HOUR, 2 * HOUR), "tom")
    assert [h["code"] for h in between["hints"]] == ["no_reload", "loading_after"]
    assert between["hints"][1]["message"] == "About 55 s at the start of the booking after go to loading."
    bare = w.good("POST", "/reservations/check", w.wish(HOUR, 2 * HOUR, kind="exclusive"), "tom")
    assert [h["code"] for h in bare["hints"]] == ["clearing_at_start", "loading_after"]


def test_people_are_named_by_what_they_are_called(w: World) -> None:
    said = w.bad(422, "POST", "/reservations", w.wish(0, HOUR, participants=["noor", "nobody here"]), "maya")
    assert said["problems"][0]["field"] == "participants.1"
    assert "'nobody here'" in said["problems"][0]["message"]
    w.good("PATCH", f"/users/{w.ids['tom']}", {"disabled": True})
    assert "disabled" in str(w.bad(422, "POST", "/reservations", w.wish(0, HOUR, participants=["tom"]), "maya"))
    made = w.book(0, HOUR, participants=["noor"])
    with Statements(w.store) as few:
        w.good("PATCH", f"/reservations/{made['id']}", {"version": 1, "participants": ["noor", "root"]}, "maya")
    w.good("PATCH", f"/reservations/{made['id']}", {"version": 2, "participants": ["noor"]}, "maya")
    with Statements(w.store) as more:
        names = ["noor", "root", "ada", w.ids["noor"]]
        changed = w.good("PATCH", f"/reservations/{made['id']}", {"version": 3, "participants": names}, "maya")
    assert few.count == more.count
    assert changed["participant_names"] == ["noor", "root", "ada"]

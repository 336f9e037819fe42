"""Booking on the command line: from the look at what is free to the end."""

from __future__ import annotations

import json
import shlex

from sqlalchemy import select

from controller.store.tables import Reservation, User
from tests.console_scene import Scene
from tests.controller.cli.commands import Run


def test_book_picks_a_channel_and_prints_how_to_call_it(run: Run, world: Scene) -> None:
    answer = run("maya", "book", "Qwen3-32B-Q4_K_M", "--for", "30m", "--json")
    assert answer.exit_code == 0, answer.output
    made = json.loads(answer.output)
    assert made["channel"] == "gpu-b01/g0"  # runs it already, and is free; c6 is taken, main and c7 run others
    assert made["running"] is True
    words = shlex.split(made["curl"])
    assert words[:3] == ["curl", "-sS", "http://gpu-b01:8710/channels/g0/v1/chat/completions"]
    assert f"Authorization: Bearer {world.keys['maya']}" in words
    assert json.loads(words[-1])["model"] == "Qwen3-32B-Q4_K_M"
    people = run("maya", "booking", "show", made["id"]).output
    assert "gpu-b01/g0  Qwen3-32B-Q4_K_M  14:28:04–14:58:04 (Asia/Shanghai)  running" in people
    assert "ready    at about" in people
    assert "curl -sS" in people


def test_book_at_a_time_with_a_preset_then_change_extend_and_cancel_it(run: Run) -> None:
    book = [
        "book",
        "Qwen3-32B-Q4_K_M:long-context",
        "--channel",
        "gpu-a01/main",
        "--at",
        "tomorrow 9:00",
        "--until",
        "11:00",
        "--note",
        "batch",
    ]
    made = json.loads(run("tomas", *book, "--participant", "maya", "--json").output)
    assert (made["starts_at"], made["ends_at"]) == ("2026-11-20T01:00:00Z", "2026-11-20T03:00:00Z")
    assert (made["preset"], made["note"]) == ("long-context", "batch")
    assert made["participant_names"] == ["maya"]
    moved = json.loads(run("tomas", "booking", "edit", made["id"], "--at", "tomorrow 10:00", "--json").output)
    assert (moved["starts_at"], moved["ends_at"]) == ("2026-11-20T02:00:00Z", "2026-11-20T04:00:00Z")
    longer = json.loads(run("tomas", "booking", "extend", made["id"], "--by", "30m", "--json").output)
    assert longer["ends_at"] == "2026-11-20T04:30:00Z"
    assert run("maya", "booking", "cancel", made["id"]).exit_code == 1
    gone = run("tomas", "booking", "cancel", made["id"])
    assert gone.output == f"{made['id']} is cancelled.\n"


def test_a_taken_time_is_refused_with_ways_out(run: Run) -> None:
    answer = run("tomas", "book", "Qwen3-32B-Q4_K_M", "--channel", "gpu-a01/c6", "--for", "1h")
    assert answer.exit_code == 1
    assert answer.stdout == ""
    lines = answer.stderr.splitlines()
    assert "  taken  12:00–16:00 by lin (approved)" in lines
    assert [line for line in lines if line.startswith("  free   ")]
    way = next(line for line in lines if line.startswith("         --channel "))
    assert run("tomas", "book", "Qwen3-32B-Q4_K_M", "--for", "1h", *way.split()).exit_code == 0  # works when pasted


def test_check_says_what_is_in_the_way_and_books_nothing(run: Run) -> None:
    args = ("book", "Qwen3-32B-Q4_K_M", "--channel", "gpu-a01/c6", "--for", "1h", "--check")
    answer = run("tomas", *args)
    assert answer.exit_code == 1
    assert "  taken  12:00–16:00 by lin (approved)" in answer.output
    assert "--channel gpu-a01/c6 --at 2026-11-19T10:00:00Z" in answer.output
    assert not any("T" in w and w.endswith("Z") for w in answer.output.split() if "--at" not in w and w[:2] != "20")


def test_no_free_channel_names_each_one(run: Run) -> None:
    answer = run("tomas", "book", "gpt-oss-120b-MXFP4", "--for", "1h")
    assert answer.exit_code == 1
    assert "no channel is free for that at 14:28:04" in answer.stderr
    assert "  free   gpu-a02/tp4-a 17:30–18:30, no reload, no booking after it" in answer.stderr
    assert "         --channel gpu-a02/tp4-a --at 2026-11-19T09:30:00Z" in answer.stderr


def test_check_writes_nothing(run: Run) -> None:
    before = json.loads(run("tomas", "bookings", "--all", "--json").output)
    good = run("tomas", "book", "Qwen3-32B-Q4_K_M", "--check", "--channel", "gpu-b01/g0", "--for", "30m")
    assert (good.exit_code, good.output.startswith("gpu-b01/g0: free")) == (0, True)
    bad = run("tomas", "book", "Qwen3-32B-Q4_K_M", "--check", "--channel", "gpu-a01/c6")
    assert bad.exit_code == 1
    assert json.loads(run("tomas", "bookings", "--all", "--json").output) == before


def test_a_repeated_booking_from_the_check_to_its_end(run: Run) -> None:
    weekly = ["book", "Qwen3-32B-Q4_K_M", "--for", "1h", "--repeat", "weekly", "--times", "2", "--at"]
    weekly.append("2026-11-23 9:00")
    said = run("tomas", *weekly, "--check")
    assert said.exit_code == 0, said.output
    assert said.output.count("09:00–10:00  approved") == 2
    made = json.loads(run("tomas", *weekly, "--json").output)
    assert [r["starts_at"] for r in made["series"]["made"]] == [f"2026-11-{d:02}T01:00:00Z" for d in (23, 30)]
    shown = run("tomas", "booking", "show", made["series"]["made"][1]["id"])
    assert made["series"]["made"][1]["id"] in shown.output
    later = run("tomas", "booking", "cancel", made["series"]["made"][1]["id"], "--following")
    assert later.output.count("is cancelled.") == 1
    assert run("tomas", "booking", "cancel", made["id"], "--series").output.count("is cancelled.") == 1
    until = ["book", "Qwen3-32B-Q4_K_M", "--at", "2026-12-07 9:00", "--repeat", "daily", "--days", "mon,Tuesday"]
    made = json.loads(run("tomas", *until, "--until", "2026-12-14", "--json").output)
    assert [r["starts_at"][8:10] for r in made["series"]["made"]] == ["07", "08", "14"]


def test_who_may_not_book_is_told_by_check(run: Run) -> None:
    run("lin", "channel", "set", "gpu-a02/tp4-a", "--policy", "allowed_roles=admin", "--policy", "max_hours_week=3")
    said = run("tomas", "book", "Qwen3-32B-FP8", "--channel", "gpu-a02/tp4-a", "--at", "2026-12-08 9:00", "--check")
    assert said.exit_code == 1
    assert "only some people may book this channel" in said.output
    assert "3 of 3 h left this week" in said.output


def test_a_booking_whose_node_is_lost_is_moved_by_one_command(world: Scene, run: Run) -> None:
    with world.store.write() as session:
        row = session.scalars(select(Reservation).where(Reservation.status == "approved")).first()
        assert row is not None
        booking = row.id
        row.problem, row.kind, row.model, row.preset = "no contact with node gpu-a01", "exclusive", None, None
        row.starts_at, row.ends_at = world.now + 20 * 86_400_000, world.now + 20 * 86_400_000 + 3_600_000
        name = session.scalar(select(User.name).where(User.id == row.holder_id))
    listed = run(name, "bookings").output
    assert f"{booking}: no contact with node gpu-a01; slotserve booking show {booking}" in " ".join(listed.split())
    shown = run("lin", "booking", "show", booking).output
    line = next(text for text in shown.splitlines() if text.startswith("to move"))
    moved = run("lin", *shlex.split(line.removeprefix("to move").strip())[1:], "--reason", "the node is lost", "--json")
    assert moved.exit_code == 0, moved.output
    assert json.loads(moved.output)["channel"] == line.split()[-1]

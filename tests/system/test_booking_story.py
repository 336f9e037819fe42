"""A day with one channel, on the command line of four people: booked, taken, asked for, approved, extended in vain, ended
early, and read back by a calendar. `pytest -s` prints what they saw."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import httpx
import icalendar
import pytest

from tests.system.cluster import BIN, Cluster

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


class Story:
    """`say("maya", "book", …)` is the command as that person; what it printed is kept."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def say(self, who: str, *args: str, status: int = 0) -> str:
        env = {**self._cluster.env, "SLOTSERVE_URL": self._cluster.url, "SLOTSERVE_API_KEY": self._cluster.keys[who]}
        done = subprocess.run(
            [str(BIN / "slotserve"), *args], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        said = done.stdout + done.stderr
        if "--json" not in args:
            print(f"\n{who}$ slotserve {shlex.join(args)}\n{said.replace(self._cluster.keys[who], 'sk-ss-…')}", end="")
            print(f"[exit status {done.returncode}]" if done.returncode else "")
        assert done.returncode == status, said
        return said


def test_a_day_with_one_channel(sim: Cluster) -> None:
    story = Story(sim)
    say = story.say
    people = {u["name"] for u in sim.get("/users")["items"]}
    if "ada" not in people:
        sim.keys["ada"] = sim.post(
            "/keys", {"name": "story", "user": sim.post("/users", {"name": "ada", "role": "approver"})["id"]}
        )["secret"]
    try:
        _day(sim, say)
    finally:
        sim.request("PATCH", "/channels/n1/main", {"policy": None})


def _day(sim: Cluster, say) -> None:
    say("root", "channel", "set", "n1/main", "--policy", "max_hours=2", "--policy", "requests=true")
    assert "curl -sS" in say("maya", "book", "other", "--channel", "n1/main", "--for", "1h")
    mine = sim.get("/reservations?holder=me", "maya")["items"][-1]

    refused = say("noor", "book", "base", "--channel", "n1/main", "--for", "1h", status=1)
    assert "by maya" in refused
    offered = re.search(r"--channel n1/main --at (\S+)", refused)
    assert offered, refused
    assert offered[1] == mine["ends_at"], "the nearest free time is right after it"
    say("noor", "book", "base", "--channel", "n1/main", "--at", offered[1], "--for", "1h")
    following = sim.get("/reservations?holder=me", "noor")["items"][-1]

    asked = say("tomas", "book", "base", "--channel", "n1/main", "--at", "+3h", "--for", "5h")
    assert "waiting for approval" in asked
    request = sim.get("/reservations?status=pending", "ada")["items"][-1]["id"]
    shown = say("ada", "booking", "show", request)
    assert "beyond   2 h at most on this channel" in shown
    assert "is approved." in say("ada", "booking", "approve", request, "--reason", "the paper is due")
    say("ada", "booking", "approve", request, status=1)

    into = say("maya", "booking", "extend", mine["id"], "--by", "30m", status=1)
    assert "by noor" in into
    sim.until_ready("other")
    assert "is ended early." in say("maya", "booking", "end", mine["id"])
    say("noor", "booking", "edit", following["id"], "--at", "now")
    sim.until_ready("base")
    assert "Your booking" in say("noor", "channel", "show", "n1/main")
    assert json.loads(say("noor", "booking", "show", following["id"], "--json"))["running"] is True

    address = sim.post("/feeds", {"name": "my calendar"}, "noor")["url"]
    path = "/" + address.partition("://")[2].partition("/")[2]
    text = httpx.get(sim.url + path).text
    print(f"\nnoor$ curl …/feed/….ics\n{text}")
    events = icalendar.Calendar.from_ical(text).walk("VEVENT")
    assert [str(e["STATUS"]) for e in events if following["id"] in str(e["UID"])] == ["CONFIRMED"]

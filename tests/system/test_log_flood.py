"""An engine that prints 50 MB/s: plans and people are served as if nothing was, and nothing grows beyond its bounds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from agent.runtime.logs import SEGMENT_BYTES, SEGMENTS
from controller.fleet.logs import CAP, SEGMENT
from tests.parts import ROOT
from tests.system.cluster import Cluster
from tests.system.conftest import sim_model

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]
MB = 1_000_000


def test_a_flood_of_output(tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        sim_model(tmp_path, name, load_seconds=0.2, token_ms=5)
    tap = tmp_path / "flood"
    flooding = [sys.executable, str(ROOT / "tests" / "fakes" / "flooding_engine.py")]
    engines = {"simulated": {"command": flooding, "env": {"FLOOD": str(tap), "PYTHONPATH": str(ROOT)}}}
    channels = {name: {"folder": tmp_path, "engines": ["simulated"]} for name in ("main", "side")}
    with Cluster(engines, channels) as c:
        c.set_default("alpha")
        c.until_ready("alpha", 60)
        agent, before = psutil.Process(c.agent.pid), psutil.Process(c.agent.pid).memory_info().rss
        tap.touch()
        c.until(lambda: printed(c) > 60 * MB, 120, "it floods")
        c.set_default("beta", channel="side")  # a plan to be taken in the middle of it
        c.until_ready("beta", 60, channel="side")
        assert c.chat("maya", "alpha").status_code == 200
        shown = c.channel()
        assert (shown["phase"], shown["failure"], c.node()["online"]) == ("ready", None, True)
        c.until(lambda: printed(c) > 120 * MB, 120, "it goes on")
        grown = (agent.memory_info().rss - before) / MB
        print(f"{printed(c) / MB:.0f} MB printed, the agent has grown by {grown:.0f} MB")
        assert grown < 60
        assert size(c.root / "a" / "channels" / "main") < (SEGMENTS + 1) * SEGMENT_BYTES
        tap.unlink()
        pid = c.engine_pids()
        c.until(lambda: tail(c)["next_offset"] >= printed(c), 120, "the controller has the end of it")
        assert size(c.root / "c" / "logs" / "n1" / "main") < CAP + 2 * SEGMENT
        assert re.match(r"\[slotserve: \d+ bytes of output came before this and are no longer kept\]\n", everything(c))
        page = browser(c).get("/log/n1/main", timeout=30)
        assert page.status_code == 200
        assert len(page.content) < MB
        assert c.engine_pids() == pid


def printed(c: Cluster) -> int:
    """By the newest of the files that the shim writes."""
    found = [(int(p.name.split(".")[1]), p) for p in (c.root / "a" / "channels" / "main").rglob("*.log")]
    if not found:
        return 0
    offset, newest = max(found)
    return offset + newest.stat().st_size


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def tail(c: Cluster) -> dict[str, int]:
    piece: dict[str, int] = c.get("/channels/n1/main/log?offset=-1000")
    return piece


def everything(c: Cluster) -> str:
    """All that the controller keeps of it."""
    headers = {"Authorization": f"Bearer {c.keys['root']}"}
    answer = httpx.get(f"{c.url}/api/v1/channels/n1/main/log/file", headers=headers, timeout=60)
    return answer.text


def browser(c: Cluster) -> httpx.Client:
    """Signed in."""
    client = httpx.Client(base_url=c.url)
    token = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/login", timeout=30).text)
    assert token
    form = {"csrf_token": token[1], "name": "root", "password": "root-password"}
    assert client.post("/login", data=form, timeout=30).status_code == 302
    return client

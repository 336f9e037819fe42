"""The controller is restarted as systemd does it (SIGTERM, and again): whoever was being answered is, agents hear of it, the
engines run, and nobody is alarmed."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.system.cluster import Cluster
from tests.system.conftest import SIMULATED
from tests.system.test_degradation import channel, later

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_planned_restart_is_no_alarm(tmp_path: Path) -> None:
    with Cluster(SIMULATED, channel(tmp_path), {"SLOTSERVE_NOTIFY_NODE_LOST_SECONDS": "5"}) as c:
        c.set_default("alpha")
        c.until_ready("alpha")
        running = c.book("beta", 0, 3600)
        c.until_ready("beta")
        pids = c.engine_pids()
        with ThreadPoolExecutor(2) as beside, closing(database(c)) as other:
            other.execute("BEGIN IMMEDIATE")  # so that the request lasts
            under_way = beside.submit(c.request, "POST", "/reservations", later(), "noor")
            c.until(lambda: waits(c), 20, "the request is under way")
            beside.submit(release, other)
            c.controller.stop()
            answer = under_way.result(20)
        assert (answer.status_code, answer.json()["status"]) == (201, "approved")
        said = c.controller.output.read_text()
        assert "node disconnected node=n1 why='this controller is stopping'" in said
        assert "Traceback" not in said
        c.until(lambda: "WARNING agent.link" in c.agent.output.read_text(), 20, "the agent has noticed")
        assert c.chat("maya", "beta").status_code == 200
        assert c.chat("noor", "beta").status_code == 403
        c.agent.stop()  # a node that takes its time to come back is no news within a minute of the start
        c.start_controller()
        c.until(lambda: figure(c, "slotserve_started_seconds") > 8, 30, "more than an alarm's time has passed")
        assert figure(c, "slotserve_started_seconds") < 60
        told = [n["kind"] for who in ("root", "maya", "noor") for n in c.get("/notifications", who)["items"]]
        assert "node_lost" not in told, told
        c.agent.start()
        c.until(lambda: c.node()["online"], 30, "the agent is back")
        plan = c.until(lambda: (p := c.node()["plan"])["accepted"] and p, 30, "the plan is in force")
        assert plan["refusal"] is None
        assert [r["id"] for r in c.get("/reservations?status=running")["items"]] == [running["id"]]
        assert c.get(f"/reservations/{answer.json()['id']}")["status"] == "approved"
        assert c.engine_pids() == pids


def waits(c: Cluster) -> bool:
    """Whether a thread of the controller waits for SQLite's lock: a read goes on beside it."""
    return figure(c, "slotserve_requests_running") >= 1


def database(c: Cluster) -> sqlite3.Connection:
    return sqlite3.connect(c.root / "c" / "slotserve.db", isolation_level=None, check_same_thread=False)


def release(other: sqlite3.Connection) -> None:
    time.sleep(1)
    other.execute("ROLLBACK")


def figure(c: Cluster, name: str) -> float:
    lines = httpx.get(c.url + "/metrics", timeout=20).text.splitlines()
    return float(next(line for line in lines if line.startswith(name + " ")).split()[1])

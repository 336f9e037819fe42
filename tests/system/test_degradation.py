"""Faults with real processes: what people are told, what goes on meanwhile, and that it comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import postgres
from tests.controller.store.test_liveness import stopped
from tests.parts import free_port
from tests.system.cluster import Cluster
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


def channel(folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    for name in ("alpha", "beta"):
        sim_model(folder, name, load_seconds=0.2, token_ms=5)
    return {"main": {"folder": folder, "engines": ["simulated"]}}


def later() -> dict[str, Any]:
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200))
    begins = time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3660)
    )  # whole seconds: not before a booking of an hour ends
    return {"channel": "n1/main", "kind": "model", "model": "beta", "starts_at": begins, "ends_at": ends}


def test_a_postgresql_that_hangs(postgresql: postgres.PostgreSQL, tmp_path: Path) -> None:
    binaries = postgres.find_postgresql()
    assert binaries is not None
    own = postgres.start(binaries, tmp_path)
    try:
        with own.database() as url:
            settings = {"SLOTSERVE_DATABASE_URL": url, "SLOTSERVE_LEASE_SECONDS": "3"}
            with Cluster(SIMULATED, channel(tmp_path / "m"), settings) as c:
                c.set_default("alpha")
                c.until_ready("alpha")
                made = c.book("beta", 0, 3600)
                c.until_ready("beta")
                pids = c.engine_pids()
                with stopped(own):
                    said = c.until(lambda: refused(c.request("POST", "/reservations", later(), "noor")), 60, "refused")
                    assert said["error"]["message"].startswith("the database does not answer. Nothing was changed.")
                    page = httpx.get(c.url + "/login", timeout=20)
                    assert "Traceback" not in page.text
                    ready = c.until(lambda: not_ready(c), 30, "/readyz says so")
                    print("readyz while the database hangs:", ready["problems"])
                    assert httpx.get(c.url + "/healthz", timeout=5).status_code == 200
                    assert "slotserve_database_up 0.0" in httpx.get(c.url + "/metrics", timeout=20).text
                    assert c.chat("maya", "beta").status_code == 200  # whoever calls notices nothing
                    assert c.chat("noor", "beta").status_code == 403
                c.until(lambda: httpx.get(c.url + "/readyz", timeout=20).status_code == 200, 60, "ready again")
                c.until(lambda: c.node()["online"], 60, "the agent is back")
                assert c.engine_pids() == pids
                assert [r["id"] for r in c.get("/reservations?status=running")["items"]] == [made["id"]]
                c.post(f"/reservations/{made['id']}/end", {}, "maya")
                c.until_ready("alpha")
                assert "Traceback" not in c.controller.output.read_text()
    finally:
        postgres.stop(tmp_path)


def test_a_line_that_swallows_everything(tmp_path: Path) -> None:
    """Half open: nobody closes, nothing arrives. Both ends notice, and the agent dials anew."""
    fleet = free_port()
    line = Line(fleet)
    settings = {"SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{fleet}", "SLOTSERVE_FLEET_ADDRESS": f"127.0.0.1:{line.port}"}
    with line, Cluster(SIMULATED, channel(tmp_path), settings) as c:
        c.set_default("alpha")
        c.until_ready("alpha")
        line.delay = 0.3  # a slow line: nothing is lost
        began = time.monotonic()
        c.set_default("beta")
        c.until_ready("beta", 40)
        print(f"over a line with 300 ms each way: switched in {time.monotonic() - began:.1f} s")
        line.delay, line.swallow = 0.0, True
        c.until(lambda: not c.node()["online"], 60, "the controller notices")
        assert c.chat("maya", "beta").status_code == 200
        c.set_default("alpha")
        line.swallow = False  # new connections pass; the old ones stay dead
        c.until_ready("alpha", 45)  # 15 s after the controller the agent knows, and its newest attempt may be lost too
        assert c.node()["online"]


def test_a_controller_of_yesterday(tmp_path: Path) -> None:
    """The database's file as it was; the agent has followed higher epochs since, and obeys all the same."""
    with Cluster(SIMULATED, channel(tmp_path)) as c:
        c.set_default("alpha")
        c.until_ready("alpha")
        c.controller.stop()
        shutil.copytree(c.root / "c", tmp_path / "yesterday")
        for _ in range(2):  # epochs go on
            c.start_controller()
            c.until(lambda: c.node()["online"], 60, "the agent is back")
            c.set_default("beta")
            c.until_ready("beta")
            c.controller.stop()
        for old in (c.root / "c").glob("slotserve.db*"):
            old.unlink()
        for kept in (tmp_path / "yesterday").glob("slotserve.db*"):
            shutil.copy(kept, c.root / "c")
        c.start_controller()
        c.until_ready("alpha", 60)  # as it was yesterday
        plan = c.until(lambda: (p := c.node()["plan"])["accepted"] and p, 30, "the plan is accepted")
        assert plan["epoch"] > 2
        assert "epoch raised" in c.controller.output.read_text()


def told_of_beta(channel: Any) -> str:
    if channel["failure"]:
        return str(channel["failure"]["reason"])
    there = channel["phase"] == "ready" and channel["running"]["model"] == "beta"
    return "beta runs" if there else ""


def refused(answer: httpx.Response) -> Any:
    assert answer.status_code in (201, 503), answer.text
    if answer.status_code == 503:
        assert answer.headers["Retry-After"]
        return answer.json()
    return None


def not_ready(c: Cluster) -> Any:
    answer = httpx.get(c.url + "/readyz", timeout=20)
    return answer.json() if answer.status_code == 503 else None


class Line:
    """A TCP line to a port of this machine that can be slow, or keep what it is given."""

    def __init__(self, to: int) -> None:
        self._to, self.port = to, free_port()
        self.delay, self.swallow = 0.0, False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._up = threading.Event()

    def __enter__(self) -> Line:
        self._thread.start()
        assert self._up.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._taken, "127.0.0.1", self.port))
        self._up.set()
        self._loop.run_forever()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dead = False
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                dead = dead or self.swallow  # for good: what was lost makes no sense of what follows
                if dead:
                    continue
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        if not dead:
            writer.close()

"""`make bench-fleet`: how long a booking takes to reach the node, a switch to happen, and how big the processes are.

A real controller, agent and gateway with the simulated engine on this machine. Instants are the processes' own log
lines and reports, in the one clock that they share here.
"""

from __future__ import annotations

import datetime
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from agent import control
from tests.bench.report import report
from tests.system.cluster import Cluster, rfc3339, running

ROUNDS = 10
LOAD_SECONDS = 0.3
ENGINE = [sys.executable, "-m", "agent.simulated_engine"]
ACKNOWLEDGED = re.compile(r"^(\S+) \S+ \S+ plan acknowledged .*generation=(\d+)", re.M)
STAMP = "%Y-%m-%dT%H:%M:%S.%f%z"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in ("base", "other"):
            (folder / f"{model}.gguf").write_text(f"simulated\nload-seconds = {LOAD_SECONDS}\n")
        own = statistics.median(own_seconds(folder / "base.gguf") for _ in range(5))
        with running({"simulated": {"command": ENGINE}}, {"main": {"folder": folder, "engines": ["simulated"]}}) as c:
            c.until(lambda: len(c.get("/models")["items"]) == 2, 20, "the models are known")
            c.set_default("base")
            c.until_ready("base")
            time.sleep(3)  # the processes' start is not what is measured
            headers = {"Authorization": f"Bearer {c.keys['maya']}"}
            with httpx.Client(base_url=f"{c.url}/api/v1", headers=headers) as client:
                booked = [booking(c, client, i) for i in range(ROUNDS)]
            switches = [switch(c) for _ in range(ROUNDS)]
            sizes = memory(c)
            if "-v" in sys.argv:
                print(c.controller.tail(400), c.agent.tail(400), sep="\n")
    ended, beyond = [s[0] for s in switches], [s[1] - own for s in switches]
    rows: list[dict[str, Any]] = [
        row("booking sent -> plan acknowledged, median", statistics.median(booked) * 1000, "ms", "< 100"),
        row("booking sent -> plan acknowledged, worst", max(booked) * 1000, "ms", "< 100"),
        row("reservation's end -> old engine gone, median", statistics.median(ended) * 1000, "ms", "< 100"),
        row("reservation's end -> old engine gone, worst", max(ended) * 1000, "ms", "< 100"),
        row("switch beyond the engine's own time, median", statistics.median(beyond) * 1000, "ms", "< 250"),
        row("switch beyond the engine's own time, worst", max(beyond) * 1000, "ms", "< 250"),
        *(row(f"{who} resident", size / 1e6, "MB", f"< {goal}") for who, size, goal in sizes),
    ]
    rows[4]["peer"] = rows[5]["peer"] = f"own start + stop {own * 1000:.0f} ms"
    report(f"fleet ({ROUNDS} rounds, simulated engine, one machine)", rows)


def row(name: str, value: float, unit: str, goal: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal}


def own_seconds(model: Path) -> float:
    """The engine alone: from the start of its program until it answers, and from SIGTERM until it is gone."""
    with tempfile.TemporaryDirectory() as name:
        path = f"{name}/engine.sock"
        args = [*ENGINE, "-m", str(model), "--alias", "x", "--host", path]
        began = time.monotonic()
        with subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
                wait(lambda: client.get("http://engine/health").status_code == 200, 20)
            ready = time.monotonic() - began
            began = time.monotonic()
            process.terminate()
            process.wait(10)
            return ready + time.monotonic() - began


def booking(c: Cluster, client: httpx.Client, number: int) -> float:
    """Seconds from sending a booking for later to the agent's acknowledgement of the plan that has it."""
    known = len(ACKNOWLEDGED.findall(c.controller.output.read_text()))
    client.get("/me")  # the connection is there
    began = time.time()
    start = began + 3600 * (2 + 2 * number)
    body = {"channel": "n1/main", "kind": "model", "model": "other"}
    client.post(
        "/reservations", json={**body, "starts_at": rfc3339(start), "ends_at": rfc3339(start + 3600)}
    ).raise_for_status()
    wait(lambda: len(ACKNOWLEDGED.findall(c.controller.output.read_text())) > known, 10)
    stamp = ACKNOWLEDGED.findall(c.controller.output.read_text())[known][0]
    return datetime.datetime.strptime(stamp, STAMP).timestamp() - began


def switch(c: Cluster) -> tuple[float, float]:
    """Seconds from a reservation's end until its engine was gone, and until the default was ready."""
    length = LOAD_SECONDS + 3.0
    booked = c.book("other", 0, length)
    end = datetime.datetime.fromisoformat(booked["ends_at"]).timestamp()
    c.until_ready("other")
    engine = psutil.Process(c.engine_pids()[0])
    time.sleep(max(0.0, end - 0.05 - time.time()))
    while lives(engine) and time.time() < end + 5:
        time.sleep(0.001)
    gone = time.time()

    def ready() -> Any:
        said = control.ask(c.root / "a" / "run", "status")["channels"][0]
        return said if said["phase"] == "ready" and said["running_model"] == "base" else None

    said = wait(ready, 20, 0.1)  # seldom: looking takes time from what is looked at, and the report has the instant
    time.sleep(1)
    return gone - end, said["phase_since_ms"] / 1000 - end


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # in between
        return False


def memory(c: Cluster) -> list[tuple[str, int, int]]:
    """(process, resident bytes, goal in MB)."""
    shim = psutil.Process(c.engine_pids()[0]).parent()
    sizes = [("agent", c.agent.pid, 100), ("gateway", c.gateway.pid, 60)]
    if shim is not None and shim.pid != 1:
        sizes.append(("shim", shim.pid, 15))
    return [(who, psutil.Process(pid).memory_info().rss, goal) for who, pid, goal in sizes]


def wait(true: Callable[[], Any], seconds: float, pause: float = 0.002) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := true():
                return answer
        except httpx.HTTPError:
            pass  # not there yet
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(pause)


if __name__ == "__main__":
    main()

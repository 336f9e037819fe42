"""Wall clocks that are set while everything runs: the node's, then the controller's, an hour forward and back.

Real processes, each with a clock of its own that the test sets. A node follows the controller's time, so its own clock
changes nothing but what is said of it. The controller's counts; what a clock that was ahead had ended goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.stepped_clock import SteppedClock
from tests.system.cluster import Cluster
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]
HOUR = 3600.0


class Clocks(NamedTuple):
    cluster: Cluster
    controller: SteppedClock
    node: SteppedClock


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocks]:
    folder = tmp_path_factory.mktemp("clocks")
    models = folder / "models"
    models.mkdir()
    for name, seconds in (("alpha", 0.2), ("beta", 0.2), ("slow", 5.0)):
        sim_model(models, name, load_seconds=seconds, token_ms=5)
    clocks = SteppedClock(folder / "c"), SteppedClock(folder / "n")
    cluster = Cluster(SIMULATED, {"main": {"folder": models, "engines": ["simulated"]}})
    cluster.controller.env = cluster.env = {**cluster.env, **clocks[0].env}
    for process in (cluster.agent, cluster.gateway):
        process.env = {**process.env, **clocks[1].env}
    with cluster:
        yield Clocks(cluster, *clocks)


@pytest.fixture
def at(running: Clocks) -> Iterator[Clocks]:
    """Both clocks right, `alpha` serving."""
    yield from _right(running)


def _right(running: Clocks) -> Iterator[Clocks]:
    running.cluster.calm("alpha", models=3)
    try:
        yield running
    finally:
        running.controller.set(0)
        running.node.set(0)


def skew(c: Cluster) -> float:
    return float(c.node()["clock_skew_seconds"] or 0.0)


def doctor(c: Cluster) -> str:
    said = json.loads(c.run_cli("slotserve", "doctor", "--json", ok=False))
    return next(i["problem"] for i in said["items"] if i["check"] == "node n1")


def node_says(c: Cluster) -> str:
    return c.run_cli("slotserve-agent", "status")


def starts(c: Cluster, model: str) -> int:
    return sum("action=Start" in line and model in line for line in c.agent.output.read_text().splitlines())


def test_the_nodes_clock_is_shown_and_changes_nothing(at: Clocks) -> None:
    c = at.cluster
    made = c.book("beta", 0, HOUR / 2)
    c.until_ready("beta")
    pids, begun = c.engine_pids(), starts(c, "beta")
    for off, way in ((HOUR, "fast"), (-HOUR, "slow")):
        at.node.set(off)
        c.until(lambda off=off: abs(skew(c) - off) < 60, 30, f"the controller sees {off:+.0f} s")
        assert c.node()["clock_skew_limit_seconds"] == 30.0
        assert f"{way}, more than 30 s" in " ".join(doctor(c).split())
        assert ", over 30 s" in c.run_cli("slotserve", "nodes")
        said = node_says(c)
        assert f"{abs(off):.0f} s {way}, more than 30 s" in said or f"s {way}, more than 30 s" in said
        assert any("clocks differ by more than 30 s" in w for w in httpx.get(c.url + "/readyz").json()["warnings"])
        assert c.chat("maya", "beta").status_code == 200
        assert c.chat("noor", "beta").status_code == 403
        assert (c.engine_pids(), starts(c, "beta")) == (pids, begun)
    assert "this machine's clock is wrong" in c.agent.output.read_text()
    c.post(f"/reservations/{made['id']}/end", {}, "maya")
    c.until_ready("alpha")
    c.book("beta", 4, HOUR)  # begins by the controller's time
    c.until_ready("beta", 30)
    c.until(lambda: c.chat("noor", "beta").status_code == 403, 30, "the booking has begun")
    at.node.set(0)
    c.until(lambda: abs(skew(c)) < 2, 30, "it is right again")
    c.until(lambda: "clock is right again" in c.agent.output.read_text(), 30, "the node says so")
    assert "more than 30 s" not in node_says(c)


def test_the_controllers_clock_is_followed_and_nothing_is_lost(at: Clocks) -> None:
    c = at.cluster
    made = c.book("beta", 0, HOUR / 2)
    c.until_ready("beta")
    at.controller.set(HOUR)  # the booking is over by the new time
    c.until(lambda: booking(c, made)["status"] == "finished", 30, "it is finished")
    c.until_ready("alpha", 30)
    ready = httpx.get(c.url + "/readyz").json()
    assert any("clock was set 3600 s forward" in w for w in ready["warnings"]), ready
    at.controller.set(0)
    c.until(lambda: booking(c, made)["running"], 30, "it goes on")
    c.until_ready("beta", 30)
    c.until(lambda: c.chat("noor", "beta").status_code == 403, 30, "for its holder alone")
    assert booking(c, made)["ends_at"] == made["ends_at"]
    plan = c.node()["plan"]
    assert (plan["accepted"], plan["refusal"]) == (True, None)


def test_a_load_goes_on_while_the_controllers_clock_is_set(at: Clocks) -> None:
    """Ten times the load time-out forward, and back again: the engine that loads is neither given up nor forgotten."""
    c = at.cluster
    before = starts(c, "slow")
    c.request("PUT", "/channels/n1/main/override", {"model": "slow", "until": None})
    c.until(lambda: c.channel()["phase"] == "loading", 20, "it loads")
    at.controller.set(HOUR)
    c.until(lambda: abs(skew(c) + HOUR) < 60, 30, "the node has the new time")
    shown = c.channel()
    assert (shown["failure"], shown["running"]["model"]) == (None, "slow")
    at.controller.set(0)
    c.until(lambda: abs(skew(c)) < 60, 30, "and the old one again")
    shown = c.until_ready("slow", 30)
    assert (shown["failure"], starts(c, "slow")) == (None, before + 1)
    pids = c.engine_pids()
    made = c.book("slow", 0, 3 * HOUR)  # long enough to be there at either time
    c.until(lambda: booking(c, made)["running"], 20, "it runs")
    at.controller.set(HOUR)
    c.until(lambda: abs(skew(c) + HOUR) < 60, 30, "the node has the new time")
    assert c.chat("maya", "slow").status_code == 200
    assert (booking(c, made)["status"], c.engine_pids()) == ("approved", pids)


def booking(c: Cluster, made: Any) -> Any:
    return c.get(f"/reservations/{made['id']}")

"""What people are told by a whole SlotServe: ready, failed with the fallback, recovered, free again, node lost and back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster, rfc3339, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.slow]
SOON = {"SLOTSERVE_NOTIFY_NODE_LOST_SECONDS": "5"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("models")
    sim_model(folder, "base", load_seconds=0.2)
    sim_model(folder, "other", load_seconds=0.2)
    with running(SIMULATED, {"main": {"folder": folder, "engines": ["simulated"]}}, SOON) as c:
        c.folder = folder  # type: ignore[attr-defined]
        yield c


@pytest.fixture
def c(cluster: Cluster) -> Cluster:
    cluster.calm("base", models=2)
    return cluster


def told(c: Cluster, kind: str, who: str = "maya") -> list[Any]:
    return list(c.get(f"/notifications?limit=1000&kind={kind}", who=who)["items"])


def test_ready_once_and_a_slot_that_gets_free(c: Cluster) -> None:
    booking = c.book("other", 0, 600)
    (notice,) = c.until(lambda: told(c, "ready"), 60, "maya is told that it is ready")
    assert notice["reservation_id"] == booking["id"]
    assert notice["facts"]["base_url"] == f"{c.gateway_url}/channels/main/v1"
    body = {"model": "base", "minutes": 5, "channel": "n1/main", "not_after": rfc3339(_ends(booking) - 60)}
    c.post("/watches", body, who="noor")
    assert told(c, "slot_free", "noor") == []
    c.post(f"/reservations/{booking['id']}/end", who="maya")
    (free,) = c.until(lambda: told(c, "slot_free", "noor"), 60, "noor is told that it is free")
    assert free["title"].startswith("Free: base on n1/main, ")
    assert len(told(c, "ready")) == 1


def test_failed_with_the_fallback_then_recovered(c: Cluster) -> None:
    folder: Path = c.folder  # type: ignore[attr-defined]
    sim_model(folder, "broken", crash_at_load=1)
    c.until(lambda: len(c.get("/models")["items"]) == 3, 30, "the new file is noticed")
    booking = c.book("broken", 0, 600)
    (failed,) = c.until(lambda: told(c, "failed"), 60, "maya is told that it fails")
    assert failed["title"] == "Failed: broken on n1/main"
    assert "Meanwhile the channel's default, base, answers in its place" in failed["text"]
    assert [n["title"] for n in told(c, "failed", "root")] == [failed["title"]]
    sim_model(folder, "broken", load_seconds=0.1)
    c.request("POST", "/channels/n1/main/retry", {}, "maya")
    c.until(lambda: told(c, "recovered"), 60, "maya is told that it runs again")
    assert len(told(c, "failed")) == 1
    c.post(f"/reservations/{booking['id']}/end", who="maya")
    (folder / "broken.gguf").unlink()


def test_a_node_that_is_lost_and_comes_back(c: Cluster) -> None:
    booking = c.book("base", 0, 600)
    c.agent.stop(signal.SIGKILL)
    (lost,) = c.until(lambda: told(c, "node_lost"), 60, "maya is told")
    assert lost["title"] == "No contact with node n1, where your booking runs"
    assert "No other channel that has the model is free at that time." in lost["text"]
    assert [n["title"] for n in told(c, "node_lost", "root")] == ["No contact with node n1"]
    c.agent.start()
    (back,) = c.until(lambda: told(c, "node_back"), 60, "maya is told that it is back")
    assert back["reservation_id"] == booking["id"]
    assert len(told(c, "node_back", "root")) == 1
    assert told(c, "node_lost", "noor") == []


def _ends(booking: Any) -> float:
    from controller.times import parse

    return parse(booking["ends_at"]) / 1000

"""The figures for Prometheus and what /readyz warns of; also while the database is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.context import Counted
from controller.fleet.figures import Figures, Histogram
from controller.store import session as ways
from tests.controller.api.conftest import World, make
from tests.controller.api.test_database_away import away
from tests.parts import BOTH

DATABASES = BOTH


def scraped(w: World) -> dict[str, float]:
    text = w.client.get("/metrics").get_data(as_text=True)
    return {
        name: float(value)
        for line in text.splitlines()
        if not line.startswith("#")
        for name, value in [line.rsplit(" ", 1)]
    }


def test_what_the_fleet_counts(w: World) -> None:
    streams, late = Figures(), Histogram((0.1, 1.0))
    streams.connects, streams.pushes, streams.terms = 3, 5, 1
    streams.outcomes.update(accepted=4, refused=1)
    streams.disconnects["by_us"] += 2
    for seconds in (0.01, 0.3, 7.0):
        streams.acknowledged.note(seconds)
        late.note(seconds)
    w.ctx.fleet_figures = lambda: Counted(7, 9, late, streams)
    w.ctx.plan_looked_at = lambda: w.now - 1500
    w.ctx.live.update("n1", clock_skew_seconds=-1.5, refusal="the disk is full")
    found = scraped(w)
    assert found["slotserve_planner_last_look_seconds"] == 1.5
    assert found["slotserve_planner_looks_total"] == 7
    assert found["slotserve_planner_changes_total"] == 9
    assert found["slotserve_link_connects_total"] == 3
    assert found['slotserve_link_disconnects_total{cause="by_us"}'] == 2
    assert found["slotserve_plan_pushes_total"] == 5
    assert found['slotserve_plan_answers_total{outcome="refused"}'] == 1
    assert found["slotserve_leader_terms_total"] == 1
    assert found["slotserve_plan_acknowledged_seconds_count"] == 3
    assert found['slotserve_plan_acknowledged_seconds_bucket{le="0.5"}'] == 2
    assert found['slotserve_planner_lateness_seconds_bucket{le="0.1"}'] == 1
    assert found['slotserve_planner_lateness_seconds_bucket{le="+Inf"}'] == 3
    assert found["slotserve_links"] == 1
    assert found['slotserve_node_clock_skew_seconds{node="n1"}'] == -1.5
    assert found['slotserve_node_plan_refused{node="n1"}'] == 1
    assert found["slotserve_database_up"] == 1
    assert found["slotserve_started_seconds"] >= 0


def test_answers_and_refusals(w: World) -> None:
    w.book(1000, 60_000)
    w.bad(409, "POST", "/reservations", w.wish(2000, 50_000), "noor")
    w.bad(404, "GET", "/nodes/nowhere")
    w.bad(401, "GET", "/me", who=None)
    found = scraped(w)
    assert found['slotserve_refusals_total{code="conflict"}'] == 1
    assert found['slotserve_refusals_total{code="not_found"}'] == 1
    assert found['slotserve_requests_total{status="2xx"}'] == 1
    assert found['slotserve_requests_total{status="4xx"}'] == 3
    assert found["slotserve_requests_running"] == 0  # neither is the scrape itself


def test_while_the_database_is_away(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "LOCK_SECONDS", 0.1)
    w = make(tmp_path, database_url)
    with away(w):
        found = scraped(w)
        assert found["slotserve_database_up"] == 0
        assert found["slotserve_links"] == 1
    assert scraped(w)["slotserve_database_up"] == 1
    w.store.close()


def test_readyz_warns_in_words_without_names(w: World) -> None:
    with w.store.write() as session:
        session.execute(ways.text("UPDATE leader SET epoch = 1 WHERE id = 1"))
    w.ctx.plan_looked_at = lambda: w.now

    def warned() -> Any:
        answer = w.client.get("/readyz")
        assert answer.status_code == 200, answer.text
        return answer.get_json()["warnings"]

    quiet = [text for text in warned() if "GB are free" not in text]
    assert quiet == []
    w.ctx.clock_stepped = lambda: -3600.0
    w.ctx.live.update("n1", clock_skew_seconds=45.0, refusal="the disk is full")
    said = " ".join(warned())
    assert "this machine's clock was set 3600 s back since the controller's start" in said
    assert "1 of the nodes' clocks differ" in said
    assert "1 nodes refuse their plan" in said
    assert "n1" not in said

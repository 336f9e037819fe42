"""Retry now, over REST: the running holder and administrators may, others may not, and what was mended is taken at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster, running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]
RETRY = "/channels/n1/main/retry"


def outcome(c: Cluster, command: Any, who: str = "root") -> Any:
    """What became of the command."""
    path = f"/channels/n1/main/commands/{command['id']}"
    return c.until(
        lambda: (s := c.get(path, who=who))["state"] not in ("waiting", "sent") and s, 10, "the command's answer"
    )


def test_retry_now_by_holder_and_administrator(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    sim_model(folder, "base", load_seconds=0.2)
    sim_model(folder, "broken", crash_at_load=1)
    slow = {"SLOTSERVE_RETRY_MIN_SECONDS": "300", "SLOTSERVE_RETRY_MAX_SECONDS": "600"}
    with running(SIMULATED, {"main": {"folder": folder, "engines": ["simulated"]}}, slow) as c:
        c.until(lambda: len(c.get("/models")["items"]) == 2, 20, "the models are known")
        c.set_default("base")
        c.until_ready("base")
        booking = c.book("broken", 0, 600)
        channel = c.until_ready("base", fallback=True)
        assert channel["failure"]["count"] == 1
        for stranger in ("tomas", "noor"):
            assert c.request("POST", RETRY, {}, stranger).status_code == 403

        held = c.post(RETRY, who="maya")
        assert outcome(c, held, "maya")["state"] == "done"
        first = channel["failure"]["since"]
        c.until(lambda: (f := c.channel()["failure"]) and f["count"] == 1 and f["since"] > first, 15, "it failed again")
        c.until_ready("base", fallback=True)

        sim_model(folder, "broken", load_seconds=0.2)  # mended
        assert outcome(c, c.post(RETRY, who="maya"), "maya")["state"] == "done"
        c.until_ready("broken", 15)
        assert c.chat("maya", "broken").json()["model"] == "broken"
        refused = outcome(c, c.post(RETRY, who="maya"), "maya")
        assert refused["state"] == "refused"
        assert "not waiting" in refused["answer"]

        c.post(f"/reservations/{booking['id']}/end", who="maya")
        c.until_ready("base")
        sim_model(folder, "broken", crash_at_load=1)
        c.set_default("broken")
        c.until(lambda: c.channel()["phase"] == "retry_wait", 15, "it waits")
        assert c.request("POST", RETRY, {}, "maya").status_code == 403, "her reservation has ended"
        sim_model(folder, "broken", load_seconds=0.2)
        assert outcome(c, c.post(RETRY))["state"] == "done"
        c.until_ready("broken", 15)

"""An engine that hangs or breaks while it serves, in a whole SlotServe: found out, told in words, its fallback serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.cli.demo_model import write_tiny_gguf
from tests.system.cluster import running
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]


def test_a_hung_engine_is_given_up_and_the_default_serves_its_holder(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    sim_model(folder, "base", load_seconds=0.2)
    sim_model(folder, "hangs", load_seconds=0.2, hang=1)
    sim_model(folder, "breaks", load_seconds=0.2, cuda_error_after=1)
    write_tiny_gguf(folder / "real.gguf", n_ctx=2048)
    settings = {
        "SLOTSERVE_HUNG_SECONDS": "10",
        "SLOTSERVE_PROBE_SECONDS": "1",
        "SLOTSERVE_RETRY_MIN_SECONDS": "300",
        "SLOTSERVE_RETRY_MAX_SECONDS": "600",
    }
    with running(SIMULATED, {"main": {"folder": folder, "engines": ["simulated"]}}, settings) as c:
        c.until(lambda: len(c.get("/models")["items"]) == 4, 20, "the models are known")
        c.set_default("base")
        c.until_ready("base")
        booking = c.book("hangs", 0, 900)
        c.until_ready("hangs")
        channel = c.until_ready("base", 60, fallback=True)
        assert channel["failure"]["category"] == "hung"
        assert "has answered no request" in channel["failure"]["reason"]
        assert "it uses no processor time" in channel["failure"]["reason"]
        assert c.chat("maya", "hangs").json()["model"] == "base", "the fallback answers"
        c.post(f"/reservations/{booking['id']}/end", who="maya")

        c.book("breaks", 0, 900)
        channel = c.until_ready("base", 60, fallback=True)
        while channel["failure"] is None or "breaks" not in str(channel["target"]):
            channel = c.until_ready("base", 60, fallback=True)
        assert channel["failure"]["category"] == "crashed"
        assert "error of the GPU or its driver" in channel["failure"]["reason"]

        real = c.until(lambda: (m := c.get("/models/real"))["architecture"] and m, 30, "the file has been read")
        assert (real["architecture"], real["context_length"]) == ("llama", 2048)
        assert c.get("/models/base")["architecture"] is None
        assert c.get("/nodes/n1")["gpu_problem"] is None

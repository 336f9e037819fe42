"""The suite's own requests byte by byte: the gateway's tests once more, each request sent in the smallest pieces."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.parts import ROOT

# In two runs, for two processors; what loads with pytest costs more than some of these files.
RUNS = {"heads": ("test_malformed", "test_access_end_to_end"), "streams": ("test_paths", "test_websocket")}
WITHOUT = ("cacheprovider", "schemathesis", "xdist")


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_every_request_byte_by_byte(run: str) -> None:
    files = [f"tests/agent/gateway/{name}.py" for name in RUNS[run]]
    plugins = [part for name in WITHOUT for part in ("-p", f"no:{name}")]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"SLOTSERVE_TEST_SPLIT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *files],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout

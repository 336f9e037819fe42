"""The suite's own requests byte by byte: the gateway's tests once more, each request sent in the smallest pieces."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.parts import ROOT

FILES = ("test_access_end_to_end", "test_malformed", "test_paths", "test_websocket")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_request_byte_by_byte(file: str) -> None:
    path = ROOT / "tests" / "agent" / "gateway" / f"{file}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"SLOTSERVE_TEST_SPLIT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-4000:]

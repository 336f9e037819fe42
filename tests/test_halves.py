"""Neither half may import the other's rooms: what both need of the standard library stands in each, and stays alike."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["files.py", "logs.py", "systemd.py"])
def test_what_both_need_is_the_same_in_both(name: str) -> None:
    assert (ROOT / "agent" / name).read_text() == (ROOT / "controller" / name).read_text()

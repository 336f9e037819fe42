"""A controller's side of the link, started for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet_parts import Controller


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path / "c")
    yield controller
    controller.close()

"""A folder for a channel's runtime; whatever was started in it ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.runtime.runtimes import end_all


@pytest.fixture
def folder(short_dir: Path) -> Iterator[Path]:
    yield short_dir
    end_all(short_dir)

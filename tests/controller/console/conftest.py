"""The scene of the pages, made once a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console_scene import Scene, scene


@pytest.fixture
def world(tmp_path: Path) -> Scene:
    return scene(tmp_path)

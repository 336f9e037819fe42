"""A planner over a database of its own."""

from __future__ import annotations

import pytest

from tests.controller.planner_world import World


@pytest.fixture
def world(tmp_path, database_url):
    made = World(tmp_path, database_url=database_url)
    yield made
    made.store.close()

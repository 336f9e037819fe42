"""Gateways that are real processes, each test's in a folder of its own (short, for Unix sockets' paths are)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.gateway_node import Node
from tests.fakes.gateway_place import Place


@pytest.fixture
def short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ssgw"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def node(short_folder: Path) -> Node:
    return Node(short_folder)


@pytest.fixture
def place(short_folder: Path) -> Place:
    return Place(short_folder)

"""A provider that can lie, and a console that knows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console_scene import Scene
from tests.controller.console.oidc.signing import console, lies
from tests.parts import running, wait_until


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the provider that can lie."""
    log = tmp_path_factory.mktemp("provider") / "log"
    with running([sys.executable, "-m", "tests.fakes.oidc_provider"], log) as child:
        port = wait_until(lambda: re.match(r"(\d+)\n", child.output()), 30, "the provider's port")[1]
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def world(tmp_path: Path, liar: str) -> Iterator[Scene]:
    lies(liar)
    yield console(tmp_path, liar)
    lies(liar)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, liar: str) -> Scene:
    """For tests after which nobody is signed in."""
    return console(tmp_path_factory.mktemp("shared"), liar)

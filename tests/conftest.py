"""Fixtures of every room: the real parts (a llama-server, models) and the simulated engine.

A real part that cannot be had skips the tests that want it, by name; where CI=true it fails them instead.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from controller.cli import demo_model, demo_parts
from controller.cli.demo_parts import LlamaServer
from tests.nginx import find_nginx
from tests.parts import SIMULATED, cannot_be_had, locked, migrated_sqlite

if TYPE_CHECKING:
    from tests.postgres import PostgreSQL

# A busy machine is no failing example.
settings.register_profile("slotserve", deadline=None)
settings.load_profile("slotserve")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a test asks for marks it, so that `-m` never depends on somebody's memory: the real llama-server its own, and
    with PostgreSQL or a real engine it is none of the fast ones."""
    for item in items:
        asks = getattr(item, "fixturenames", ())
        with_server = "postgresql" in (*asks, *getattr(getattr(item, "callspec", None), "params", {}).values())
        if "llama_server" in asks:
            item.add_marker(pytest.mark.llama_server)
        if with_server or "llama_server" in asks:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """The thousands of tests stay to the end: each full garbage collection would go over them all, for half a second."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that says `DATABASES = BOTH` has its tests run on both; elsewhere the store is SQLite."""
    databases = getattr(metafunc.module, "DATABASES", ())
    if "database_url" in metafunc.fixturenames and databases:
        metafunc.parametrize("database_url", databases, indirect=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The PostgreSQL that the workers shared ends with the run."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        from tests.postgres import stop

        stop(session.config._tmp_path_factory.getbasetemp() / "parts")  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def postgresql(shared_parts: Path) -> PostgreSQL:
    """A real PostgreSQL server (see tests/postgres.py)."""
    from tests.postgres import PACKAGE, find_postgresql, start

    found = find_postgresql()
    if found is None:
        cannot_be_had("postgresql", f"not installed; Debian has it as {PACKAGE}")
    assert found is not None
    return start(found, shared_parts)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database that no other test uses, of the kind that the test's parameter says."""
    if getattr(request, "param", "sqlite") == "postgresql":
        return request.getfixturevalue("postgresql").emptied()
    file = tmp_path / "slotserve.db"
    shutil.copy(migrated_sqlite(), file)
    return f"sqlite:///{file}"


@pytest.fixture(scope="session")
def shared_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of one run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "parts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def tiny_gguf(shared_parts: Path) -> Path:
    """A generated model of half a megabyte that the real llama-server loads. Read only: copy it to harm it."""
    path = shared_parts / "tiny.gguf"
    with locked(shared_parts / "tiny.lock"):
        if not path.exists():
            demo_model.write_tiny_gguf(path)
    return path


@pytest.fixture(scope="session")
def llama_server() -> LlamaServer:
    """The real llama-server: `.command`, and `.env` to be added to its environment."""
    found = demo_parts.find_llama_server()
    if isinstance(found, str):
        cannot_be_had("llama-server", found)
    assert isinstance(found, LlamaServer)
    return found


@pytest.fixture(scope="session")
def small_model() -> Path:
    """A small real model's file (98 MB): answers in English."""
    found = demo_parts.find_small_model()
    if found is None:
        cannot_be_had("small model", f"{demo_parts.MODEL_PACKAGES[0]} is not installed")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def simulated_command() -> tuple[str, ...]:
    """The simulated engine's program; arguments as llama-server's."""
    return SIMULATED


@pytest.fixture(scope="session")
def nginx() -> str:
    """The real nginx's program (see tests/nginx.py)."""
    found = find_nginx()
    if found is None:
        cannot_be_had("nginx", "not installed; Debian has it as nginx-light")
    assert found is not None
    return found


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder with a short path, mode 0700, for Unix sockets: their path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="ss-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)

"""The lab's fleet: rolled out once, and used by the tests in the order in which they stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli.demo_parts import LlamaServer
from tests.hosts import lab
from tests.hosts.fleet import Fleet, engine_archive, rolled_out
from tests.parts import cannot_be_had


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, llama_server: LlamaServer, tiny_gguf: Path, small_model: Path
) -> Iterator[Fleet]:
    """Three hosts with systemd, and nothing of ours on them yet."""
    if why := lab.missing():
        cannot_be_had("systemd hosts", why)
    folder = tmp_path_factory.mktemp("hosts")
    libraries = [Path(p) for p in llama_server.env.get("LD_LIBRARY_PATH", "").split(":") if p]
    archive = engine_archive(Path(llama_server.command[0]).resolve(), libraries)
    with rolled_out(folder, archive, [tiny_gguf, small_model]) as fleet:
        yield fleet
    print({name: round(seconds) for name, seconds in fleet.seconds.items()})

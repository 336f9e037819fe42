"""The lab's fleet: rolled out once a module, and used by the tests in the order in which they stand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.cli.demo_parts import LlamaServer
from tests.hosts import lab
from tests.hosts.engine import engine_archive
from tests.hosts.fleet import Fleet, bare
from tests.parts import cannot_be_had


@pytest.fixture(scope="module")
def archive(llama_server: LlamaServer) -> Path:
    libraries = [Path(p) for p in llama_server.env.get("LD_LIBRARY_PATH", "").split(":") if p]
    return engine_archive(Path(llama_server.command[0]).resolve(), libraries)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path, small_model: Path) -> Iterator[Fleet]:
    """Three hosts with systemd, and nothing of ours on them yet; the module's first fixture says what the inventory is."""
    if why := lab.missing():
        cannot_be_had("systemd hosts", why)
    with bare(tmp_path_factory.mktemp("hosts"), [tiny_gguf, small_model]) as fleet:
        began = os.times()
        yield fleet
        now = os.times()
        here = sum(now[:4]) - sum(began[:4])
        there = sum(host.processor_seconds() for host in fleet.lab.hosts)
    print("seconds a play:", {name: round(seconds) for name, seconds in fleet.seconds.items()})
    print(f"{now.elapsed - began.elapsed:.0f} s; processor seconds: {here:.0f} here, {there:.0f} on the hosts")

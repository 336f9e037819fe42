"""Clusters for the system tests: one with the real llama-server, one with the simulated engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster, running

SIMULATED = {"simulated": {"command": [sys.executable, "-m", "agent.simulated_engine"]}}


def llama_engine(llama_server: Any) -> dict[str, Any]:
    """The node file's entry. One thread each: two engines that spin on two cores hardly get anywhere."""
    return {"llama.cpp": {"command": [*llama_server.command, "--threads", "1"], "env": llama_server.env}}


def sim_model(folder: Path, name: str, **behaviour: object) -> Path:
    """A model file that tells the simulated engine how to behave (load_seconds=1 -> `load-seconds = 1`)."""
    lines = ["simulated", *(f"{key.replace('_', '-')} = {value}" for key, value in behaviour.items())]
    path = folder / f"{name}.gguf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def sim_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models: `base` (default), `other`, both loaded at once and answering slowly enough to be caught streaming."""
    folder = tmp_path_factory.mktemp("models")
    sim_model(folder, "base", load_seconds=0.2, token_ms=20)
    sim_model(folder, "other", load_seconds=0.2, token_ms=20)
    return folder


@pytest.fixture(scope="session")
def sim_cluster(sim_folder: Path) -> Iterator[Cluster]:
    with running(SIMULATED, {"main": {"folder": sim_folder, "engines": ["simulated"]}}) as cluster:
        yield cluster


@pytest.fixture
def sim(sim_cluster: Cluster, sim_folder: Path) -> Cluster:
    """A cluster with one channel `main` of the simulated engine; default `base`, loaded; no bookings, no other models
    than `base` and `other`. One of a worker, as the last test left it but for that: it costs seconds to start."""
    for path in sim_folder.iterdir():
        if path.stem not in ("base", "other"):
            path.unlink()
    sim_cluster.calm("base", models=2)
    return sim_cluster


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path) -> Path:
    """`tiny` loads at once; `slow` answers at some dozens of tokens a second, so that streams last."""
    from controller.cli.demo_model import write_tiny_gguf

    folder = tmp_path_factory.mktemp("llama-models")
    (folder / "tiny.gguf").symlink_to(tiny_gguf)
    write_tiny_gguf(folder / "tiny-2.gguf", seed=2)
    write_tiny_gguf(folder / "slow.gguf", n_embd=384, n_layer=8)
    return folder


@pytest.fixture(scope="session")
def llama_cluster(llama_server: Any, llama_folder: Path) -> Iterator[Cluster]:
    with running(llama_engine(llama_server), {"main": {"folder": llama_folder, "engines": ["llama.cpp"]}}) as cluster:
        yield cluster


@pytest.fixture
def llama(llama_cluster: Cluster, llama_folder: Path) -> Cluster:
    """A cluster with one channel `main` of the real llama-server; default `tiny`, loaded; models `tiny-2` and `slow`."""
    for path in llama_folder.iterdir():
        if path.stem not in ("tiny", "tiny-2", "slow"):
            path.unlink()
    llama_cluster.calm("tiny", models=3)
    return llama_cluster

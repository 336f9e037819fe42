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


@pytest.fixture
def sim_folder(tmp_path: Path) -> Path:
    """Models: `base` (default), `other`, both loaded at once and answering slowly enough to be caught streaming."""
    folder = tmp_path / "models"
    folder.mkdir()
    sim_model(folder, "base", load_seconds=0.2, token_ms=20)
    sim_model(folder, "other", load_seconds=0.2, token_ms=20)
    return folder


@pytest.fixture
def sim(sim_folder: Path) -> Iterator[Cluster]:
    """A cluster with one channel `main` of the simulated engine; default `base`, loaded."""
    with running(SIMULATED, {"main": {"folder": sim_folder, "engines": ["simulated"]}}) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) >= 2, 20, "the models are known")
        cluster.set_default("base")
        cluster.until_ready("base")
        yield cluster


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path) -> Path:
    """`tiny` loads at once; `slow` answers at some dozens of tokens a second, so that streams last."""
    from controller.cli.demo_parts import write_tiny_gguf

    folder = tmp_path_factory.mktemp("llama-models")
    (folder / "tiny.gguf").symlink_to(tiny_gguf)
    write_tiny_gguf(folder / "tiny-2.gguf", seed=2)
    write_tiny_gguf(folder / "slow.gguf", n_embd=384, n_layer=8)
    return folder


@pytest.fixture
def llama(llama_server: Any, llama_folder: Path) -> Iterator[Cluster]:
    """A cluster with one channel `main` of the real llama-server; default `tiny`, loaded."""
    engines = llama_engine(llama_server)
    with running(engines, {"main": {"folder": llama_folder, "engines": ["llama.cpp"]}}) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) >= 3, 20, "the models are known")
        cluster.set_default("tiny")
        cluster.until_ready("tiny")
        yield cluster

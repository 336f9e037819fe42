"""`slotserve doctor`, `backup` and `restore`: what they say and the exit status, on a machine with a controller's folder."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

from controller.cli.app import App
from controller.cli.main import main
from controller.fleet.ca import CertificateAuthority
from controller.store.tables import Node, NodeModel
from tests.console_scene import Scene, scene

Run = Callable[..., Result]


@pytest.fixture
def world(tmp_path: Path) -> Scene:
    """A controller's folder with everything in it, and the scene's application to ask."""
    made = scene(tmp_path)
    CertificateAuthority(tmp_path / "ca")
    return made


@pytest.fixture
def run(world: Scene, tmp_path: Path) -> Run:
    env = {
        "SLOTSERVE_STATE_DIR": str(tmp_path),
        "SLOTSERVE_DATABASE_URL": f"sqlite:///{tmp_path / 'scene.db'}",
        "SLOTSERVE_URL": "http://controller.test",
        "SLOTSERVE_API_KEY": world.keys["lin"],
        "SLOTSERVE_NODE_FILE": str(tmp_path / "node.toml"),
        "XDG_CONFIG_HOME": str(tmp_path),
    } | {f"SLOTSERVE_{port}_LISTEN": "127.0.0.1:0" for port in ("HTTP", "FLEET", "ENROL")}

    def call(*args: str, **more: Any) -> Result:
        app = App(httpx.WSGITransport(app=world.app), lambda: world.now)
        return CliRunner().invoke(main, list(args), obj=app, env={**env, **more})

    return call


def checks(answer: Result) -> dict[str, tuple[bool, str]]:
    return {c["check"]: (c["ok"], c["problem"]) for c in json.loads(answer.output)["items"]}


def test_doctor_names_each_trouble_of_the_fleet(run: Run) -> None:
    answer = run("doctor", "--json")
    assert answer.exit_code == 1
    found = checks(answer)
    assert found["node gpu-a01"] == (True, "")
    ok, text = found["node edge-t4"]
    assert not ok
    assert "no contact since" in text
    ok, text = found["node lab-3090"]  # allowed for, so not wrong
    assert ok
    assert "4.2 s fast" in text
    assert "next try at" in found["channel gpu-a02/tp4-a"][1]
    assert "python3 (pid 48213, user wei" in found["channel lab-3090/g1"][1]
    lines = run("doctor").output.splitlines()
    assert "WRONG  node edge-t4" in lines
    assert "note   node lab-3090" in lines
    assert all(len(line) <= 80 for line in lines if line.startswith(" "))


def test_doctor_looks_at_this_machine(run: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = checks(run("doctor", "--json", SLOTSERVE_HTTP_LISTEN=address))
        assert "set SLOTSERVE_HTTP_LISTEN" in found[f"SLOTSERVE_HTTP_LISTEN {address}"][1]
        assert found["SLOTSERVE_FLEET_LISTEN 127.0.0.1:0"] == (True, "")
        with (tmp_path / "serve.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = checks(run("doctor", "--json", SLOTSERVE_HTTP_LISTEN=address))
        assert f"controller on {tmp_path}: runs" in found
        assert f"SLOTSERVE_HTTP_LISTEN {address}" not in found  # it is the controller that has it
    timing = checks(run("doctor", "--json", SLOTSERVE_DRAIN_SECONDS="60"))["timing"]
    assert timing[0]
    assert "SLOTSERVE_SWITCH_BUFFER_SECONDS" in timing[1]
    wrong = run("doctor", SLOTSERVE_DRAIN_SECONDS="soon")
    assert wrong.exit_code == 1
    assert "SLOTSERVE_DRAIN_SECONDS" in wrong.stderr


def test_doctor_without_a_database_says_what_makes_one(run: Run, tmp_path: Path) -> None:
    found = checks(run("doctor", "--json", SLOTSERVE_DATABASE_URL=f"sqlite:///{tmp_path / 'none.db'}"))
    assert any("slotserve migrate makes it" in problem for _, problem in found.values())
    assert not (tmp_path / "none.db").exists()


def test_a_model_on_a_rotating_disk_is_noted(run: Run, world: Scene) -> None:
    with world.store.write() as session:
        row = session.scalars(select(NodeModel).limit(1)).one()
        row.rotating_disk = True
        name, node = row.name, session.get(Node, row.node_id).name
    (problem,) = [p for what, (_, p) in checks(run("doctor", "--json")).items() if what == f"models of node {node}"]
    assert name in problem
    assert "SSD" in problem


def test_backup_and_restore_as_commands(run: Run, world: Scene, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    made = run("backup", str(file), "--json")
    assert made.exit_code == 0, made.output
    assert set(json.loads(made.output)) == {"file", "bytes", "revision"}
    asked = run("restore", str(file))
    assert asked.exit_code == 1  # nobody said yes
    world.store.close()
    done = run("restore", str(file), "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.output)) == {"state_dir", "made_at", "before"}
    with (tmp_path / "serve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run("restore", str(file), "--yes")
    assert refused.exit_code == 1
    assert "a controller runs on" in refused.stderr
    assert run("restore").exit_code == 2

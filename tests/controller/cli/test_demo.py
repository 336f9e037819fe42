"""The demo: its files and processes alone, and the whole of it as people start it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from controller.cli import demo_files, demo_processes

SLOTSERVE = str(Path(sys.executable).with_name("slotserve"))


def test_ports_are_kept_and_a_taken_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    free = {v: "0" for v, _ in demo_files.PORTS.values()}
    first = demo_files.choose_ports(file, free)
    assert len(set(first.values())) == 4
    assert demo_files.choose_ports(file, free) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["http"]))
        taken.listen()
        again = demo_files.choose_ports(file, free)
        assert again["http"] != first["http"]
        assert again["gateway"] == first["gateway"]
        with pytest.raises(click.ClickException, match="SLOTSERVE_PORT=0"):
            demo_files.choose_ports(file, {**free, "SLOTSERVE_PORT": str(first["http"])})
    for wrong in ("http", "-1", "65536", "８700"):
        with pytest.raises(click.ClickException, match="SLOTSERVE_PORT"):
            demo_files.choose_ports(file, {**free, "SLOTSERVE_PORT": wrong})
    file.write_text("not json")
    assert demo_files.choose_ports(file, free)


def test_the_node_file_is_what_the_agent_reads(tmp_path: Path) -> None:
    import tomllib

    chosen = demo_files.Chosen("llama.cpp", ['/opt/a b/"llama"\\server'], ("m", "n"), "", {"LD_LIBRARY_PATH": "/x:/y"})
    demo_files.write_node_file(tmp_path / "node.toml", chosen, tmp_path / "mo dels", 8710)
    data = tomllib.loads((tmp_path / "node.toml").read_text())
    assert data["node"] == "local"
    assert data["engines"]["llama.cpp"] == {
        "command": ['/opt/a b/"llama"\\server'],
        "env": {"LD_LIBRARY_PATH": "/x:/y"},
    }
    assert [c["name"] for c in data["channels"]] == ["a", "b"]
    assert data["channels"][0]["gpus"] == []


def test_a_long_folder_gets_short_sockets(tmp_path: Path) -> None:
    assert demo_files.run_folder(Path("/d")) == Path("/d/agent/run")
    long = tmp_path / ("x" * 100)
    short = demo_files.run_folder(long)
    try:
        assert len(str(short)) < 60
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
        assert demo_files.run_folder(long) == short
        short.chmod(0o755)
        with pytest.raises(click.ClickException, match="not a private folder"):
            demo_files.run_folder(long)
    finally:
        short.rmdir()


def test_people_keep_their_secrets_and_lost_ones_are_made_anew(tmp_path: Path) -> None:
    database, file = f"sqlite:///{tmp_path / 'd.db'}", tmp_path / "people.json"
    first = demo_files.make_people(file, database, 1_000)
    assert [(p.name, p.role) for p in first] == [("admin", "admin"), ("maya", "user"), ("noor", "user")]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert demo_files.make_people(file, database, 2_000) == first
    file.unlink()
    second = demo_files.make_people(file, database, 3_000)
    assert all(a.api_key != b.api_key and a.password != b.password for a, b in zip(first, second, strict=True))
    file.write_text("{")
    with pytest.raises(click.ClickException, match=r"people\.json"):
        demo_files.make_people(file, database, 4_000)


def test_a_wish_that_cannot_be_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cli.demo_parts.find_llama_server", lambda: "none on PATH")
    with pytest.raises(click.ClickException, match="none on PATH"):
        demo_files.choose_engine("llama.cpp", tmp_path)
    with pytest.raises(click.ClickException, match="SLOTSERVE_DEMO_ENGINE"):
        demo_files.choose_engine("vllm", tmp_path)
    chosen = demo_files.choose_engine("auto", tmp_path)
    assert chosen.engine == "simulated"
    assert "none on PATH" in chosen.why
    assert len(list((tmp_path / "simulated").glob("*.gguf"))) == 3


def test_leftovers_are_ended_and_strangers_left_alone(tmp_path: Path) -> None:
    ours = demo_processes.Child("sleeper", ["sleep", "60"], os.environ, tmp_path)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        demo_processes.remember(tmp_path / "pids.json", [ours])
        rows = json.loads((tmp_path / "pids.json").read_text())
        rows.append(["stranger", stranger.pid, 12345])  # a pid given to somebody else since
        (tmp_path / "pids.json").write_text(json.dumps(rows))
        assert demo_processes.end_leftovers(tmp_path / "pids.json", 5) == ["sleeper"]
        assert ours.ended() == -signal.SIGTERM
        assert stranger.poll() is None
        assert demo_processes.end_leftovers(tmp_path / "pids.json") == []
    finally:
        ours.stop()
        stranger.kill()
        stranger.wait()


class Running:
    """A demo that runs, its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, folder.with_suffix(".out")
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
        ports = {v: "0" for v, _ in demo_files.PORTS.values()}
        self.env = {**env, **ports, "SLOTSERVE_DEMO_DIR": str(folder), "SLOTSERVE_DEMO_ENGINE": "simulated"}
        with self.output.open("wb") as out:
            self.popen = subprocess.Popen(
                [SLOTSERVE, "demo"], env=self.env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def facts(self, seconds: float = 240) -> Any:
        """demo.json once this demo has written it; it waits itself for each of its parts, and says which does not come."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.popen.poll() is None:
            if "all is up" in self.output.read_text():
                return json.loads((self.folder / "demo.json").read_text())
            time.sleep(0.1)
        raise AssertionError(self.output.read_text())

    def end(self, sig: int = signal.SIGTERM) -> int:
        self.popen.send_signal(sig)
        return self.popen.wait(60)

    def pids(self) -> dict[str, int]:
        return {name: pid for name, pid, _ in json.loads((self.folder / "pids.json").read_text())}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """`started()` starts a demo in one folder; whatever still runs at the end is ended."""
    made: list[Running] = []

    def start() -> Running:
        made.append(Running(tmp_path / "demo"))
        return made[-1]

    yield start
    for demo in made:
        if demo.popen.poll() is None:
            demo.end()
    demo_processes.end_leftovers(tmp_path / "demo" / "pids.json")


def nothing_left(folder: Path) -> bool:
    """No process has the folder on its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return not found


@pytest.mark.system
@pytest.mark.timeout(600)
def test_the_demo_from_start_to_end_and_again(started: Any) -> None:
    demo = started()
    facts = demo.facts()
    folder = demo.folder
    assert stat.S_IMODE((folder / "demo.json").stat().st_mode) == 0o600
    assert set(facts) == {"console_url", "api_url", "gateway_url", "engine", "admin", "users", "channels", "models"}
    assert facts["engine"] == "simulated"
    assert facts["api_url"] == facts["console_url"] + "/api/v1"
    assert facts["channels"] == ["local/a", "local/b"]
    assert len(facts["models"]) >= 3
    assert [set(u) for u in facts["users"]] == [{"name", "password", "api_key"}] * 2
    text = demo.output.read_text()
    assert "answers are made up, everything else is real" in text
    curl = next(line for line in text.splitlines() if line.startswith("curl "))
    answer = subprocess.run(shlex.split(curl), capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(answer.stdout)["choices"][0]["message"]["content"]
    key = {"Authorization": f"Bearer {facts['admin']['api_key']}"}
    channels = httpx.get(facts["api_url"] + "/channels", headers=key, timeout=60).json()["items"]
    assert [(c["phase"], c["default_model"] in facts["models"], c["default_preset"]) for c in channels] == [
        ("ready", True, None)
    ] * 2
    assert httpx.get(facts["api_url"] + "/reservations", headers=key, timeout=60).json()["items"] == []
    # no limits, no approval, exclusive allowed
    far = {
        "channel": "local/b",
        "kind": "exclusive",
        "starts_at": "2040-01-01T00:00:00Z",
        "ends_at": "2040-02-01T00:00:00Z",
    }
    user = {"Authorization": f"Bearer {facts['users'][0]['api_key']}"}
    assert (
        httpx.post(facts["api_url"] + "/reservations", json=far, headers=user, timeout=60).json()["status"]
        == "approved"
    )
    # a second demo in the folder does not start
    second = subprocess.run([SLOTSERVE, "demo"], env=demo.env, capture_output=True, text=True, timeout=60, check=False)
    assert (second.returncode, "runs in" in second.stderr) == (1, True)
    assert demo.end(signal.SIGINT) == 0
    assert not (folder / "demo.json").exists()
    assert nothing_left(folder)
    # killed: the next one ends what was left and goes on with what is there
    demo = started()
    again = demo.facts()
    assert {k: v for k, v in again.items() if k not in ("models",)} == {
        k: v for k, v in facts.items() if k not in ("models",)
    }
    demo.popen.kill()
    demo.popen.wait()
    demo = started()
    assert demo.facts()["admin"] == facts["admin"]
    assert "ended the controller that an earlier demo left running" in demo.output.read_text()
    assert (
        httpx.get(facts["api_url"] + "/reservations", headers=user, timeout=60).json()["items"][0]["kind"]
        == "exclusive"
    )
    # a process that dies takes the demo with it, and is named
    os.kill(demo.pids()["gateway"], signal.SIGKILL)
    assert demo.popen.wait(60) == 1
    said = demo.output.read_text()
    assert "the gateway ended with -9" in said
    assert "Traceback" not in said
    assert nothing_left(folder)

"""The `slotserve-agent` command: what it says, what it loads, and that engines and folders are left in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from tests.fleet_parts import Controller, join_string, plan_bytes, step
from tests.parts import wait_until

T = TypeVar("T")
BIN = Path(sys.executable).parent


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
    return {
        **env,
        "SLOTSERVE_AGENT_STATE_DIR": str(tmp_path / "a"),
        "SLOTSERVE_NODE_FILE": str(tmp_path / "node.toml"),
        "SLOTSERVE_SCAN_SECONDS": "0.2",
        **more,
    }


def node_file(tmp_path: Path, engine: str = sys.executable, **model: str) -> Path:
    folder = tmp_path / "models"
    folder.mkdir(exist_ok=True)
    lines = [f"{k} = {v}" for k, v in model.items()]
    (folder / "model-a.gguf").write_text("\n".join(["simulated", *lines]) + "\n")
    (tmp_path / "node.toml").write_text(
        f"""
node = "n1"
[engines.simulated]
command = ["{engine}", "-m", "agent.simulated_engine"]
[[channels]]
name = "main"
model_folders = ["{folder}"]
engines = ["simulated"]
"""
    )
    return tmp_path / "node.toml"


def run(tmp_path: Path, *args: str, text: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(BIN / "slotserve-agent"), *args],
        env=environment(tmp_path, **more),
        capture_output=True,
        text=True,
        input=text,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextmanager
def agent(tmp_path: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "agent.out").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "slotserve-agent"), "run"],
            env=environment(tmp_path, **more),
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(15)


def status(tmp_path: Path) -> dict[str, object]:
    said: dict[str, object] = json.loads(run(tmp_path, "status", "--json").stdout)
    return said


def wait_for(true: Callable[[], T], what: str = "") -> T:
    """With room for two Python processes that start on a busy machine."""
    return wait_until(true, 60, what, every=0.05)


def test_check_config_names_every_problem(tmp_path: Path) -> None:
    node_file(tmp_path)
    assert run(tmp_path, "check-config").stdout.endswith("fine\n")
    path = node_file(tmp_path, engine="/no/such/program")
    text = path.read_text().replace('engines = ["simulated"]', 'engines = ["simulated", "vllm"]')
    gateway = 'listen = ["here", "unix:x"]\nrelay_listen = "unix:/run/relay"\n'
    path.write_text(text.replace("/models", "/nowhere") + f"[gateway]\n{gateway}")
    said = run(tmp_path, "check-config")
    assert said.returncode == 1
    for words in ("/no/such/program", "'vllm' has no", "/nowhere", "'here'", "unix:/absolute/path", "relay_listen"):
        assert words in said.stderr
    path.write_text(text + '[gateway]\nrelay_listen = "127.0.0.1:8711"\nrelay_address = "nowhere"\n')
    assert "relay_address: 'nowhere': write host:port" in run(tmp_path, "check-config").stderr


def test_check_config_notes_what_is_worth_knowing(tmp_path: Path) -> None:
    path = node_file(tmp_path)
    more = 'model_folders = []\nengines = ["simulated", "sglang"]\nenv = { HIP_VISIBLE_DEVICES = "0" }\n'
    engines = f"""
[engines.sglang]
command = ["{sys.executable}"]
[engines.vllm]
command = ["{sys.executable}"]
"""
    path.write_text(path.read_text() + f'[[channels]]\nname = "radeon"\n{more}' + engines)
    said = run(tmp_path, "check-config")
    assert (said.returncode, said.stderr) == (0, "")
    notes = [line for line in said.stdout.splitlines() if line.startswith("note: ")]
    for words in ("sglang takes its key from its command line", "engines.vllm: no channel uses it",
                  "'radeon': model_folders: none", "'main', 'radeon': gpus: none"):  # fmt: skip
        assert any(words in note for note in notes), words
    path.write_text(path.read_text().replace('"simulated", "sglang"', '"llamacpp", "vllm"'))
    assert (
        "'llamacpp' is not an engine that SlotServe can start; there are llama.cpp"
        in run(tmp_path, "check-config").stderr
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node = 5", "node"),
        ("x", "node.toml"),
        ('node = "n1"\nsurprise = 1', "surprise"),
        ('node = "N 1"', "node"),
    ],
)
def test_a_wrong_node_file_is_told_by_field(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    for command in ("run", "check-config"):
        said = run(tmp_path, command)
        assert said.returncode == 1
        assert words in said.stderr


def test_a_wrong_setting_is_told_by_variable(tmp_path: Path) -> None:
    node_file(tmp_path)
    said = run(tmp_path, "check-config", SLOTSERVE_DRAIN_SECONDS="-1")
    assert said.returncode == 1
    assert "SLOTSERVE_DRAIN_SECONDS" in said.stderr
    assert "SLOTSERVE_LOG_LEVEL" in run(tmp_path, "check-config", SLOTSERVE_LOG_LEVEL="loud").stderr
    (tmp_path / "drain").write_text("12\n")
    assert run(tmp_path, "check-config", SLOTSERVE_DRAIN_SECONDS_FILE=str(tmp_path / "drain")).returncode == 0


def test_without_an_agent(tmp_path: Path) -> None:
    node_file(tmp_path)
    said = run(tmp_path, "status")
    assert (said.returncode, said.stdout.splitlines()[0]) == (1, "No agent runs with this folder.")
    assert "not enrolled; `slotserve node add NAME`" in said.stdout
    assert run(tmp_path, "stop-engines").stdout == "no engine runs\n"


def test_enrol_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    node_file(tmp_path)
    controller = Controller(tmp_path / "c")
    try:
        join = controller.add_node("n1")
        assert run(tmp_path, "enrol", "rubbish").returncode == 1
        wrong = run(tmp_path, "enrol", controller.add_node("n2"))
        assert "for node 'n2'" in wrong.stderr
        assert run(tmp_path, "enrol", "-", text=join + "\n").returncode == 0
        again = run(tmp_path, "enrol", join)
        assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)
        assert "has been used" in again.stderr
        assert run(tmp_path, "enrol", join_string("127.0.0.1:1", "n1", "t", controller.ca.certificate_pem())).returncode
    finally:
        controller.close()


def test_the_gateway_loads_no_grpc_and_the_agent_no_uvloop() -> None:
    code = "import sys, {0}; print(sorted(m for m in {1!r} if m in sys.modules))"
    heavy = ("numpy", "gguf", "flask", "sqlalchemy", "cryptography")
    for module, never in (("agent.gateway.main", ("grpc", *heavy)), ("agent.process", ("uvloop", *heavy))):
        said = subprocess.run(
            [sys.executable, "-c", code.format(module, never)], capture_output=True, text=True, timeout=30, check=True
        )
        assert said.stdout == "[]\n", module


@pytest.mark.system
def test_an_agent_keeps_to_its_plan_alone_and_adopts_its_engine(tmp_path: Path) -> None:
    """Enrolled and given a plan; then the controller is gone, the agent killed, started again, ended, engines stopped."""
    node_file(tmp_path)
    controller = Controller(tmp_path / "c")
    controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1, "a")))
    try:
        assert run(tmp_path, "enrol", controller.add_node("n1")).returncode == 0
        with agent(tmp_path) as process:
            wait_for(lambda: controller.live.channel("n1", "main").phase == "ready", what="the engine is ready")
            pid = controller.live.channel("n1", "main").engine_pid
            wait_for(lambda: "listening" in (controller.logs.read("n1", "main", 0, 9999) or {"text": ""})["text"])
            assert psutil.Process(process.pid).memory_info().rss < 100e6
            assert "another agent" in run(tmp_path, "run").stderr
            controller.server.stop()
            process.kill()
        with agent(tmp_path) as process:
            said = wait_for(
                lambda: (s := status(tmp_path)).get("running") and s["channels"][0]["phase"] == "ready" and s
            )
            assert said["channels"][0]["engine_pid"] == pid, "adopted, not started anew"
            assert said["plan"] == {"epoch": 1, "generation": 1}
            assert not said["connected"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        assert psutil.pid_exists(pid), "engines go on without the agent"
        assert "No agent runs" in run(tmp_path, "status").stdout
        assert run(tmp_path, "stop-engines").stdout == "no engine runs\n"
        wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    finally:
        run(tmp_path, "stop-engines")
        controller.close()


@pytest.mark.system
def test_stop_engines_of_a_running_agent(tmp_path: Path) -> None:
    node_file(tmp_path)
    controller = Controller(tmp_path / "c")
    controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1, "a")))
    try:
        assert run(tmp_path, "enrol", controller.add_node("n1")).returncode == 0
        with agent(tmp_path):
            wait_for(lambda: controller.live.channel("n1", "main").phase == "ready", what="the engine is ready")
            pid = controller.live.channel("n1", "main").engine_pid
            assert run(tmp_path, "stop-engines").stdout == "no engine runs\n"
            assert not psutil.pid_exists(pid)
            wait_for(lambda: controller.live.channel("n1", "main").phase == "off")
    finally:
        run(tmp_path, "stop-engines")
        controller.close()


@pytest.mark.system
def test_the_engine_of_a_channel_that_is_no_longer_declared_is_stopped(tmp_path: Path) -> None:
    """By the agent at its start, and by `stop-engines` where none runs: it would hold its GPUs for ever."""
    path = node_file(tmp_path)
    controller = Controller(tmp_path / "c")
    controller.planner.set("n1", 1, 1, plan_bytes("n1", step(1, "a")))
    try:
        assert run(tmp_path, "enrol", controller.add_node("n1")).returncode == 0
        for stopped_by in ("agent", "command"):
            path = node_file(tmp_path)
            with agent(tmp_path):

                def running() -> bool:
                    """Ready by this agent's own word: the controller still has what the last one said."""
                    channel = controller.live.channel("n1", "main")
                    return channel.phase == "ready" and psutil.pid_exists(channel.engine_pid)

                wait_for(running, what="the engine is ready")
                pid = controller.live.channel("n1", "main").engine_pid
            assert psutil.pid_exists(pid)
            path.write_text(path.read_text().replace('name = "main"', 'name = "renamed"'))
            if stopped_by == "agent":
                with agent(tmp_path):
                    wait_for(lambda: not psutil.pid_exists(pid), what="the engine is gone")  # noqa: B023
            else:
                assert run(tmp_path, "stop-engines").stdout == "no engine runs\n"
                assert not psutil.pid_exists(pid)
    finally:
        run(tmp_path, "stop-engines")
        controller.close()

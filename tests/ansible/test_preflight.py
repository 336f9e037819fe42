"""What the preflight says of a host: each thing that can be in the way, with what helps; and that it is told before anything
is changed."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.parts import ROOT, cannot_be_had

ANSIBLE = ROOT / "ansible"
MODULE = ANSIBLE / "roles/slotserve_common/library/slotserve_preflight.py"


@pytest.fixture(scope="module")
def preflight() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slotserve_preflight", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WANTED: dict[str, Any] = {
    "python": "/usr/bin/python3",
    "release": {"python": "3.11", "arch": "x86_64"},
    "now": 1000.0,
    "clock_tolerance": 2.0,
    "require_ntp": True,
    "free_megabytes": 1500,
    "places": ["/opt", "/var/lib"],
    "ports": [{"port": 8710, "unit": "slotserve-gateway.socket"}],
    "user": "slotserve",
    "groups": [],
    "folders": ["/srv/models"],
    "gpus": 2,
}
FOUND: dict[str, Any] = {
    "systemd": True,
    "arch": "x86_64",
    "python": "3.11",
    "python_error": "",
    "ahead": 0.5,
    "ntp": True,
    "free": {"/opt": 9000, "/var/lib": 9000},
    "taken": [],
    "folders": {"/srv/models": "fine"},
    "driver_error": "",
    "gpus": 2,
}


def test_nothing_is_said_of_a_host_that_is_well(preflight: ModuleType) -> None:
    assert preflight.problems(FOUND, WANTED) == []
    assert preflight.problems({**FOUND, "gpus": 3, "ahead": 9.0}, WANTED) == [], (
        "more than asked; the way there took long"
    )
    without = {k: v for k, v in FOUND.items() if k not in ("gpus", "driver_error")}
    assert preflight.problems(without, {**WANTED, "gpus": 0}) == []
    assert preflight.problems({**FOUND, "ntp": False}, {**WANTED, "require_ntp": False}) == []


@pytest.mark.parametrize(
    ("wrong", "cause", "remedy"),
    [
        ({"systemd": False}, "systemd does not run this host", "systemd units"),
        ({"python": "", "python_error": "No such file"}, "/usr/bin/python3 cannot be used (No such file)", "slotserve_common_python"),
        ({"python": "3.9"}, "is Python 3.9; 3.11 or newer is needed", "slotserve_common_python"),
        ({"python": "3.13"}, "is Python 3.13, the wheelhouse is for 3.11", "wheelhouse.py --python 3.13"),
        ({"arch": "aarch64"}, "this host is aarch64, the wheelhouse is for x86_64", "wheelhouse.py --arch aarch64"),
        ({"ahead": -2.5}, "the clock differs from the control machine's by -2.5 s", "chrony"),
        ({"ahead": 3600.0}, "the clock differs from the control machine's by +3600.0 s", "chrony"),
        ({"ntp": False}, "the clock is not kept in sync", "slotserve_common_require_ntp"),
        ({"free": {"/opt": 200, "/var/lib": 9000}}, "only 200 MB are free in /opt; 1500 are needed", "slotserve_common_free_megabytes"),
        ({"taken": WANTED["ports"]}, "port 8710 is in use by something else than slotserve-gateway.socket", "ss -ltnp"),
        ({"folders": {"/srv/models": "missing"}}, "the model folder /srv/models is not there", "model_folders"),
        ({"folders": {"/srv/models": "unreadable"}}, "/srv/models cannot be read by slotserve", "slotserve_common_groups"),
        ({"driver_error": "not found"}, "the GPU driver does not answer (nvidia-smi: not found)", "slotserve_agent_expected_gpus"),
        ({"gpus": 1}, "the driver sees 1 GPUs, 2 are expected", "nvidia-smi"),
    ],
)  # fmt: skip
def test_each_thing_that_is_in_the_way_is_told_with_what_helps(
    preflight: ModuleType, wrong: dict[str, Any], cause: str, remedy: str
) -> None:
    (said,) = preflight.problems({**FOUND, **wrong}, WANTED)
    assert cause in said
    assert remedy in said


def test_all_of_it_is_told_at_once(preflight: ModuleType) -> None:
    assert len(preflight.problems({**FOUND, "ntp": False, "gpus": 0, "arch": "riscv64"}, WANTED)) == 3


def test_what_it_looks_at_is_this_machine(
    preflight: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho GPU-1; echo GPU-2\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    models, closed = tmp_path / "models", tmp_path / "closed"
    models.mkdir()
    closed.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # not listening
        ports = [server.getsockname()[1], free.getsockname()[1]]
        wanted = {
            **WANTED,
            "python": sys.executable,
            "now": time.time() - 100,
            "places": [str(tmp_path / "not/there/yet")],
            "ports": [{"port": port, "unit": "no-such-unit.service"} for port in ports],
            "folders": [str(models), str(closed), str(tmp_path / "nothing")],
            "user": "no-such-user",
        }
        found = preflight.look(wanted)
    assert found["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found["arch"] == os.uname().machine
    assert 100 <= found["ahead"] < 160
    assert next(iter(found["free"].values())) > 0
    assert [each["port"] for each in found["taken"]] == ports[:1]
    assert found["gpus"] == 2
    assert found["driver_error"] == ""
    assert found["folders"][str(tmp_path / "nothing")] == "missing"
    if os.geteuid() == 0:
        assert found["folders"][str(closed)] == "unreadable"


def test_programs_that_are_not_there_or_fail_are_no_error(
    preflight: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no devices were found\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = preflight.look({**WANTED, "python": str(tmp_path / "python"), "now": time.time()})
    assert found["python"] == ""
    assert "No such file" in found["python_error"]
    assert found["driver_error"] == "no devices were found"
    assert not found["ntp"]


# What is said of the inventory's variables: inventory name, its variables, words.
MISTAKES: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
    ("c1", "slotserve_controller", {"slotserve_controller_tls_certificate": "/no/console.crt"},
     ("/no/console.crt is no file on the control machine (slotserve_controller_tls_certificate)", "set both or none",
      "several controllers need one database, so slotserve_controller_database must be external")),
    ("c2", "slotserve_controller", {"slotserve_controller_tls_key": "/no/console.key", "slotserve_controller_database": "external"},
     ("/no/console.key is no file on the control machine (slotserve_controller_tls_key)", "needs a database_url")),
    ("n1", "slotserve_nodes", {"slotserve_agent_node": "Node 1", "slotserve_agent_controller": "elsewhere"},
     ("Node 1 is no name for a node", "set slotserve_agent_node", "elsewhere is none of the inventory's controllers",
      "no channel is declared")),
    ("n2", "slotserve_nodes",
     {"slotserve_agent_channels": [{"name": "main", "gpus": [0], "model_folders": ["/no/models"], "engines": ["vllm", "llama.cpp"]}],
      "slotserve_engine_llamacpp_source": "archive", "slotserve_engine_llamacpp_archive": "/no/llama.tar.gz"},
     ("channels use vllm, and nothing says where that is", "/no/llama.tar.gz is no archive on the control machine",
      "the model folder /no/models is not there", "the GPU driver does not answer (nvidia-smi: No such file or directory)")),
    ("n3", "slotserve_nodes",
     {"slotserve_agent_gateway_tls_certificate": "/no/gateway.crt",
      "slotserve_agent_channels": [{"name": "main", "engines": ["llama.cpp"]}]},
     ("/no/gateway.crt is no file on the control machine (slotserve_agent_gateway_tls_certificate)",
      "slotserve_agent_gateway_tls_key belong together", "channels use llama.cpp, and nothing says where that is")),
    ("n4", "slotserve_nodes", {"slotserve_agent_gateway_tls_key": "/no/gateway.key"},
     ("/no/gateway.key is no file on the control machine (slotserve_agent_gateway_tls_key)",)),
]  # fmt: skip


def play(tmp_path: Path, name: str, *words: str, wheelhouse: bool = True) -> subprocess.CompletedProcess[str]:
    """A playbook on an inventory of mistakes, whose hosts are all this machine."""
    program = Path(sys.executable).parent / "ansible-playbook"
    if not program.exists():
        cannot_be_had("ansible", "not installed: pip install -e '.[rollout]'")
    release = {"version": "0.1.0", "release": "0.1.0-0", "python": "3.99", "arch": "vax", "pip": "pip.whl"}
    if wheelhouse:
        (tmp_path / "release.json").write_text(json.dumps(release))
    groups: dict[str, Any] = {"slotserve_controller": {"hosts": {}}, "slotserve_nodes": {"hosts": {}}}
    for host, group, variables, _ in MISTAKES:
        groups[group]["hosts"][host] = variables
    groups["all"] = {
        "vars": {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
            "slotserve_build_wheelhouse": False,
            "slotserve_common_wheelhouse": str(tmp_path),
        }
    }
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps(groups))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "SLOTSERVE_"))}
    env |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"), "HOME": str(tmp_path)}
    return subprocess.run(
        [program, name, "-i", inventory, *words],
        cwd=ANSIBLE, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=110,
    )  # fmt: skip


@pytest.mark.slow
def test_a_play_tells_every_mistake_of_the_inventory_and_goes_no_further(tmp_path: Path) -> None:
    done = play(tmp_path, "site.yml")
    assert done.returncode != 0
    blocks = {
        part.split("]", 1)[0]: part
        for part in done.stdout.split("fatal: [")[1:]
        if "Nothing has been changed on" in part
    }
    for host, _, _, words in MISTAKES:
        for sentence in (*words, "the wheelhouse is for vax"):
            assert sentence in " ".join(blocks[host].split()), f"{host}: {sentence!r} is not in {blocks[host]}"
    assert "User and folders" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_wheelhouse_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = play(tmp_path, "preflight.yml", wheelhouse=False)
    said = " ".join(done.stdout.split())
    assert f"Nothing has been changed: {tmp_path} holds no release. Run wheelhouse.py" in said


@pytest.mark.slow
def test_a_node_to_decommission_has_to_be_named(tmp_path: Path) -> None:
    for words in ((), ("-e", "slotserve_decommission=nobody")):
        done = play(tmp_path, "decommission.yml", *words)
        assert done.returncode != 0
        assert "Name one of the inventory's nodes: -e slotserve_decommission=NAME" in " ".join(done.stdout.split())

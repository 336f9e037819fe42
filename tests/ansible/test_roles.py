"""The roll-out as it lies there: every variable explained, units with what engines need, a tidy README.

What it does on real hosts is tested by tests/hosts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.settings import Settings
from tests.parts import ROOT

ANSIBLE = ROOT / "ansible"
ROLES = sorted(p.name for p in (ANSIBLE / "roles").iterdir())
UNITS = ANSIBLE / "roles/slotserve_agent/templates"
CONTROLLER = "../../slotserve_controller/templates/slotserve-controller.service.j2"


def read(path: str) -> Any:
    return yaml.safe_load((ANSIBLE / path).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_explained_and_has_its_default(role: str) -> None:
    defaults = read(f"roles/{role}/defaults/main.yml")
    options = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(defaults) == set(options)
    for name, option in options.items():
        assert name.startswith(role)
        assert option["description"].endswith("."), name
        if "default" in option:
            assert option["default"] == defaults[name], name


def test_the_inventory_is_ten_lines() -> None:
    lines = (ANSIBLE / "inventory/example.yml").read_text().splitlines()
    assert len(lines) <= 10
    said = yaml.safe_load("\n".join(lines))
    assert len(said["slotserve_nodes"]["hosts"]) == 2


def test_what_the_files_of_a_large_fleet_name_exists() -> None:
    known = {v for role in ROLES for v in read(f"roles/{role}/defaults/main.yml")}
    known |= {"slotserve_upgrade_batches"}
    assert set(read("inventory/group_vars/slotserve_nodes.yml.example")) <= known


def directives(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        if match := re.match(r"([A-Z][A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def test_engines_outlive_the_agent() -> None:
    said = directives("slotserve-agent.service.j2")
    assert said["KillMode"] == ["process"]
    assert said["PrivateTmp"] == ["no"]
    assert said["OOMPolicy"] == ["continue"]
    assert said["RuntimeDirectoryPreserve"] == ["yes"]
    assert any(e.startswith("TMPDIR={{ _slotserve_agent_state }}") for e in said["Environment"])
    for directive in ("MemoryDenyWriteExecute", "ProtectClock", "PrivateUsers", "RemoveIPC", "PrivateNetwork"):
        assert directive not in said, directive


@pytest.mark.parametrize(
    "unit",
    [
        "slotserve-agent.service.j2",
        "slotserve-gateway.service.j2",
        "../../slotserve_controller/templates/slotserve-controller.service.j2",
    ],
)
def test_services_are_shut_in_and_watched(unit: str) -> None:
    said = directives(unit)
    assert said["Type"] == ["notify"]
    assert int(said["WatchdogSec"][0]) <= 60
    assert said["NoNewPrivileges"] == ["yes"]
    assert said["CapabilityBoundingSet"] == [""]
    assert said["ProtectSystem"] == ["strict"]
    assert said["User"] == ["{{ slotserve_common_user }}"]


def test_the_gateways_watchdog_is_the_same_after_a_reload() -> None:
    said = directives("slotserve-gateway.service.j2")
    (reload,) = said["ExecReload"]
    assert f"WATCHDOG_USEC={int(said['WatchdogSec'][0]) * 1_000_000} " in reload
    assert reload.endswith("gateway --replace")
    assert said["NotifyAccess"] == ["all"]


def test_settings_that_the_roles_write_exist() -> None:
    text = (ANSIBLE / "roles/slotserve_controller/templates/controller.env.j2").read_text()
    assert set(re.findall(r"'([a-z_]+)':", text)) <= set(Settings.model_fields)


def test_the_readme_names_every_play_and_each_exists() -> None:
    text = (ANSIBLE / "README.md").read_text()
    plays = {p.name for p in ANSIBLE.glob("*.yml")} - {"gather.yml"}
    assert set(re.findall(r"`([a-z-]+\.yml)", text)) >= plays
    for directive in ("KillMode=process", "OOMPolicy=continue", "PrivateTmp", "MemoryDenyWriteExecute", "ProtectClock"):
        assert f"`{directive}`" in text


def test_nothing_is_asked_of_a_galaxy() -> None:
    for path in ANSIBLE.rglob("*.yml"):
        if "wheelhouse" in path.parts or path == Path("files"):
            continue
        found = set(re.findall(r"\b((?:community|ansible)\.(?!builtin)[a-z]+\.[a-z_]+):", path.read_text()))
        assert not found, f"{path}: {found}"

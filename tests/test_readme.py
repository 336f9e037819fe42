"""What the README says of settings and commands is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.settings import AgentSettings
from controller.settings import Settings

README = (Path(__file__).parent.parent / "README.md").read_text()


def shown(default: object) -> str:
    """A default as the table shows it."""
    if isinstance(default, bool):
        return str(int(default))
    if isinstance(default, float) and default.is_integer():
        return str(int(default))
    return "—" if default is None else str(default) or "—"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_stands_in_the_table(name: str) -> None:
    field = Settings.model_fields[name]
    assert f"| `SLOTSERVE_{name.upper()}` | {shown(field.default)} | {field.description} |" in README


@pytest.mark.parametrize("name", sorted(AgentSettings.model_fields))
def test_every_setting_of_a_node_stands_in_the_table(name: str) -> None:
    field = AgentSettings.model_fields[name]
    assert f"| `SLOTSERVE_{name.upper()}` | {shown(field.default)} | {field.description} |" in README


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z][a-z-]+)", README):
        assert re.search(rf"^[^\t#]*\b{target}\b.*:", makefile, re.M), target


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bslotserve ([a-z]+)", README))))
def test_every_command_that_is_named_exists(command: str) -> None:
    from controller.cli.main import main

    assert command in main.list_commands(None)  # type: ignore[arg-type]

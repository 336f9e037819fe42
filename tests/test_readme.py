"""What the README says of settings and commands is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from agent.main import main as slotserve_agent
from agent.settings import AgentSettings
from controller.cli.main import main as slotserve
from controller.settings import Settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


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
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z][a-z-]+)", README):
        assert re.search(rf"^[^\t#]*\b{target}\b.*:", makefile, re.M), target


def named() -> list[str]:
    """Every call of ours that the texts name: `slotserve book MODEL --for 2h`."""
    texts = [README, (ROOT / "ansible" / "README.md").read_text()]
    return sorted({call.strip() for text in texts for call in re.findall(r"\bslotserve(?:-agent)? [^`\n#|]+", text)})


@pytest.mark.parametrize("call", named())
def test_every_command_and_option_that_is_named_exists(call: str) -> None:
    name, *words = call.split()
    command: click.Command = {"slotserve": slotserve, "slotserve-agent": slotserve_agent}[name]
    while isinstance(command, click.Group) and words:
        word = words.pop(0).strip(",;.:)")
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = {word.strip("[],;.()").partition("=")[0] for word in words if word.strip("[").startswith("--")}
    assert options <= {*known, "--help"}

"""The whole tree of commands: each has words, each refuses in words where nobody answers, Tab offers what there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import httpx
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from controller.cli.app import App
from controller.cli.main import main
from tests.console_scene import Scene
from tests.controller.cli.commands import Run
from tests.parts import free_port

NAMES = """login, status, nodes, node add, node cordon, node uncordon, node remove, channels, channel show, channel set,
channel override, channel reload, channel retry, models, presets, preset add, preset edit, preset remove, book, bookings,
booking show, booking edit, booking extend, booking end, booking cancel, booking uncancel,
booking approve, booking reject, slots, plan, logs,
settings, backup, restore, keys, key create, key revoke, users, user add, user edit, user disable, notifications, audit,
usage, serve, migrate, demo, doctor"""
# Commands of the controller's own machine, or that ask nobody.
LOCAL = (
    "serve",
    "migrate",
    "recount",
    "demo",
    "doctor",
    "settings",
    "backup",
    "restore",
    "ca",
    "completion",
    "openapi",
    "login",
)
VALUES = {
    "channel": "n1/a",
    "model": "m:p",
    "until": "+2h",
    "at": "+1h",
    "default": "m",
    "lead": "3m",
    "expires": "+30d",
}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words, groups that do something themselves included."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        if path and command.invoke_without_command:
            yield path, command
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None, name
            yield from leaves(found, (*path, name))
    else:
        yield path, command


TREE = dict(leaves(main))
EVERY = pytest.mark.parametrize("path", TREE, ids=" ".join)
ASKING = pytest.mark.parametrize("path", [path for path in TREE if path[0] not in LOCAL], ids=" ".join)


def test_what_scripts_rely_on_is_there() -> None:
    missing = {tuple(name.split()) for name in NAMES.replace("\n", " ").split(", ")} - TREE.keys()
    assert not missing


@EVERY
def test_help_is_there_for_everything(path: tuple[str, ...]) -> None:
    command = TREE[path]
    answer = CliRunner().invoke(main, [*path, "--help"])
    assert answer.exit_code == 0, answer.output
    assert command.help, "what it does is not said"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.opts[0]} says nothing"
    # Settings and examples may be longer than a terminal is wide; options are not.
    assert answer.output.startswith("Usage: main")


@EVERY
def test_json_is_taken_everywhere(path: tuple[str, ...]) -> None:
    assert any("--json" in p.opts for p in TREE[path].params), path


@ASKING
def test_nobody_there_is_said_in_words(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    env = {"SLOTSERVE_URL": f"http://127.0.0.1:{free_port()}", "SLOTSERVE_API_KEY": "sk-ss-x"}
    answer = CliRunner().invoke(main, [*path, *_given(TREE[path])], env=env, input="x\nx\nx\n")
    assert answer.exit_code == 1, answer.output
    assert not isinstance(answer.exception, Exception) or isinstance(answer.exception, SystemExit), answer.exception
    assert "cannot reach" in answer.stderr, answer.output
    assert "Traceback" not in answer.output


def _given(command: click.Command) -> list[str]:
    """Arguments and options that make it ask."""
    words: list[str] = []
    for parameter in command.params:
        value = _value(parameter)
        if isinstance(parameter, click.Argument) and (parameter.required or parameter.name == "model"):
            words.append(value)
        elif isinstance(parameter, click.Option) and parameter.required:
            words += [parameter.opts[0], value]
    names = {p.name for p in command.params}
    for name, option in (("as_csv", ""), ("default", "--default"), ("rename", "--rename"), ("note", "--note")):
        if option and name in names:
            words += [option, "m"]
    if "duration" in names and "until" in names and "by" in " ".join(o for p in command.params for o in p.opts):
        words += ["--by", "30m"] if any("--by" in p.opts for p in command.params) else []
    if "nothing" in names:
        words += ["--none"]
    return [*words, *(["--yes"] if "yes" in names else []), *(["--engine", "vllm"] if "engine" in names else [])]


def _value(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    if parameter.type.name == "node/name":
        return "n1/a"
    if parameter.type.name == "preset" or parameter.metavar == "MODEL:PRESET":
        return "m:p"
    return VALUES.get(str(parameter.name), "https://example.org" if parameter.name == "url" else "x")


def offered(world: Scene, who: str, *words: str) -> list[str]:
    """What Tab offers for the last of the words."""
    app = App(httpx.WSGITransport(app=world.app), lambda: world.now, ZoneInfo("UTC"))
    found = ShellComplete(main, {"obj": app}, "slotserve", "_X").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found]


def test_tab_offers_what_there_is(world: Scene, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("SLOTSERVE_URL", "http://controller.test")
    monkeypatch.setenv("SLOTSERVE_API_KEY", world.keys["maya"])
    assert offered(world, "maya", "boo") == ["book", "bookings", "booking"]
    assert "--json" in offered(world, "maya", "status", "--")
    assert offered(world, "maya", "channel", "show", "gpu-a02/") == ["gpu-a02/tp4-a", "gpu-a02/tp4-b"]
    assert "Qwen3-32B-FP8" in offered(world, "maya", "book", "Qwen3")
    assert offered(world, "maya", "book", "--channel", "lab") == ["lab-3090/g0", "lab-3090/g1"]
    assert offered(world, "maya", "node", "cordon", "lab") == ["lab-3090"]
    mine = json.loads(run("maya", "bookings", "--json").output)["items"]
    assert set(offered(world, "maya", "booking", "show", "")) == {r["id"] for r in mine}
    assert offered(world, "maya", "bookings", "--status", "ru") == ["running"]


def test_tab_says_nothing_where_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for url in (f"http://127.0.0.1:{free_port()}", "nonsense"):
        monkeypatch.setenv("SLOTSERVE_URL", url)
        assert ShellComplete(main, {}, "slotserve", "_X").get_completions(["channel", "show"], "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_the_shell_reads_is_printed(run: Run, shell: str) -> None:
    script = run(None, "completion", shell).output
    assert "_SLOTSERVE_COMPLETE" in script
    assert json.loads(run(None, "completion", shell, "--json").output)["script"].strip() == script.strip()


def test_a_shell_completes_commands() -> None:
    """The installed command itself, as bash calls it."""
    words = {"_SLOTSERVE_COMPLETE": "bash_complete", "COMP_LINE": "slotserve chann"}
    slotserve = str(Path(sys.executable).parent / "slotserve")
    done = subprocess.run(
        [slotserve], env={**os.environ, **words}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["plain,channels", "plain,channel"]


def test_ids_may_be_shortened(run: Run) -> None:
    mine = json.loads(run("maya", "bookings", "--json").output)["items"][0]["id"]
    for part in (mine[-6:], mine[-9:]):
        assert json.loads(run("maya", "booking", "show", part, "--json").output)["id"] == mine
    answer = run("maya", "booking", "show", mine[:4])
    assert answer.exit_code == 1
    assert "write more of it" in answer.stderr
    assert run("maya", "booking", "show", "ffffff").exit_code == 1
    assert "there is no booking" in run("maya", "booking", "show", "ffffff").stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--at", "0500-01-01T00:00Z"), "--at: '0500-01-01T00:00Z' lies outside of the years 1971 to 9998"),
        (("--at", "2027-01-15T10:00"), "time zone"),
        (("--at", "26:00"), "not a time of day"),
        (("--at", "16:00", "--until", "2026-01-01T00:00Z"), "--until: lies before the start"),
        (("--at", "16:00", "--until", "16:00"), "--until: is the start itself"),
        (("--for", "0m"), "no time at all"),
        (("--for", "-2h"), "is not a duration"),
        (("--channel", "nowhere"), "a channel is named node/name"),
        (("--at", "mon 9:00", "--repeat", "weekly"), "--until DAY or --times N"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(run: Run, args: tuple[str, ...], says: str) -> None:
    answer = run("maya", "book", "Qwen3-32B-Q4_K_M", *args)
    assert answer.exit_code == 2, answer.output
    assert says in answer.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("book", "nope"), "there is no model 'nope'"),
        (("book", "Qwen3-32B-Q4_K_M:nope"), "nope"),
        (("book", "Qwen3-32B-Q4_K_M", "--note", "x" * 10_000), "4000"),
        (("book", "Qwen3-32B-Q4_K_M", "--participant", "a\r\nBcc: b@example.org"), "nobody"),
        (("key", "create", "a\nb", "--for", "lin"), "administrator"),
        (("user", "add", "a\r\nb"), "administrator"),
        (("channel", "show", "no/where"), "there is no channel no/where"),
        (("plan", "no/where"), "there is no channel"),
        (("logs", "no/where"), "there is no channel"),
        (("preset", "edit", "a:b", "--args", "-c 1"), "no preset a:b"),
        (("bookings", "--channel", "no/where"), "there is no channel"),
    ],
)
def test_what_is_refused_says_why(run: Run, args: tuple[str, ...], says: str) -> None:
    answer = run("maya", *args)
    assert answer.exit_code == 1, answer.output
    assert says in answer.stderr
    assert not answer.stdout

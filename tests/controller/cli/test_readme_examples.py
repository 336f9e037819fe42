"""The README's examples of REST and of the command line do what they say."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.console_scene import Scene
from tests.controller.cli.commands import Run

README = (Path(__file__).parents[3] / "README.md").read_text()
SECTION = README.partition("## REST and the command line")[2].partition("\n## ")[0]
NAMES = {"gpu1/a": "gpu-b01/g0", "org/model": "Qwen3-32B-Q4_K_M"}
LINES = [
    line.replace("\\\n", " ")
    for block in re.findall(r"```\n(.*?)```", SECTION, re.S)
    for line in re.split(r"(?<!\\)\n", block)
]


def words_of(line: str) -> list[str]:
    for name, here in NAMES.items():
        line = line.replace(name, here)
    return shlex.split(line, comments=True)


def test_there_are_examples() -> None:
    assert sum(line.startswith("curl") for line in LINES) >= 2
    assert sum(line.startswith("slotserve") for line in LINES) >= 5


@pytest.mark.parametrize("line", [x for x in LINES if x.startswith("slotserve") and "login" not in x])
def test_commands_work(run: Run, line: str) -> None:
    words = words_of(line)
    answer = run("lin", *words[1:])
    assert answer.exit_code == 0, answer.output
    if "--json" in words:
        assert json.loads(answer.stdout)


@pytest.mark.parametrize("line", [x for x in LINES if x.startswith("curl")])
def test_curl_lines_work(world: Scene, line: str) -> None:
    line = line.replace("$SLOTSERVE_API_KEY", world.keys["lin"]).replace("$SLOTSERVE_URL", "")
    line = line.replace("2030-01-31T16:00:00+01:00", "2026-11-19T16:00:00+08:00")
    words = words_of(line)[2:]
    headers = dict(w.split(": ", 1) for flag, w in itertools.pairwise(words) if flag == "-H")
    body = next((w for flag, w in itertools.pairwise(words) if flag == "-d"), None)
    method = "GET" if body is None else "POST"
    answer = world.app.test_client().open(words[-1], method=method, headers=headers, data=body)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.get_json()

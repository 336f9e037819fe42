"""Every sentence with which an agent explains a failure is known to the console, and said in the reader's language."""

from __future__ import annotations

import re

import pytest

from controller.console import advice
from tests.agent.engines.failures_table import rows
from tests.console_scene import Scene

ROWS = rows()


@pytest.mark.parametrize("reason", [r.reason for r in ROWS], ids=[f"{i}-{r.category}" for i, r in enumerate(ROWS)])
def test_each_reason_of_the_corpus_is_recognised(reason: str) -> None:
    found = advice.recognised(reason)
    assert found is not None
    words, groups = found
    assert len(set(re.findall(r"%\((\w)\)s", words))) <= len(groups)
    assert "?" not in groups


@pytest.mark.parametrize(
    ("reason", "chinese"),
    [
        ("out of GPU memory: lower -ngl (now 99) or -c (now 65536)", "请调小 -ngl（当前 99） 或 -c（当前 65536）。"),
        ("Out of GPU memory: lower -ngl (now 99) or -c", "请调小 -ngl（当前 99） 或 -c。"),
        ("Out of GPU memory. Lower -ngl or -c (now 65536).", "请调小 -ngl 或 -c（当前 65536）。"),
        ("the engine ended by itself before it was ready with exit status 1; see its output", "它以退出状态 1 结束，请查看其输出。"),
        ("bad argument: the engine does not know <b>; correct it in the preset, or use an engine that knows it",
         "引擎不认识 &lt;b&gt;：请在参数预设中改正，或使用认识它的引擎。"),
        ("no GPU can be seen (driver not loaded)", "看不到任何 GPU：driver not loaded。"),
        ("GPU 2, 3 cannot be seen (there are 6 others)", "看不到 GPU 2, 3；还有其他 6 个。"),
        ("something <new>", '<span lang="en">something &lt;new&gt;</span>'),
    ],
)  # fmt: skip
def test_what_a_reader_of_chinese_reads(world: Scene, reason: str, chinese: str) -> None:
    with world.app.test_request_context("/", headers={"Cookie": "language=zh_Hans"}):
        assert str(advice.spoken(reason, "Out of GPU memory")) == chinese


def test_english_stays_as_the_agent_said_it(world: Scene) -> None:
    with world.app.test_request_context("/", headers={"Cookie": "language=en"}):
        said = advice.spoken("out of GPU memory: lower -c (now 5)", "Out of GPU memory")
    assert said == '<span lang="en">lower -c (now 5)</span>'

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
    "reason",
    [
        "the engine could not be started: [Errno 8] Exec format error",
        "the engine's program /opt/x does not exist; mend its command in the node's file",
        "the engine's program x is not there or may not be executed; mend [engines.'vllm'] in the node's file",
        "the engine's program /opt/x may not be executed",
        "the engine's shim was killed from outside, and the engine with it",
        "the engine was stopped from outside: its shim was sent SIGTERM",
        "the engine before (pid 7, 8) cannot be ended; nothing is started",
        "the engine's socket /run/a/b.sock has 120 bytes, at most 103 are possible: set SLOTSERVE_AGENT_RUN_DIR to a "
        "shorter folder",
        "no GPU can be seen (no driver); without it the engine would run on the processor",
        "channel main has no engine sglang (it has: vllm, llama.cpp)",
        "vllm cannot load gguf models such as Qwen3-32B-Q4_K_M",
        "sgl is not an engine that SlotServe can start",
        "model Qwen3 is not there",
    ],
)
def test_what_an_agent_finds_before_a_start_is_said_in_chinese(world: Scene, reason: str) -> None:
    with world.app.test_request_context("/", headers={"Cookie": "language=zh_Hans"}):
        said = str(advice.spoken(reason, ""))
    assert re.search("[\u4e00-\u9fff]", said), said
    assert "lang=" not in said


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
        ("the GPU is held by somebody else's process: python3 (pid 48213, user wei, 18.4 GB on GPU 1), a.out (pid 7, user "
         "unknown, 0.5 GB on GPU 1); the model starts as soon as it is gone",
         "python3（pid 48213，用户 wei，占用 GPU 1 的 18.4 GB）, a.out（pid 7，用户 unknown，占用 GPU 1 的 0.5 GB）。"
         "该进程结束后模型立即启动。"),
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

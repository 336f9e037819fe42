"""What a person reads of each kind of failure, from the corpus: `python -m tests.agent.engines.failures_table [FILE]`.

A Markdown table, one row a sentence: the category with its headline, the engine, what it said, and the reason with the
advice. Beside the corpus stand the failures that no engine tells of: what is seen before a start, while it serves, and
what the machine says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from agent.channel_entry import held_by, stuck_words
from agent.core.alive import Limits, Look, Signs, judge
from agent.core.types import Category, Launch
from agent.engines import get
from agent.engines.base import Ended
from agent.interfaces import Holder, Trouble
from agent.runtime import cpu_fallback, preflight
from agent.runtime.models import FoundModel
from agent.settings import ChannelConfig
from controller.words import CATEGORIES
from tests.agent.engines import test_failures_llamacpp as llama
from tests.agent.engines import test_failures_torch as torch

SAID = 110


class Row(NamedTuple):
    category: str
    where: str
    said: str
    reason: str


def rows() -> list[Row]:
    """By category, then as the corpus has them; a sentence that says the same again is left out."""
    order = list(get_args(Category))
    seen: set[tuple[str, str]] = set()
    found = []
    for row in (*_corpus(), *_serving(), *_before(), *_by_status()):
        key = (row.category, row.reason)
        if key not in seen:
            seen.add(key)
            found.append(row)
    return sorted(found, key=lambda row: order.index(row.category))


def markdown() -> str:
    lines = ["| category | where | what is seen | what the person reads |", "| --- | --- | --- | --- |"]
    before = ""
    for row in rows():
        name = f"`{row.category}` {CATEGORIES[row.category]}" if row.category != before else ""
        before = row.category
        lines.append(f"| {name} | {row.where} | {_cell(row.said)} | {_cell(row.reason)} |")
    return "\n".join(lines) + "\n"


def _corpus() -> Iterator[Row]:
    for output, *_ in llama.CASES:
        yield _row("llama.cpp", llama.verdict(output))
    for engine, output, code, *_ in torch.CASES:
        yield _row(engine, torch.verdict(engine, output, code))


def _by_status() -> Iterator[Row]:
    """Nothing telling was said."""
    for ended in (Ended(-9), Ended(None, timed_out=True), Ended(-11, was_ready=True), Ended(127), Ended(0)):
        yield _row("any", get("llama.cpp").classify("", ended, ()), f"exit status {ended.code}")


def _serving() -> Iterator[Row]:
    """Of an engine that was ready (agent/core/alive.py)."""
    scenes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("silent, idle", {"health": "silent"}),
        ("its health check fails", {"health": "bad", "said": "503 from /health"}),
        ("CUDA error, then errors only", {"health": "ok", "device_error": "CUDA error: unspecified launch failure"}),
    )
    for what, look in scenes:
        signs, at = Signs(1), 0
        for _ in range(60):
            at += 5000
            probe = "failed" if "device_error" in look and at > 10_000 else None
            verdict = judge(signs, Look(at=at, probe=probe, **look), Limits())
            signs = verdict.signs
            if verdict.dead is not None:
                yield Row(verdict.dead.category, "while it serves", verdict.dead.detail or what, verdict.dead.reason)
                break


def _before() -> Iterator[Row]:
    """What is looked at without starting anything, and what the machine says."""
    channel = ChannelConfig(name="main", gpus=["GPU-1"], model_folders=[Path("/srv/models")], engines=["llama.cpp"])
    launch = Launch("i", "q", None, "llama.cpp")
    engine, here = get("llama.cpp"), str(Path(__file__))
    split = FoundModel("q", here, 1, "gguf", True, "part 2 of 3 is missing")
    empty = FoundModel("q", here, 0, "gguf", True, "q.gguf is empty")
    gone = FoundModel("q", "/srv/models/q.gguf", 1, "gguf")
    for model, seen in (
        (None, "not in the folders"),
        (gone, "its file is gone"),
        (split, "a part is missing"),
        (empty, "empty"),
    ):
        yield _trouble("before a start", seen, preflight.check_model(launch, model, engine, channel))
    yield _trouble("before a start", "no [engines] section", preflight.check_engine(launch, channel, {}))
    yield Row(
        "gpu_busy",
        "before a start",
        "a process on the GPU",
        held_by([Holder("GPU-1", 4711, "eve", "python train.py", 9 << 30)]),
    )
    yield _trouble("at its first answer", "no GPU memory was taken", cpu_fallback.SILENT)
    yield Row("hung", "at a stop", "30 s after SIGKILL", stuck_words(None, [4711]))


def _trouble(where: str, seen: str, trouble: Trouble | None) -> Row:
    assert trouble is not None
    return Row(trouble.category, where, seen, trouble.reason)


def _row(where: str, verdict: Any, seen: str = "") -> Row:
    return Row(verdict.category, where, verdict.detail or seen, verdict.reason)


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 3 * SAID else f"{text[: 3 * SAID]}…"


def main(argv: list[str]) -> int:
    if argv:
        Path(argv[0]).write_text(markdown())
    else:
        print(markdown(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A booking served by SGLang's stand-in: safetensors folder, one served name, a key by argument, a loopback port."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.tiny_hf import write_tiny_hf
from tests.parts import ROOT, pid_alive
from tests.system.cluster import Cluster, running

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
PROGRAM = [sys.executable, "-S", ROOT / "tests" / "fakes" / "sglang_server.py"]
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def sglang(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with one channel `main` of SGLang; the model `good` loads in half a second, `bad` runs out of memory."""
    for name, settings in (("good", {"load_seconds": 0.5}), ("bad", {"fail": "oom"})):
        write_tiny_hf(tmp_path / "models" / name)
        (tmp_path / "models" / name / "fake.json").write_text(json.dumps(settings))
    channels = {"main": {"folder": tmp_path / "models", "engines": ["sglang"]}}
    with running({"sglang": {"command": PROGRAM}}, channels) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) == 2, 20, "the models are known")
        yield cluster


def test_booked_served_failed_and_gone(sglang: Cluster) -> None:
    args = ["--mem", "0.85", "--ctx", "--context-length", "4096", "--po=9", "--model", "/x", "--served-model-name", "y"]
    preset = sglang.post("/presets", {"model": "good", "name": "p", "engine": "sglang", "args": args}, "maya")
    assert [d["argument"] for d in preset["dropped"]] == ["--po=9", "--model /x", "--served-model-name y"]
    assert [u["argument"] if isinstance(u, dict) else u for u in preset["unknown"]] == ["--ctx"]
    args.remove("--ctx")
    sglang.post("/presets", {"model": "good", "name": "q", "engine": "sglang", "args": args}, "maya")
    booking = sglang.book("good", 0, 3600, preset="q")
    sglang.until_ready("good", 30)
    pid = sglang.engine_pids()[0]
    maya = sglang.openai("maya")
    assert [m.id for m in maya.models.list().data] == ["good", "good:q", "auto"]
    answer = maya.chat.completions.create(model="good", messages=HELLO, max_tokens=5)
    assert (answer.model, answer.choices[0].message.content) == ("good", "aaaaa")
    pieces = list(maya.chat.completions.create(model="auto", messages=HELLO, max_tokens=5, stream=True))
    assert {c.model for c in pieces} == {"good"}
    sglang.post(f"/reservations/{booking['id']}/end", who="maya")
    sglang.until(lambda: not pid_alive(pid), 20, "the engine is gone")
    sglang.book("bad", 0, 3600)
    failure = sglang.until(lambda: sglang.channel()["failure"], 20, "the failure is told")
    assert failure["category"] == "out_of_memory"
    assert "lower --mem-fraction-static" in failure["reason"]

"""The real vLLM on this machine's processor, from a booking to its end. Opt-in: `make test-vllm`.

Left out, by name, where `make engine-parsers` has not put vLLM there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.arguments.service import environment_folder, missing
from tests.fakes.tiny_hf import write_tiny_hf
from tests.parts import pid_alive
from tests.system.cluster import Cluster, running

pytestmark = [pytest.mark.vllm_cpu, pytest.mark.slow, pytest.mark.timeout(900)]
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
# The last six are SlotServe's: the engine must not see them.
ARGS = (
    *("--dtype", "bfloat16", "--max_model_len=512", "--max-num-seqs", "4", "--enforce-eager"),
    *("--por", "9", "--served-model-name", "stolen", "other", "--model=/nowhere", "--api-key", "sk-x", "--uds", "/x"),
    *("--host.x", "0.0.0.0"),
)
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
LOAD_SECONDS = 600


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with one channel `main` of vLLM, and two models: `tiny`, and `wide` whose context fits nowhere."""
    if os.environ.get("PYTEST_XDIST_WORKER") is not None:
        pytest.skip("vllm: runs alone, by `make test-vllm`")
    why = missing("vllm")
    if why:
        pytest.skip(f"vllm: {why}")
    write_tiny_hf(tmp_path / "models" / "tiny", 1)
    write_tiny_hf(tmp_path / "models" / "wide", 2, context=3_000_000)
    engines = {"vllm": {"command": [environment_folder() / "bin" / "vllm"], "env": ENV}}
    channels = {"main": {"folder": tmp_path / "models", "engines": ["vllm"]}}
    more = {"SLOTSERVE_LOAD_TIMEOUT_SECONDS": str(LOAD_SECONDS), "SLOTSERVE_STOP_TIMEOUT_SECONDS": "20"}
    with running(engines, channels, more) as cluster:
        cluster.until(lambda: len(cluster.get("/models")["items"]) == 2, 30, "the models are known")
        yield cluster


def test_booked_served_and_stopped(vllm: Cluster) -> None:
    preset = vllm.post("/presets", {"model": "tiny", "name": "small", "engine": "vllm", "args": list(ARGS)}, "maya")
    dropped = [d["argument"] for d in preset["dropped"]]
    assert len(dropped) == 6, dropped
    assert not preset["unknown"]

    began = time.monotonic()
    booking = vllm.book("tiny", 0, 3600, preset="small")
    vllm.until_ready("tiny", LOAD_SECONDS)
    print(f"\nready {time.monotonic() - began:.1f} s after it was booked")
    pid = vllm.engine_pids()[0]
    tree = _tree(pid)
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    print(f"engine: {' '.join(command)}\nprocesses: {[Path(f'/proc/{p}/comm').read_text().strip() for p in tree]}")
    assert len(tree) >= 2, "vLLM's engine runs in a process of its own"

    maya = vllm.openai("maya")
    assert [m.id for m in maya.models.list().data] == ["tiny", "tiny:small", "auto"]
    answer = maya.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8, temperature=0)
    assert (answer.model, answer.usage.completion_tokens) == ("tiny", 8)
    print(f"answer: {answer.choices[0].message.content!r}")
    pieces = maya.chat.completions.create(model="auto", messages=HELLO, max_tokens=8, stream=True)
    told = [(c.model, c.choices[0].delta.content) for c in pieces if c.choices]
    assert {model for model, _text in told} == {"tiny"}
    assert len([text for _model, text in told if text]) >= 4
    with pytest.raises(openai.PermissionDeniedError):
        vllm.openai("tomas").chat.completions.create(model="tiny", messages=HELLO)
    log = vllm.get("/channels/n1/main/log?offset=0&limit=1000000", "maya")["text"]
    assert "Application startup complete" in log

    began = time.monotonic()
    vllm.post(f"/reservations/{booking['id']}/end", who="maya")
    vllm.until(lambda: vllm.channel()["phase"] == "off", 60, "the channel is empty")
    print(f"gone {time.monotonic() - began:.1f} s after the booking was ended")
    assert not [p for p in tree if pid_alive(p)], "the whole tree is gone"


def test_a_context_too_long_for_the_memory_is_told_with_a_length_that_fits(vllm: Cluster) -> None:
    """A GiB holds two million of this model's tokens, not three: vLLM says how many, and so does the failure."""
    args = ["--dtype", "bfloat16", "--max-num-seqs", "1", "--enforce-eager"]
    vllm.post("/presets", {"model": "wide", "name": "tight", "engine": "vllm", "args": args}, "maya")
    vllm.book("wide", 0, 3600, preset="tight")
    failure = vllm.until(lambda: vllm.channel()["failure"], LOAD_SECONDS, "the failure is told")
    print(f"\n{failure['category']}: {failure['reason']}\n  {failure['detail']}")
    assert failure["category"] == "kv_cache_too_small"
    assert "lower --max-model-len (not set: as long as the model allows) to 2097" in failure["reason"]


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            todo += [int(child) for child in children.read_text().split()]
    return found

"""The runtime with SGLang's ways: a slow health check, one name, a key by argument, a parent that kills itself."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.runtime import proc, records
from agent.runtime.gpu import Gpus
from agent.runtime.launcher import ChannelRuntime
from agent.runtime.models import ModelIndex
from agent.runtime.probe import Prober
from agent.settings import AgentSettings, ChannelConfig, EngineConfig, NodeFile
from tests.agent.runtime.runtimes import CLOCK, launch, until_ready
from tests.fakes.sglang_server import FAILURES
from tests.fakes.tiny_hf import write_tiny_hf
from tests.parts import ROOT, pid_alive

pytestmark = pytest.mark.slow  # real processes

PROGRAM = [sys.executable, "-S", str(ROOT / "tests" / "fakes" / "sglang_server.py")]


def sglang(folder: Path, **settings: Any) -> ChannelRuntime:
    """The channel `main` with SGLang and the model `q`, which tells the stand-in how to behave."""
    write_tiny_hf(folder / "models" / "q")
    (folder / "models" / "q" / "fake.json").write_text(json.dumps(settings))
    channel = ChannelConfig(name="main", model_folders=[folder / "models"], engines=["sglang"])
    node = NodeFile(node="n1", engines={"sglang": EngineConfig(command=PROGRAM)}, channels=[channel])
    own = AgentSettings(agent_state_dir=folder, agent_run_dir=folder / "run", stop_timeout_seconds=3)
    return ChannelRuntime(channel, node, own, ModelIndex([channel]), Gpus(), lambda: next(CLOCK))


async def start(r: ChannelRuntime, *args: str) -> Any:
    wanted = launch(*args, model="q", engine="sglang")
    assert await r.preflight(wanted) is None
    return await r.start(wanted, "r1", next(CLOCK))


def test_starts_serves_and_stops_with_all_it_started(folder: Path) -> None:
    async def story() -> None:
        r = sglang(folder, load_seconds=0.4)
        p = await start(r, "--po", "1", "--served-model-name=x", "--model", "/x", "--context-length", "512")
        assert not await r.probe(p), "503 while it loads"
        await until_ready(r, p)
        assert await r.probe(p)
        cheap = b"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0"
        assert cheap in proc.environ(p.engine_pid), "the health check asks the model for nothing"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{p.port}") as client:
            assert (await client.get("/v1/models")).status_code == 401
            mine = {"Authorization": f"Bearer {p.engine_key}"}
            assert (await client.get("/v1/models", headers=mine)).json()["data"][0]["id"] == "q"
        tree = [f.pid for f in proc.marked(records.CHANNEL_MARKER, str(r.paths.root))]
        assert len(tree) >= 3, "shim, server and scheduler"
        assert await r.stop(p, 3.0)
        assert not [pid for pid in tree if pid_alive(pid)]

    asyncio.run(story())


def test_another_engine_at_its_port_is_not_taken_for_it(folder: Path) -> None:
    async def story() -> None:
        r = sglang(folder)
        p = await start(r)
        await until_ready(r, p)
        stranger = Prober(replace(p, engine_key="another"))
        assert not await stranger.look(), "known by its key, where it has one name"
        await stranger.close()
        assert await r.stop(p, 3.0)

    asyncio.run(story())


def test_requests_that_never_end_do_not_hold_a_stop(folder: Path) -> None:
    """SGLang finishes what runs, without a limit; the stop has one."""

    async def story() -> None:
        r = sglang(folder, token_seconds=0.2)
        p = await start(r)
        await until_ready(r, p)
        body = {"model": "q", "messages": [], "max_tokens": 10_000, "stream": True}
        headers = {"Authorization": f"Bearer {p.engine_key}"}
        async with httpx.AsyncClient(timeout=20) as client:
            url = f"http://127.0.0.1:{p.port}/v1/chat/completions"
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                await anext(answer.aiter_lines())
                assert await r.stop(p, 0.5)
        assert not pid_alive(p.engine_pid)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fail", "category", "words"),
    [
        ("oom", "out_of_memory", "lower --mem-fraction-static (now 0.9) or --context-length (now 4096)"),
        ("kv", "kv_cache_too_small", "raise --mem-fraction-static (now 0.9)"),
        ("busy", "gpu_busy", "other processes"),
        ("architecture", "unsupported_architecture", "FrobForCausalLM"),
        ("assert", "crashed", "it ended itself"),
        ("killed", "killed_by_kernel", "main memory ran out"),
    ],
)
def test_killed_by_itself_is_not_killed_by_the_kernel(folder: Path, fail: str, category: str, words: str) -> None:
    async def story() -> None:
        r = sglang(folder, fail=fail)
        p = await start(r, "--mem", "0.9", "--context-length", "4096")
        trouble = await asyncio.wait_for(r.wait_exit(p), 15)
        ended = records.read_exit(r.paths, p.launch_id)
        assert ended is not None
        assert ended.code == -9
        assert (trouble.category, words in trouble.reason) == (category, True), trouble
        if fail in FAILURES:
            assert trouble.detail == FAILURES[fail]

    asyncio.run(story())


def test_a_scheduler_that_dies_later(folder: Path) -> None:
    async def story() -> None:
        r = sglang(folder, fail="assert", fail_after=1.0)
        p = await start(r)
        await until_ready(r, p)
        trouble = await asyncio.wait_for(r.wait_exit(p), 15)
        assert (trouble.category, "while it served" in trouble.reason) == ("crashed", True), trouble

    asyncio.run(story())


def test_arguments_that_it_refuses(folder: Path) -> None:
    async def story() -> None:
        r = sglang(folder)
        p = await start(r, "--model_path", "/x", "--frobnicate")
        trouble = await asyncio.wait_for(r.wait_exit(p), 15)
        assert trouble.category == "bad_argument"
        assert "unrecognized arguments: --model_path /x --frobnicate" in trouble.reason

    asyncio.run(story())

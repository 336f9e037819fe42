"""The runtime with the real llama-server and with the simulated engine."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.interfaces import Process
from agent.runtime import records
from agent.runtime.probe import served_names
from controller.cli.demo_model import write_tiny_gguf
from tests.agent.runtime.runtimes import launch, runtime, start, until_ready
from tests.parts import pid_alive, unix_client


@pytest.fixture
def llama(folder: Path, llama_server: Any, tiny_gguf: Path) -> Any:
    """A runtime with the real llama-server and the tiny model `tiny`."""
    (folder / "models").mkdir()
    shutil.copy(tiny_gguf, folder / "models" / "tiny.gguf")
    return runtime(folder, llama_server.command, env=llama_server.env)


@pytest.mark.llama_server
def test_llama_server_starts_answers_and_stops_cleanly(llama: Any) -> None:
    async def story() -> None:
        assert await llama.preflight(launch("-c", "256", model="tiny")) is None
        begun = time.monotonic()
        p = await start(llama, "-c", "256", "-np", "1", model="tiny")
        await until_ready(llama, p, 30)
        print(f"ready after {time.monotonic() - begun:.2f} s")
        with unix_client(p.socket, p.engine_key) as client:
            models = client.get("/v1/models").json()
            assert models["data"][0]["id"] == "tiny", "answers show the catalogue name"
            answer = client.post("/v1/completions", json={"model": "tiny", "prompt": "the", "max_tokens": 3})
            assert answer.json()["model"] == "tiny"
        with unix_client(p.socket) as stranger:
            assert stranger.post("/v1/completions", json={"prompt": "x"}).status_code == 401
        begun = time.monotonic()
        assert await llama.stop(p, 10.0)
        print(f"gone after {time.monotonic() - begun:.2f} s")
        ended = records.read_exit(llama.paths, p.launch_id)
        assert ended is not None
        assert (ended.code, ended.killed, ended.stop_asked) == (0, False, True)
        assert "llama" in llama.logs.tail(p.launch_id)

    asyncio.run(story())


@pytest.mark.llama_server
def test_llama_server_says_itself_what_it_does_not_know(llama: Any) -> None:
    async def story() -> None:
        found = await llama.preflight(launch("--no-such-option", "3", model="tiny"))
        assert found is not None
        assert found.category == "bad_argument"
        assert "--no-such-option" in found.reason
        assert "invalid argument" in found.detail
        for args, words in (
            (("-ctk", "nonsense"), "refuses the value of -ctk"),
            (("-dev", "CUDA7"), "refuses the value of -dev"),
            (("-c", "many"), "refuses the value of -c"),
        ):
            found = await llama.preflight(launch(*args, model="tiny"))
            assert found is not None, args
            assert (found.category, words in found.reason) == ("bad_argument", True), found
        for args in (("--flash-attn", "on"), ("--metrics",), ("-c", "512", "-np", "2")):
            assert await llama.preflight(launch(*args, model="tiny")) is None, args
        p = await start(llama, "--no-such-option", "3", model="tiny")
        trouble = await asyncio.wait_for(llama.wait_exit(p), 20)
        assert trouble.category == "bad_argument"

    asyncio.run(story())


@pytest.mark.llama_server
def test_llama_server_and_a_file_that_was_cut_short(llama: Any, folder: Path) -> None:
    async def story() -> None:
        path = folder / "models" / "tiny.gguf"
        path.write_bytes(path.read_bytes()[:100_000])
        assert await llama.preflight(launch(model="tiny")) is None, "only the engine can tell"
        p = await start(llama, model="tiny")
        trouble = await asyncio.wait_for(llama.wait_exit(p), 20)
        assert trouble.category == "broken_file", (trouble, llama.logs.tail(p.launch_id))
        assert trouble.detail

    asyncio.run(story())


def test_simulated_engine_all_the_way(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "sim.gguf").write_text("simulated\nload-seconds = 0.2\n")
        p = await r.start(launch(model="sim", engine="simulated"), "", 1_800_000_000_000)
        await until_ready(r, p)
        assert json.loads(r.paths.run.read_text())["engine_pid"] == p.engine_pid
        assert await r.stop(p, 3.0)
        found = await r.preflight(launch("--sim-nonsense", model="sim", engine="simulated"))
        assert found is not None
        assert found.category == "bad_argument"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("args", "category"),
    [
        (("--sim-oom",), "out_of_memory"),
        (("--sim-crash-at-load",), "crashed"),
        (("--sim-crash-at-load", "--sim-exit-code", f"-{int(signal.SIGKILL)}"), "killed_by_kernel"),
    ],
)
def test_simulated_failures_in_words(folder: Path, args: tuple[str, ...], category: str) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "sim.gguf").write_text("simulated\n")
        p = await r.start(launch(*args, model="sim", engine="simulated"), "", 1_800_000_000_000)
        trouble = await asyncio.wait_for(r.wait_exit(p), 20)
        assert trouble.category == category
        assert trouble.reason

    asyncio.run(story())


def test_simulated_engine_that_will_not_stop_with_a_worker(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "sim.gguf").write_text("simulated\nignore-sigterm\nleave-worker\n")
        p = await r.start(launch(model="sim", engine="simulated"), "", 1_800_000_000_000)
        await until_ready(r, p)
        assert await r.stop(p, 0.3)
        assert not pid_alive(p.engine_pid)

    asyncio.run(story())


def test_load_time_out_and_wrong_name(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "sim.gguf").write_text("simulated\n")
        p = await r.start(launch("--sim-wrong-name", "sim", model="sim", engine="simulated"), "", 1_800_000_000_000)
        await asyncio.sleep(0.5)
        assert not await r.probe(p)
        trouble = r.why_died(p)
        assert trouble.category == "load_timeout"
        assert await r.stop(p, 3.0)
        assert r.logs.launches()[0].failed, "given up is failed, though it was stopped"

    asyncio.run(story())


@pytest.mark.llama_server
def test_llama_server_is_seen_to_be_alive(llama: Any) -> None:
    async def story() -> None:
        p = await start(llama, "-c", "256", "-np", "1", model="tiny")
        await until_ready(llama, p, 30)
        vitals = llama.vitals(p)
        try:
            assert await vitals.health() == ("ok", "")
            assert await vitals.works(), "the first look cannot know"
            assert await vitals.ask_small() == ("answered", "")
            await asyncio.sleep(1.0)
            await vitals.works()
            await asyncio.sleep(2.0)
            assert not await vitals.works(), "it idles"
            assert await vitals.new_device_error() == ""
        finally:
            await vitals.close()
        assert await llama.stop(p, 10.0)

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.llama_server
@pytest.mark.timeout(300)
def test_a_gigabyte_loads_visibly_and_can_be_stopped_meanwhile(llama: Any, folder: Path) -> None:
    """The loading phase of the real program: it listens at once, says that it loads, is not taken for ready, and goes
    when it is told to; afterwards the same model loads to its end."""
    write_tiny_gguf(folder / "models" / "big.gguf", 1024, 24)

    async def health(p: Process) -> int:
        with unix_client(p.socket, timeout=5) as client:
            try:
                return client.get("/health").status_code
            except httpx.TransportError:
                return 0  # it does not listen yet

    async def story() -> None:
        p = await start(llama, "-c", "256", "-np", "1", model="big")
        while (said := await health(p)) == 0:
            assert pid_alive(p.engine_pid)
            await asyncio.sleep(0.005)
        assert said == 503, "it answers, and is still loading"
        assert not await llama.probe(p)
        begun = time.monotonic()
        assert await llama.stop(p, 20.0)
        print(f"stopped while loading in {time.monotonic() - begun:.2f} s")
        assert not pid_alive(p.engine_pid)
        ended = records.read_exit(llama.paths, p.launch_id)
        assert ended is not None
        assert (ended.stop_asked, ended.killed) == (True, False)

        begun = time.monotonic()
        p = await start(llama, "-c", "256", "-np", "1", model="big")
        await until_ready(llama, p, 200)
        print(f"1 GB ready after {time.monotonic() - begun:.2f} s")
        assert p.unique_name in served_names(await models(p))
        assert await llama.stop(p, 20.0)

    async def models(p: Process) -> Any:
        with unix_client(p.socket, p.engine_key) as client:
            return client.get("/v1/models").json()

    asyncio.run(story())

"""A channel with GPUs: who is foreign on them, an engine that fell back to the processor, and the real NVML binding."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.interfaces import Holder
from agent.runtime import cpu_fallback
from agent.runtime import gpu as gpu_module
from agent.runtime.gpu import Gpus
from tests.agent.runtime.fake_nvml import GIB, A, B, FakeNvml
from tests.agent.runtime.runtimes import launch, runtime, start, until_ready
from tests.parts import ROOT, pid_alive, wait_until


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(gpu_module, "RETRY_SECONDS", 0.0)
    return FakeNvml()


def test_foreign_holders_are_those_that_are_not_of_the_channel(folder: Path, nvml: FakeNvml) -> None:
    async def story() -> None:
        r = runtime_on(folder, nvml, [0])
        p = await start(r, "--fake-worker")
        nvml.used[A] += GIB
        await until_ready(r, p)
        assert r.gpu_memory(p) == GIB
        worker = int(wait_until(lambda: "worker " in r.logs.tail(p.launch_id) and r.logs.tail(p.launch_id).split()[-1]))
        nvml.running[A] = [(p.engine_pid, GIB), (worker, GIB), (os.getpid(), 3 * GIB), (999_999_999, None)]
        nvml.running[B] = [(1, GIB)]
        first, second = await r.gpu_holders()
        assert (first.gpu, first.pid, first.memory_bytes) == (A, os.getpid(), 3 * GIB)
        assert first.user
        assert "py" in first.command
        assert second == Holder(A, 999_999_999, "?", "?", 0)
        environ = Path(f"/proc/{p.engine_pid}/environ").read_bytes()
        assert f"CUDA_VISIBLE_DEVICES={A}".encode() in environ.split(b"\0")
        assert json.loads(r.paths.run.read_text())["gpu_used"] == {A: GIB}
        assert await r.stop(p, 0.3)
        nvml.running[A], nvml.used[A] = [], GIB
        assert await r.wait_memory_free() == ""
        assert await r.gpu_holders() == []

    asyncio.run(story())


def runtime_on(folder: Path, nvml: FakeNvml, declared: list[Any]) -> Any:
    """A runtime of a channel with these GPUs of the made-up driver."""
    return runtime(folder, driver=Gpus(nvml), gpus=declared)


def test_declared_gpu_that_cannot_be_seen_is_told_before_the_start(folder: Path, nvml: FakeNvml) -> None:
    async def story() -> None:
        r = runtime_on(folder, nvml, [B])
        nvml.error = 9
        found = await r.preflight(launch())
        assert found is not None
        assert found.category == "cpu_fallback"
        assert "no GPU can be seen" in found.reason
        nvml.error = 0
        assert await r.preflight(launch()) is None

    asyncio.run(story())


def test_engine_without_a_gpu_is_ended_and_says_why(folder: Path, nvml: FakeNvml) -> None:
    async def story() -> None:
        r = runtime_on(folder, nvml, [A])
        p = await start(
            r, "--fake-say", "warning: no usable GPU found, --gpu-layers option will be ignored", "-ngl", "99"
        )
        watcher = asyncio.ensure_future(r.wait_exit(p))
        wait_until(lambda: r.logs.tail(p.launch_id))
        for _ in range(100):
            assert not await r.probe(p)
            if watcher.done():
                break
            await asyncio.sleep(0.02)
        trouble = await asyncio.wait_for(watcher, 20)
        assert trouble.category == "cpu_fallback"
        assert not pid_alive(p.engine_pid)
        assert r.logs.launches()[0].failed

    asyncio.run(story())


@pytest.mark.parametrize(
    ("taken", "args", "ready"),
    [
        ("", (), False),
        ("memory", (), True),
        ("process", (), True),
        ("", ("--n_gpu_layers", "0"), True),
        ("", ("--device=none",), True),
        ("unreadable", (), True),
    ],
)
def test_ready_means_that_memory_rose_on_a_gpu(
    folder: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, taken: str, args: tuple[str, ...], ready: bool
) -> None:
    monkeypatch.setattr(cpu_fallback, "SETTLE", 0.2)

    async def story() -> None:
        nvml.silent = taken == "unreadable"
        r = runtime_on(folder, nvml, [A])
        p = await start(r, *args)
        if taken == "memory":
            nvml.used[A] += GIB
        if taken == "process":
            nvml.running[A] = [(p.engine_pid, None)]
        if ready:
            await until_ready(r, p)
            assert await r.stop(p, 2.0)
            return
        watcher = asyncio.ensure_future(r.wait_exit(p))
        while not watcher.done():
            assert not await r.probe(p)
            await asyncio.sleep(0.02)
        trouble = watcher.result()
        assert trouble.category == "cpu_fallback"
        assert "no memory on the channel's GPUs" in trouble.reason

    asyncio.run(story())


def test_without_gpus_the_same_line_is_nothing(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-say", "warning: no usable GPU found, --gpu-layers option will be ignored")
        await until_ready(r, p)
        assert await r.stop(p, 2.0)

    asyncio.run(story())


SCRIPT = """
import json, sys
from dataclasses import astuple
from agent.runtime import gpu
gpu.RETRY_SECONDS = 0
gpus, state = gpu.Gpus(), sys.argv[1]
def set(text): open(state, "w").write(text)
out = []
def look(): out.append([[astuple(g) for g in gpus.inventory()], [astuple(p) for p in gpus.processes([0, 1])], gpus.reason])
set("error 9"); look()
set("gpu GPU-1 100 50 11:20 12:30\\ngpu GPU-2 200 0\\n"); look()
set("gpu GPU-1 100 50\\n"); look()
set("error 9"); look()
set("gpu GPU-1 100 0\\n"); look()
set("use 7\\ngpu GPU-1 0 0\\ngpu GPU-2 100 0 12:30\\n"); look()
print(json.dumps(out))
"""


def build(folder: Path) -> dict[str, str]:
    """The small driver, built into `folder`: the environment in which it is found."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    for library in ("nvidia-ml", "cuda"):
        source = ROOT / "tests" / "fakes" / f"small_{'nvml' if library == 'nvidia-ml' else library}.c"
        target = folder / f"lib{library}.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(target), str(source)], check=True)
    paths = {"LD_LIBRARY_PATH": str(folder), "SMALL_NVML": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **paths, "PATH": "/nonexistent"}


CARDS = "gpu GPU-11112222-3333 85899345920 1073741824\ngpu GPU-2 10737418240 0\n"


@pytest.mark.parametrize(
    ("state", "status", "lines"),
    [
        (
            CARDS,
            0,
            ("PASS both are among its processes", "PASS after a SIGKILL", "PASS memory is seen to rise", "0 FAIL"),
        ),
        ("shift 4000000\n" + CARDS, 0, ("SKIP both are among its processes", "outside a container", "0 FAIL")),
        ("mute 1\nuse -1\n" + CARDS, 0, ("names no processes", "SKIP its use is above 0", "PASS what holds", "0 FAIL")),
        ("use 0\n" + CARDS, 1, ("FAIL its use is above 0 while they compute: [0] %", "1 FAIL")),
        (CARDS + "gpu GPU-3 0 0\n", 1, ("FAIL GPU 2 is well: GPU is lost", "PASS after a SIGKILL", "1 FAIL")),
        ("error 9\n", 1, ("FAIL the driver answers and knows a GPU: Driver Not Loaded", "1 FAIL")),
        ("", 2, ("nothing to check: the driver knows no GPU",)),
    ],
    ids=("well", "container", "mute", "idle", "lost", "no driver", "no GPU"),
)
def test_the_check_against_a_real_driver_works_itself(
    tmp_path: Path, state: str, status: int, lines: tuple[str, ...]
) -> None:
    """tests/device/check_gpu.py over a small libcuda and a small NVML: what it looks at is right there."""
    env = build(tmp_path)
    (tmp_path / "state").write_text(state)
    if state[:3] in ("use", "shi", "mut"):  # it waits in vain
        env["CHECK_GPU_PATIENCE"] = "0.5"
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.check_gpu"],
        env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert not [line for line in lines if line not in done.stdout], done.stdout


def test_the_real_binding(tmp_path: Path) -> None:
    """nvidia-ml-py over a library built for the test: driver late, GPUs, processes, a GPU gone, the driver gone and back."""
    env, state = build(tmp_path), tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(state)], env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    late, up, one_gone, down, back, lost = (
        SimpleNamespace(gpus=a, procs=b, reason=c) for a, b, c in json.loads(done.stdout)
    )
    assert (late.gpus, late.reason) == ([], "Driver Not Loaded")
    told = [42, 51, 300]  # use, temperature, power
    assert up.gpus == [
        [0, "GPU-1", "Small GPU", 100, 50, *told, [["GPU-1", 11, 20], ["GPU-1", 12, 30]], ""],
        [1, "GPU-2", "Small GPU", 200, 0, *told, [], ""],
    ]
    assert up.procs == [["GPU-1", 11, 20], ["GPU-1", 12, 30]]
    assert [g[1] for g in one_gone.gpus] == ["GPU-1"]
    assert (down.gpus, down.reason) == ([], "Driver Not Loaded")
    assert [g[1] for g in back.gpus] == ["GPU-1"]
    assert back.reason == ""
    assert lost.gpus == [
        [0, "GPU-1", "Small GPU", 0, 0, None, None, None, [], "GPU is lost"],
        [1, "GPU-2", "Small GPU", 100, 0, 7, 33, 300, [["GPU-2", 12, 30]], ""],
    ]
    assert lost.procs == [["GPU-2", 12, 30]]

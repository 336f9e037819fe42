"""A channel's runtime with real processes: start, ready, stop, crashes in words."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from agent.interfaces import StartFailed
from agent.runtime import proc, stopping
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER
from tests.agent.runtime.runtimes import runtime, start, until_ready
from tests.parts import pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes


def test_start_ready_stop(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        assert r.adopt() is None
        p = await start(r, "--fake-load", "0.3")
        assert p.unique_name == f"m~{p.launch_id}"
        assert p.socket == str(folder / "run" / "main.sock")
        assert (folder / "run").stat().st_mode & 0o777 == 0o700
        assert not await r.probe(p), "still loading"
        await until_ready(r, p)
        environ = dict(e.partition(b"=")[::2] for e in proc.environ(p.engine_pid))
        assert environ[LAUNCH_MARKER.encode()].decode() == p.launch_id
        assert environ[CHANNEL_MARKER.encode()].decode() == str(r.paths.root)
        assert p.engine_key.encode() == environ[b"LLAMA_API_KEY"]
        assert p.engine_key not in proc.command(p.engine_pid, 10_000)
        assert Path(environ[b"HOME"].decode()).is_dir()
        assert not list(r.paths.root.glob("spec-*")), "the file with the key is gone"
        assert json.loads(r.paths.ready.read_text())["launch_id"] == p.launch_id
        assert await r.stop(p, 60.0), "and before its time-out: it obeys"
        assert not pid_alive(p.engine_pid)
        assert not Path(f"/proc/{p.shim_pid}").exists(), "reaped, no zombie"
        (log,) = r.logs.launches()
        assert (log.ended, log.failed, log.model, log.reservation_id) == (True, False, "m", "r1")
        assert r.logs.tail(p.launch_id) == "small server\n"
        wait_until(lambda: not Path(environ[b"HOME"].decode()).exists(), what="the launch's home is gone")

    asyncio.run(story())


def test_deaf_engine_and_its_worker_are_gone_after_the_time_out(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-deaf", "--fake-worker")
        await until_ready(r, p)
        worker = int(wait_until(lambda: "worker " in r.logs.tail(p.launch_id) and r.logs.tail(p.launch_id).split()[-1]))
        begun = time.monotonic()
        assert await r.stop(p, 0.5)
        assert time.monotonic() - begun >= 0.5, "it had its time"
        assert not pid_alive(p.engine_pid)
        assert not pid_alive(worker)

    asyncio.run(story())


def test_stop_while_loading_and_twice(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-load", "60")
        watcher = asyncio.ensure_future(r.wait_exit(p))
        assert await r.stop(p, 5.0)
        assert (await watcher).reason == "the engine was stopped"
        assert await r.stop(p, 5.0), "what is gone is gone"
        assert not r.logs.launches()[0].failed

    asyncio.run(story())


@pytest.mark.parametrize(
    ("args", "category", "words"),
    [
        (("--fake-say", "error: invalid argument: --x", "--fake-exit", "1"), "bad_argument", "--x"),
        (("--fake-say", "cudaMalloc failed: out of memory", "--fake-exit", "1"), "out_of_memory", "-ngl"),
        (("--fake-exit", "3"), "crashed", "3"),
    ],
)
def test_a_crash_is_told_in_words(folder: Path, args: tuple[str, ...], category: str, words: str) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, *args)
        trouble = await asyncio.wait_for(r.wait_exit(p), 20)
        assert trouble.category == category
        assert words in trouble.reason + trouble.detail
        assert not await r.probe(p)
        assert r.logs.launches()[0].failed
        assert await r.stop(p, 1.0), "clearing away afterwards is no error"

    asyncio.run(story())


def test_engine_killed_wakes_at_once_and_leaves_nothing(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-worker")
        await until_ready(r, p)
        worker = int(wait_until(lambda: "worker " in r.logs.tail(p.launch_id) and r.logs.tail(p.launch_id).split()[-1]))
        watcher = asyncio.ensure_future(r.wait_exit(p))
        await asyncio.sleep(0.05)
        os.kill(p.engine_pid, signal.SIGKILL)
        trouble = await asyncio.wait_for(watcher, 20)
        assert trouble.category in ("killed_by_kernel", "crashed")
        assert not pid_alive(worker)

    asyncio.run(story())


def test_shim_killed_takes_all_with_it_and_says_so(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-worker")
        await until_ready(r, p)
        worker = int(wait_until(lambda: "worker " in r.logs.tail(p.launch_id) and r.logs.tail(p.launch_id).split()[-1]))
        os.kill(p.shim_pid, signal.SIGKILL)
        trouble = await asyncio.wait_for(r.wait_exit(p), 20)
        assert "shim was killed" in trouble.reason
        assert not pid_alive(p.engine_pid)
        assert not pid_alive(worker), "found by the marker, though the shim is gone"

    asyncio.run(story())


def test_frozen_shim_does_not_hold_up_a_stop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SHIM_GRACE", 0.3)

    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-deaf")
        await until_ready(r, p)
        os.kill(p.shim_pid, signal.SIGSTOP)
        assert await r.stop(p, 0.2)
        assert not pid_alive(p.engine_pid)
        assert not pid_alive(p.shim_pid)

    asyncio.run(story())


def test_what_cannot_be_ended_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SHIM_GRACE", 0.1)
    monkeypatch.setattr(stopping, "GIVE_UP", 0.3)

    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-deaf")
        monkeypatch.setattr(proc, "send", lambda *_: False)
        monkeypatch.setattr(proc, "send_all", lambda *_: None)
        assert not await r.stop(p, 0.1)
        monkeypatch.setattr(r, "_stop_timeout", 0.1)
        with pytest.raises(StartFailed) as refused:
            await start(r)
        assert str(p.engine_pid) in refused.value.trouble.reason
        assert refused.value.trouble.category == "hung"

    asyncio.run(story())


def test_another_engine_can_never_pass_as_ours(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        p = await start(r, "--fake-name", "m")
        for _ in range(20):
            assert not await r.probe(p)
            await asyncio.sleep(0.02)
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_a_second_start_waits_for_the_first_to_be_gone(folder: Path) -> None:
    """However the first one was left: here its owner has forgotten it."""

    async def story() -> None:
        r = runtime(folder)
        first = await start(r)
        second = await start(r)
        assert not pid_alive(first.engine_pid)
        await until_ready(r, second)
        assert await r.stop(second, 2.0)

    asyncio.run(story())


def test_a_cancelled_start_leaves_nothing(folder: Path) -> None:
    async def story() -> None:
        for delay in (0.0, 0.005, 0.01, 0.015, 0.02, 0.03):
            r = runtime(folder)
            task = asyncio.ensure_future(start(r))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():
                r.adopt()
                assert proc.marked(CHANNEL_MARKER, str(r.paths.root)) == []
            else:
                assert await r.stop(task.result(), 2.0)

    asyncio.run(story())


def test_many_starts_leave_no_zombie_and_no_open_file(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        files = []
        for _ in range(4):
            p = await start(r)
            await until_ready(r, p)
            assert await r.stop(p, 2.0)
            files.append(len(os.listdir("/proc/self/fd")))
        assert files[-1] <= files[1]
        assert not [s for s in proc.all_stats() if s.ppid == os.getpid() and s.state == "Z"]

    asyncio.run(story())

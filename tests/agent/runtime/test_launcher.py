"""A channel's runtime with real processes: start, ready, stop, crashes in words, what is refused before a start."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.interfaces import StartFailed
from agent.runtime import preflight, preparation, proc, spawn, stopping
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER
from tests.agent.runtime.runtimes import end_all, launch, runtime, start, until_ready
from tests.parts import pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes


@pytest.fixture
def folder(short_dir: Path) -> Iterator[Path]:
    yield short_dir
    end_all(short_dir)


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


@pytest.mark.parametrize(
    ("change", "category", "words"),
    [
        ({"engine": "vllm"}, "bad_argument", "channel main has no engine vllm (it has: llama.cpp, simulated)"),
        ({"model": "nobody"}, "missing_file", "model nobody is not in the channel's model folders"),
        ({"model": "empty"}, "broken_file", "empty.gguf is empty"),
        ({"model": "big"}, "missing_file", "part 2 of 2 is missing"),
        ({"model": "folder"}, "bad_argument", "llama.cpp cannot load safetensors"),
    ],
)
def test_what_is_known_before_a_start(folder: Path, change: dict[str, Any], category: str, words: str) -> None:
    async def story() -> None:
        r = runtime(folder)
        models = folder / "models"
        (models / "empty.gguf").touch()
        (models / "big-00001-of-00002.gguf").write_bytes(b"GGUF")
        (models / "folder").mkdir()
        (models / "folder" / "config.json").touch()
        (models / "folder" / "x.safetensors").touch()
        assert await r.preflight(launch()) is None
        found = await r.preflight(launch(**change))
        assert found is not None
        assert found.category == category
        assert words in found.reason
        with pytest.raises(StartFailed) as refused:
            await start(r, **change)
        assert refused.value.trouble == found

    asyncio.run(story())


def test_program_that_is_not_there(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder, ["/nonexistent/llama-server"])
        found = await r.preflight(launch())
        assert found is not None
        assert "/nonexistent/llama-server is not there" in found.reason

    asyncio.run(story())


def test_program_that_cannot_be_executed(folder: Path) -> None:
    async def story() -> None:
        program = folder / "llama-server"
        program.write_text("#!/no/such/interpreter\n")
        program.chmod(0o755)
        with pytest.raises(StartFailed) as refused:
            await start(runtime(folder, [str(program)]))
        assert refused.value.trouble.category == "missing_file"

    asyncio.run(story())


@pytest.mark.parametrize("where", ["spawn", "logs"])
def test_a_full_disk_is_told_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/state/file")

    async def story() -> None:
        r = runtime(folder)
        with monkeypatch.context() as patch:
            patch.setattr(f"agent.runtime.{where}.write_json", full)
            with pytest.raises(StartFailed) as refused:
                await start(r)
        assert "is full: free some space on the node" in refused.value.trouble.reason
        p = await start(r)
        await until_ready(r, p)
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_the_channels_own_environment_counts_more_than_the_engines(folder: Path) -> None:
    async def story() -> None:
        r = runtime(
            folder, env={"HIP_VISIBLE_DEVICES": "0", "A": "engine"}, env_of_channel={"HIP_VISIBLE_DEVICES": "1"}
        )
        p = await start(r)
        environ = dict(e.decode().partition("=")[::2] for e in proc.environ(p.engine_pid))
        assert (environ["HIP_VISIBLE_DEVICES"], environ["A"], environ["CUDA_VISIBLE_DEVICES"]) == ("1", "engine", "")
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_on_a_full_disk_old_output_makes_room_for_a_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        r = runtime(folder)
        for _ in range(2):
            p = await start(r)
            await until_ready(r, p)
            assert await r.stop(p, 2.0)
        monkeypatch.setattr(spawn, "_free", lambda _: 0)
        p = await start(r)
        await until_ready(r, p)
        assert len(r.logs.launches()) == 2, "the last one's words and its own"
        assert await r.stop(p, 2.0)

    asyncio.run(story())


def test_file_that_came_after_the_last_look_is_found(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder)
        (folder / "models" / "new.gguf").write_bytes(b"GGUF")
        assert await r.preflight(launch(model="new")) is None
        (folder / "models" / "new.gguf").unlink()
        found = await r.preflight(launch(model="new"))
        assert found is not None
        assert found.category == "missing_file"

    asyncio.run(story())


def test_a_socket_path_that_is_too_long_is_told_with_its_remedy(folder: Path) -> None:
    async def story() -> None:
        r = runtime(folder, run_dir=folder / ("x" * 100))
        found = await r.preflight(launch())
        assert found is not None
        assert "at most 107" in found.reason
        assert "SLOTSERVE_AGENT_RUN_DIR" in found.reason

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


def test_a_disk_that_does_not_answer_is_a_failure_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that is gone neither blocks the loop nor keeps a start for ever."""
    monkeypatch.setattr(preparation, "LONGEST", 0.2)
    goes_on = threading.Event()

    async def story() -> None:
        r = runtime(folder)
        assert await r.preflight(launch()) is None
        exists = Path.exists
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", lambda path: goes_on.wait(10) and exists(path))
            beats = asyncio.ensure_future(asyncio.sleep(0.1))
            found = await r.preflight(launch())
            assert beats.done(), "the loop went on"
            assert found is not None
            assert (found.category, "does not answer" in found.reason) == ("hung", True)
            with pytest.raises(StartFailed) as refused:
                await start(r)
            assert refused.value.trouble == found
            goes_on.set()
        assert await r.preflight(launch()) is None

    asyncio.run(story())


ASKED = """#!/bin/sh
echo "$@" >> {0}/asked
case "$*" in *nonsense*) echo 'error while handling argument "-ctk": Unsupported cache type: nonsense' >&2; exit 1;; esac
exit 0
"""


def test_the_program_is_asked_once_as_long_as_it_is_the_same(folder: Path) -> None:
    program = folder / "llama-server"
    program.write_text(ASKED.format(folder))
    program.chmod(0o755)

    def asked() -> int:
        return len((folder / "asked").read_text().splitlines())

    async def story() -> None:
        r = runtime(folder, [str(program)])
        for _ in range(3):
            assert await r.preflight(launch("-c", "512")) is None
        assert asked() == 1
        for _ in range(3):
            found = await r.preflight(launch("-ctk", "nonsense"))
            assert found is not None
            assert (found.category, "-ctk" in found.reason) == ("bad_argument", True)
        assert asked() == 2
        program.write_text(ASKED.format(folder) + "# a newer one\n")
        assert await r.preflight(launch("-c", "512")) is None
        assert asked() == 3
        assert "run/main.sock" not in (folder / "asked").read_text(), "it could take the socket of what serves"

    asyncio.run(story())


def test_a_program_that_does_not_end_when_asked_is_no_hindrance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ASK_TIMEOUT", 0.2)
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\nsleep 60\n")
    program.chmod(0o755)
    assert asyncio.run(runtime(folder, [str(program)]).preflight(launch())) is None
    wait_until(lambda: not pid_alive(int((folder / "pid").read_text())))


def test_what_the_program_starts_when_asked_ends_with_the_question(folder: Path) -> None:
    """A wrapper that puts something into the background, in a session of its own, with its output elsewhere."""
    program = folder / "llama-server"
    program.write_text(f"#!/bin/sh\nsetsid sh -c 'trap \"\" TERM; echo $$ > {folder}/pid; sleep 60' > /dev/null 2>&1 &\n"
                       f"while [ ! -s {folder}/pid ]; do sleep 0.01; done\n")  # fmt: skip
    program.chmod(0o755)
    assert asyncio.run(runtime(folder, [str(program)]).preflight(launch())) is None
    wait_until(lambda: not pid_alive(int((folder / "pid").read_text())))

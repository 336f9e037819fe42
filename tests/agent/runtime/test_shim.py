"""The shim as a real process: stop, SIGKILL after the time-out, workers with sessions of their own, records, log segments."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.runtime import proc
from agent.runtime import shim as shim_program
from agent.runtime.logs import LogFolder
from agent.runtime.records import CHANNEL_MARKER, LAUNCH_MARKER
from agent.runtime.spawn import SHIM
from tests.parts import pid_alive, wait_until

pytestmark = pytest.mark.slow  # real processes

ENGINE = Path(__file__).parents[2] / "fakes" / "tree_engine.py"
LAUNCH = f"0000000000001-{os.getpid():08x}"  # the shim ends whatever carries it: no two test workers share one


class Shim:
    """A shim with the engine tests/fakes/tree_engine.py."""

    def __init__(self, folder: Path, flags: tuple[str, ...], **more: Any) -> None:
        self.folder = folder
        self.exit, self.run, self.asked = folder / "exit.json", folder / "run.json", folder / "stop.json"
        self.log = LogFolder(folder / "logs")
        self.log.path.mkdir(exist_ok=True)
        spec = folder / "spec.json"
        body = {
            "launch_id": LAUNCH,
            "command": [sys.executable, "-S", str(ENGINE), str(folder), *flags],
            "env": {"PATH": os.environ["PATH"]},
            "cwd": str(folder),
            "markers": {LAUNCH_MARKER: LAUNCH, CHANNEL_MARKER: str(folder)},
            "stop_timeout": 20.0,
            "log": {"folder": str(folder / "logs"), "segment_bytes": 1 << 20, "segments": 3},
            "paths": {"run": str(self.run), "exit": str(self.exit), "stop": str(self.asked)},
            "record": {"model": "m", "engine_key": "secret"},
            **more,
        }
        spec.write_text(json.dumps(body))
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", str(SHIM), str(spec)], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout is not None
        self.said = json.loads(self.process.stdout.readline())
        assert not spec.exists(), "the specification has secrets in it"

    def until_up(self) -> int:
        wait_until((self.folder / "pid").exists, what="the engine is up")
        return int((self.folder / "pid").read_text().split()[0])

    def worker(self) -> int:
        return int((self.folder / "worker").read_text())

    def stop(self, timeout: float | None = None, launch: str = LAUNCH) -> float:
        if timeout is not None:
            self.asked.write_text(json.dumps({"launch_id": launch, "timeout": timeout}))
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)
        return time.monotonic() - begun

    def ended(self) -> dict[str, Any]:
        self.process.wait(15)
        return json.loads(self.exit.read_text())


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Any]:
    started: list[Shim] = []

    def make(*flags: str, **more: Any) -> Shim:
        started.append(Shim(tmp_path, flags, **more))
        return started[-1]

    yield make
    for one in started:
        for s in proc.marked(CHANNEL_MARKER, str(tmp_path)):
            proc.send(s.pid, s.ticks, signal.SIGKILL)
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()


def test_engine_runs_in_its_own_session_with_its_output_kept(shim: Any) -> None:
    s = shim()
    pid = s.until_up()
    assert s.said == {"engine_pid": pid}
    _, session, cwd = (s.folder / "pid").read_text().split()
    assert int(session) == pid != os.getsid(s.process.pid)
    assert cwd == str(s.folder)
    record = json.loads(s.run.read_text())
    assert (record["engine_pid"], record["shim_pid"], record["model"]) == (pid, s.process.pid, "m")
    assert proc.alive(pid, record["engine_ticks"])
    assert proc.alive(s.process.pid, record["shim_ticks"])
    assert record["boot_id"] == proc.boot_id()
    assert s.run.stat().st_mode & 0o777 == 0o600, "it has the engine's key in it"
    text = "loading 10 %\rloading 100 %\r\nready\n"
    wait_until(lambda: s.log.tail(LAUNCH) == text, what="the output arrives, carriage returns as they came")
    s.stop()
    ended = s.ended()
    assert (ended["exit_code"], ended["stop_asked"], ended["killed"]) == (-signal.SIGTERM, True, False)
    assert ended["output_bytes"] == len(text)
    assert not pid_alive(pid)


def test_deaf_engine_is_killed_after_the_time_out_that_came_with_the_stop(shim: Any) -> None:
    s = shim("--ignore-term")
    pid = s.until_up()
    assert s.stop(timeout=0.4) >= 0.4
    assert s.ended()["killed"] is True
    assert s.ended()["exit_code"] == -signal.SIGKILL
    assert not pid_alive(pid)


def test_a_stop_request_of_another_launch_does_not_count(shim: Any) -> None:
    s = shim("--ignore-term", stop_timeout=0.5)
    s.until_up()
    assert s.stop(timeout=0.0, launch="another") >= 0.5


@pytest.mark.parametrize("kind", ["--deaf-worker", "--scrubbed-worker", "--worker"])
def test_workers_with_sessions_of_their_own_are_gone_after_a_stop(shim: Any, kind: str) -> None:
    s = shim("--deaf-worker", kind)
    s.until_up()
    worker = s.worker()
    assert proc.stat(worker).ppid == s.process.pid, "the shim is its new parent"
    assert s.stop(timeout=0.4) >= 0.4
    assert not pid_alive(worker)


def test_a_worker_started_during_the_stop_is_found(shim: Any) -> None:
    s = shim("--late-worker")
    pid = s.until_up()
    s.process.send_signal(signal.SIGTERM)
    file = s.folder / "worker"
    wait_until(lambda: file.exists() and file.read_text(), what="the engine answers SIGTERM with a new worker")
    assert s.stop(timeout=0.0) < 3, "a second request may shorten the time-out"
    assert not pid_alive(pid)
    assert not pid_alive(s.worker())


def test_engine_that_exits_by_itself_leaves_nothing_and_a_record(shim: Any) -> None:
    s = shim("--deaf-worker", "--exit", "3")
    ended = s.ended()
    assert (ended["exit_code"], ended["stop_asked"]) == (3, False)
    assert not pid_alive(s.worker())
    assert abs(ended["ended_boottime_ms"] - time.clock_gettime(time.CLOCK_BOOTTIME) * 1000) < 5000


def test_engine_killed_from_outside(shim: Any) -> None:
    s = shim()
    os.kill(s.until_up(), signal.SIGKILL)
    ended = s.ended()
    assert (ended["exit_code"], ended["stop_asked"], ended["killed"]) == (-signal.SIGKILL, False, False)


def test_killed_shim_takes_the_engine_with_it(shim: Any) -> None:
    s = shim("--ignore-term")
    pid = s.until_up()
    s.process.kill()
    s.process.wait()
    wait_until(lambda: not pid_alive(pid), 3, "the kernel ended the engine")


def test_stop_right_after_the_start_is_not_lost(shim: Any) -> None:
    for _ in range(3):
        s = shim()
        s.stop()
        assert s.ended()["stop_asked"] is True
        for name in ("pid", "run.json", "exit.json"):
            (s.folder / name).unlink(missing_ok=True)
        for path in s.log.path.iterdir():
            path.unlink()
        s.log.path.rmdir()


def test_program_that_does_not_exist(shim: Any) -> None:
    s = shim(command=["/nonexistent/llama-server"])
    assert s.said == {"error": "No such file or directory: /nonexistent/llama-server"}
    assert s.ended()["error"].startswith("No such file")
    assert not s.run.exists()


def test_output_is_cut_into_segments_and_the_oldest_go(shim: Any, tmp_path: Path) -> None:
    log = {"folder": str(tmp_path / "logs"), "segment_bytes": 4096, "segments": 3}
    s = shim("--print", "2000", "--exit", "0", log=log)
    size = s.ended()["output_bytes"]
    assert size == 2000 * 12 + len("loading 10 %\rloading 100 %\r\nready\n")
    segments = sorted(p.name for p in s.log.path.iterdir())
    assert len(segments) == 3
    assert all(p.stat().st_size <= 4096 for p in s.log.path.iterdir())
    piece = s.log.read(LAUNCH, 0, 1 << 20)
    assert piece.offset > 0, "the beginning is gone, and the answer says so"
    assert piece.next_offset == size
    whole = b"".join(b"line %06d\n" % n for n in range(2000)) + b"loading 10 %\rloading 100 %\r\nready\n"
    assert piece.data == whole[piece.offset :]
    assert s.log.read(LAUNCH, size - 6, 100).data == b"ready\n"
    assert s.log.read(LAUNCH, size, 100).data == b""


def test_a_full_disk_never_blocks_the_engine(shim: Any, tmp_path: Path) -> None:
    """A log folder that cannot be written: output is dropped and counted, the engine goes on to its end."""
    log = {"folder": str(tmp_path / "no" / "such"), "segment_bytes": 4096, "segments": 3}
    s = shim("--print", "50000", "--exit", "0", log=log)
    ended = s.ended()
    assert ended["exit_code"] == 0
    assert ended["output_bytes"] == 0
    assert ended["dropped_bytes"] >= 600_000


def test_a_disk_that_is_full_in_the_middle_never_blocks_the_engine(shim: Any, tmp_path: Path) -> None:
    """Real ENOSPC from the second segment on."""
    log = {"folder": str(tmp_path / "logs"), "segment_bytes": 4096, "segments": 3}
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"{LAUNCH}.{4096:015d}.log").symlink_to("/dev/full")
    s = shim("--print", "50000", "--exit", "0", log=log)
    ended = s.ended()
    assert ended["exit_code"] == 0
    assert ended["output_bytes"] == 4096
    assert ended["dropped_bytes"] >= 590_000
    assert s.log.read(LAUNCH, 0, 8192).data.startswith(b"line 000000\n")


def test_a_full_disk_has_room_for_the_exit_record(shim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {
        "launch_id": "l",
        "log": {"folder": str(tmp_path), "segment_bytes": 1, "segments": 1},
        "markers": {},
        "paths": {"exit": str(tmp_path / "exit.json")},
    }
    one, write = shim_program.Shim(spec), shim_program._write
    one._reserve()
    assert Path(one.reserve).stat().st_size == 4096

    def full(path: str, value: object) -> None:
        if Path(one.reserve).exists():
            raise OSError(28, "No space left on device")
        write(path, value)

    monkeypatch.setattr(shim_program, "_write", full)
    one._exit_record("")
    assert json.loads((tmp_path / "exit.json").read_text())["launch_id"] == "l"
    assert [p.name for p in tmp_path.iterdir()] == ["exit.json"]


def test_lost_output_is_told_once_there_is_room_again(shim: Any, tmp_path: Path) -> None:
    log = shim_program.Log(str(tmp_path / "later"), "l", 1 << 20, 2)
    log.write(b"lost")
    assert (log.dropped, log.offset) == (4, 0)
    (tmp_path / "later").mkdir()
    log.write(b"kept\n")
    text = next((tmp_path / "later").iterdir()).read_bytes()
    assert b"4 bytes of output lost" in text
    assert text.endswith(b"kept\n")
    assert log.offset == len(text)


def test_no_core_of_a_model_fills_the_disk(shim: Any) -> None:
    s = shim()
    assert resource.prlimit(s.until_up(), resource.RLIMIT_CORE) == (0, 0)


def test_shim_is_small(shim: Any) -> None:
    s = shim()
    s.until_up()
    rss = psutil.Process(s.process.pid).memory_info().rss
    print(f"shim resident: {rss / 1e6:.1f} MB")
    assert rss < 30_000_000, "twice what is aimed at: the figure itself is the benchmark's"

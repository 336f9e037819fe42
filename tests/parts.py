"""What the tests of several rooms use: ports, waiting, real processes and their ends, HTTP over a Unix socket."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
BOTH = ("sqlite", "postgresql")  # a test module's DATABASES
SIMULATED = (sys.executable, "-m", "agent.simulated_engine")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now. Prefer port 0 where the program can tell what it got.

    Below the range that the system gives to port 0 and to who connects: nobody else's connection gets it before it is
    listened on, and where it is only to refuse whoever comes, nobody else's server stands there.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    chance = random.SystemRandom()  # Hypothesis seeds the other one, in each worker alike
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", chance.randrange(10_240, lowest)))
            return probe.getsockname()[1]


def wait_until(predicate: Callable[[], T], seconds: float = 30.0, what: str = "", every: float = 0.01) -> T:
    """The first true value of `predicate`; AssertionError naming `what` where none comes in time."""
    end = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"not within {seconds:g} s: {what or getattr(predicate, '__name__', predicate)}")
        time.sleep(every)


async def until(predicate: Callable[[], T], seconds: float = 30.0, what: str = "", every: float = 0.01) -> T:
    """`wait_until` on the event loop."""
    end = time.monotonic() + seconds
    while not (value := predicate()):
        if time.monotonic() >= end:
            raise AssertionError(f"not within {seconds:g} s: {what or getattr(predicate, '__name__', predicate)}")
        await asyncio.sleep(every)
    return value


class Child:
    """A real process of a test, its output in a file. Ended with its process group, by id, whatever it does."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = 10.0) -> int:
        """Its exit status (negative: by that signal)."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"pid {self.pid} still runs after {seconds:g} s; its output:\n{self.output()}"
            ) from None

    def signal(self, number: int = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self, seconds: float = 5.0) -> int:
        """SIGTERM, then SIGKILL to the whole group; also takes what is left of the group when it has ended by itself."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.process.wait(10)


def start(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Child:
    """Starts a process in a group of its own, with exactly `env` (None: ours), stdout and stderr in `log`."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd or ROOT,
            start_new_session=True,
        )
    return Child(process, log)


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Child]:
    """`start`, and `stop` at the end of the block."""
    child = start(command, log, env, cwd)
    try:
        yield child
    finally:
        child.stop()


def unix_client(path: Path | str, key: str | None = None, timeout: float = 10.0) -> httpx.Client:
    """An HTTP client that talks over a Unix socket: `unix_client(path).get("/health")`."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(path)), base_url="http://engine", headers=headers, timeout=timeout
    )


def engine_ready(path: Path | str) -> bool:
    """Whether the engine on this Unix socket answers /health with 200."""
    try:
        with unix_client(path, timeout=2.0) as client:
            return client.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def pid_alive(pid: int) -> bool:
    """Whether a process with this id runs (a zombie has ended)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, so that several test workers make a shared thing once."""
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@cache
def migrated_sqlite() -> Path:
    """A migrated SQLite file to copy, made once a process."""
    from controller.store import migrate
    from controller.store.session import Store

    path = Path(tempfile.mkdtemp(prefix="slotserve-tests-")) / "migrated.db"
    store = Store(f"sqlite:///{path}")
    migrate.upgrade(store)
    store.close()
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    return path


def cannot_be_had(part: str, reason: str) -> None:
    """Skips the test that wants a real part that is not here, by name; where CI=true it fails it instead."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{part}: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes at `folder`: a tmpfs, for which one must be root."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        cannot_be_had("a small disk", "mounting a tmpfs takes root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        cannot_be_had("a small disk", done.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Takes all the room that is left there; remove the file, and it is there again."""
    path = folder / "filled"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass
    return path

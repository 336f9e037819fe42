"""`slotserve serve` as a process: what it refuses, where it listens, how it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from controller.main import StartRefused, warnings_about, web_listen
from controller.settings import Settings
from tests.parts import wait_until

BIN = Path(sys.executable).parent


def environment(folder: Path, **more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
    ports = {f"SLOTSERVE_{n}_LISTEN": "127.0.0.1:0" for n in ("HTTP", "FLEET", "ENROL")}
    return {**env, **ports, "SLOTSERVE_STATE_DIR": str(folder), **more}


@contextmanager
def serving(
    folder: Path, inherits: Sequence[int] = (), **more: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    process = subprocess.Popen(
        [str(BIN / "slotserve"), "serve"],
        pass_fds=inherits,
        env=environment(folder, **more),
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (folder / "ports.json").exists() or process.poll() is not None, 60, "it serves")
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        yield process, json.loads((folder / "ports.json").read_text())
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


def refused(folder: Path, **more: str) -> str:
    """What `serve` says on standard error when it does not start."""
    done = subprocess.run(
        [str(BIN / "slotserve"), "serve"], env=environment(folder, **more), capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.system
def test_it_answers_with_thousands_of_descriptors_in_use(tmp_path: Path) -> None:
    """Each agent takes one; select() knows none above 1023."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with serving(tmp_path / "state", held) as (process, ports):
            url = f"http://127.0.0.1:{ports['http']}"
            assert [httpx.get(f"{url}/healthz").status_code for _ in range(3)] == [200] * 3
            assert process.poll() is None
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.system
def test_it_serves_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with serving(folder, SLOTSERVE_LOG_FORMAT="json") as (process, ports):
        assert set(ports) == {"http", "fleet", "enrol", "pid"}
        assert ports["pid"] == process.pid
        url = f"http://127.0.0.1:{ports['http']}"
        assert httpx.get(f"{url}/healthz").status_code == 200
        wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 200, 30, "it is ready")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "ca" / "ca.key").stat().st_mode) == 0o600
        assert "another slotserve serve" in refused(folder)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0
        assert not (folder / "ports.json").exists()
        lines = [json.loads(line) for line in said.splitlines()]
        assert any(line["message"] == "ready" and line["http"] == str(ports["http"]) for line in lines)
    # The same ports again, at once.
    again = {f"SLOTSERVE_{n.upper()}_LISTEN": f"127.0.0.1:{ports[n]}" for n in ("http", "fleet", "enrol")}
    with serving(folder, **again) as (_, same):
        assert {**same, "pid": 0} == {**ports, "pid": 0}
        assert "SLOTSERVE_FLEET_LISTEN" in refused(tmp_path / "other", **again)


@pytest.mark.system
def test_it_serves_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with serving(tmp_path / "state", SLOTSERVE_HTTP_LISTEN=f"unix:{path}"):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://slotserve/healthz").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0:8700", "[::]:8700", "10.1.2.3:8700", "gpu.example.org:8700"])
def test_a_wide_address_without_tls_is_refused(address: str) -> None:
    with pytest.raises(StartRefused, match="TLS proxy"):
        web_listen(Settings(http_listen=address))
    assert web_listen(Settings(http_listen=address, insecure_http=True))["port"] == 8700


@pytest.mark.parametrize("address", ["127.0.0.1:8700", "127.9.9.9:1", "[::1]:8700", "localhost:0", "unix:/run/s.sock"])
def test_loopback_and_unix_sockets_are_fine(address: str) -> None:
    assert web_listen(Settings(http_listen=address))


@pytest.mark.parametrize("address", ["8700", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":8700"])
def test_an_address_that_is_none_is_told_so(address: str) -> None:
    with pytest.raises(StartRefused, match="host:port"):
        web_listen(Settings(http_listen=address, insecure_http=True))


def test_a_buffer_that_is_too_short_is_warned_about() -> None:
    assert warnings_about(Settings()) == []
    assert len(warnings_about(Settings(drain_seconds=31))) == 1

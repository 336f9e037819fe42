"""What the gateway costs: processor time a request and a streamed chunk, beside nginx as a plain proxy to the same engine.

Both proxies run in turn in the same run, one process each, one connection to the engine a request; the figures are the
processes' own accounting, medians of several rounds. The gateway has everything on that an installation has: keys,
routing, usage rows, metrics and its access log. Without nginx on this machine its column stays empty, and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from tests.bench.report import report
from tests.bench.upstream import CHUNKS
from tests.parts import Child, free_port, running, wait_until

KEY = "sk-ss-bench"
CONNECTIONS, REQUESTS, STREAMS, ROUNDS = 16, 4000, 64, 5
RUN = "import sys\nfrom agent.gateway.main import run\nfrom agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://unix:{engine}:; proxy_http_version 1.1; proxy_set_header Connection close; proxy_buffering off; }}
  }}
}}
"""


@dataclass
class Proxy:
    """A proxy that runs, and its rounds' figures in microseconds."""

    child: Child
    port: int
    request: list[float] = field(default_factory=list)
    chunk: list[float] = field(default_factory=list)
    first_byte: list[float] = field(default_factory=list)


def main() -> None:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ssbench"))
        stack.callback(shutil.rmtree, folder)
        engine = folder / "engine.sock"
        stack.enter_context(running([sys.executable, "-m", "tests.bench.upstream", str(engine)], folder / "engine.log"))
        wait_until(engine.exists, 10, "the engine listens")
        gateway = stack.enter_context(_gateway(folder, engine))
        nginx = stack.enter_context(_nginx(folder, engine))
        proxies = [p for p in (gateway, nginx) if p is not None]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for proxy in proxies:
                runner.run(_requests(proxy.port, 400))
            for _ in range(ROUNDS):
                for proxy in proxies:
                    before = _cpu(proxy.child.pid)
                    runner.run(_requests(proxy.port, REQUESTS))
                    proxy.request.append((_cpu(proxy.child.pid) - before) / REQUESTS)
            for _ in range(3):
                for proxy in proxies:
                    before = _cpu(proxy.child.pid)
                    proxy.first_byte += runner.run(_streams(proxy.port))
                    proxy.chunk.append((_cpu(proxy.child.pid) - before) / (STREAMS * CHUNKS))
        resident = _resident_mb(gateway.child.pid)
    _print(gateway, nginx, resident)


def _print(gateway: Proxy, nginx: Proxy | None, resident: float) -> None:
    def row(name: str, unit: str, ours: float, goal: str, theirs: float | None) -> dict[str, Any]:
        peer = "nginx is not on this machine" if theirs is None else f"nginx {theirs:.1f}, {ours / theirs:.1f} x"
        return {"name": name, "value": round(ours, 1), "unit": unit, "goal": goal, "peer": peer}

    def both(name: str) -> tuple[float, float | None]:
        return statistics.median(getattr(gateway, name)), nginx and statistics.median(getattr(nginx, name))

    request, chunk, first = both("request"), both("chunk"), both("first_byte")
    report(
        f"Gateway, {os.cpu_count()} cores, {_processor()}",
        [
            row(f"a request, 1 kB in, 0.5 kB out, {CONNECTIONS} connections", "us CPU", request[0], "<= 8 x", request[1]),
            row(f"a streamed chunk, {STREAMS} streams", "us CPU", chunk[0], "<= 1.5 x", chunk[1]),
            row(f"time to first byte, {STREAMS} streams at once", "ms", first[0] * 1000, "",
                None if first[1] is None else first[1] * 1000),
            {"name": "resident memory afterwards", "value": round(resident, 1), "unit": "MB", "goal": "< 60"},
        ],
    )  # fmt: skip


@contextmanager
def _gateway(folder: Path, engine: Path) -> Iterator[Proxy]:
    port = free_port()
    (folder / "node.toml").write_text(f'node = "n"\n[gateway]\nlisten = ["127.0.0.1:{port}"]\n')
    saved = folder / "state" / "gateway"
    saved.mkdir(parents=True)
    target = {"identity": "i", "model": "bench-model", "preset": None}
    serving = {**target, "launch_id": "l", "socket": str(engine), "host": "", "port": 0, "engine_key": "k",
               "served_name": "bench-model"}  # fmt: skip
    entry = {"name": "main", "open": True, "phase": "ready", "serving": serving, "loading": None, "fallback": False,
             "switching": None, "failure": None, "blocked": None, "steps": [{"at": 0, "target": target, "why": "default"}]}  # fmt: skip
    table = {"type": "table", "version": 1, "clock": None, "settings": {}, "channels": [entry]}
    key = {"id": "k1", "user_id": "u1", "user_name": "bench", "role": "user", "expires_at_ms": None}
    (saved / "table.json").write_text(json.dumps(table))
    (saved / "keys.json").write_text(
        json.dumps({"type": "keys", "keys": {hashlib.sha256(KEY.encode()).hexdigest(): key}})
    )
    env = {
        **os.environ,
        "SLOTSERVE_NODE_FILE": str(folder / "node.toml"),
        "SLOTSERVE_AGENT_STATE_DIR": str(folder / "state"),
    }
    with running([sys.executable, "-c", RUN], folder / "gateway.log", env) as child:
        wait_until(lambda: _listens(port) or not child.alive(), 10, "the gateway listens")
        assert child.alive(), child.output()
        yield Proxy(child, port)


@contextmanager
def _nginx(folder: Path, engine: Path) -> Iterator[Proxy | None]:
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        yield None
        return
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, engine=engine, port=port))
    with running([program, "-p", str(folder), "-c", str(config)], folder / "nginx.log") as child:
        wait_until(lambda: _listens(port) or not child.alive(), 10, "nginx listens")
        assert child.alive(), child.output()
        yield Proxy(child, port)


def _request(stream: bool) -> bytes:
    content = {"messages": [{"role": "user", "content": "x" * 930}], "model": "bench-model", "stream": stream}
    body = json.dumps(content, separators=(",", ":")).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 3.57.0\r\nAccept-Encoding: gzip, deflate\r\n"
        b"Authorization: Bearer %b\r\nX-Stainless-Lang: python\r\nX-Stainless-OS: Linux\r\nContent-Length: %d\r\n\r\n%b"
    ) % (KEY.encode(), len(body), body)


class _Caller(asyncio.Protocol):
    """Sends `number` requests one after another; `done` is set after the last answer, with the first bytes' times."""

    def __init__(self, data: bytes, number: int, ends: bytes) -> None:
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._data, self._left, self._ends = data, number, ends
        self._tail = b""
        self._sent = 0.0
        self._first: list[float] = []
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        if not self._tail:
            self._first.append(_now() - self._sent)
        self._tail = (self._tail + data)[-len(self._ends) :]
        if self._tail != self._ends:
            return
        self._left -= 1
        if self._left:
            self._send()
        else:
            self.done.set_result(self._first)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed in the middle"))

    def _send(self) -> None:
        self._tail = b""
        self._sent = _now()
        self._transport.write(self._data)


async def _requests(port: int, number: int) -> None:
    await _call(port, CONNECTIONS, _request(False), number // CONNECTIONS, b'"}}]}')


async def _streams(port: int) -> list[float]:
    return await _call(port, STREAMS, _request(True), 1, b"\r\n0\r\n\r\n")


async def _call(port: int, connections: int, data: bytes, number: int, ends: bytes) -> list[float]:
    loop = asyncio.get_running_loop()
    callers = [_Caller(data, number, ends) for _ in range(connections)]
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]
    return [t for times in await asyncio.gather(*(c.done for c in callers)) for t in times]


def _now() -> float:
    import time

    return time.perf_counter()


def _cpu(pid: int) -> float:
    """Processor time of a (single-threaded) process so far, in microseconds."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000
    except (OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.machine()


if __name__ == "__main__":
    main()

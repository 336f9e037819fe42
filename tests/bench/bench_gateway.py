"""What the gateway costs, beside nginx as a plain proxy and the same job written with aiohttp and with Starlette and httpx.

All run in turn in the same run, one process each, the same engine behind them; processor time is the processes' own
accounting, every figure the median of five rounds. The gateway has everything on that an installation has: keys, routing,
usage rows, metrics and its access log. Who is not on this machine is left out, and it says so.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from tests.bench import proxies
from tests.bench.load import ANSWER_ENDS, REQUESTS, STREAM_ENDS, Caller, call, first_bytes, request
from tests.bench.proxies import Proxy
from tests.bench.report import report
from tests.bench.upstream import CHUNKS
from tests.parts import running, wait_until

CONNECTIONS, NUMBER, STREAMS, ROUNDS, PROBES = 16, 4000, 64, 5, 40
OPEN_STREAMS = 2000


def main() -> None:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ssbench"))
        stack.callback(shutil.rmtree, folder)
        engine = folder / "engine.sock"
        stack.enter_context(running([sys.executable, "-m", "tests.bench.upstream", str(engine)], folder / "engine.log"))
        wait_until(engine.exists, 10, "the engine listens")
        gateway = stack.enter_context(proxies.gateway(folder, engine))
        peers = {
            "nginx": stack.enter_context(proxies.nginx(folder, engine)),
            "aiohttp": stack.enter_context(proxies.python_peer("aiohttp", "aiohttp", folder, engine)),
            "Starlette": stack.enter_context(proxies.python_peer("starlette", "starlette", folder, engine)),
        }
        all_of_them = [gateway, *(p for p in peers.values() if isinstance(p, Proxy))]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for proxy in all_of_them:
                runner.run(_requests(proxy, 400))
            for _ in range(ROUNDS):
                for proxy in all_of_them:
                    runner.run(_requests(proxy, NUMBER if proxy.name in ("gateway", "nginx") else NUMBER // 4))
                for proxy in all_of_them:
                    runner.run(_streams(proxy))
                for proxy in all_of_them[:2]:
                    through, direct = runner.run(first_bytes(proxy.port, engine, STREAMS, PROBES))
                    proxy.first_byte += through
                    proxy.direct += direct
            small = gateway.resident_mb()
            whole, big = runner.run(_many(gateway))
    _print(gateway, peers, small, whole, big)


async def _requests(proxy: Proxy, number: int) -> None:
    before = proxy.cpu_us()
    await call(proxy.port, CONNECTIONS, REQUESTS, number // CONNECTIONS, ANSWER_ENDS)
    if number >= NUMBER // 4:
        proxy.request.append((proxy.cpu_us() - before) / number)


async def _streams(proxy: Proxy) -> None:
    before = proxy.cpu_us()
    await call(proxy.port, STREAMS, request(True), 1, STREAM_ENDS)
    proxy.chunk.append((proxy.cpu_us() - before) / (STREAMS * CHUNKS))


async def _many(proxy: Proxy) -> tuple[int, float]:
    """Many streams at once: how many came to their proper end, and the memory while all were open."""
    loop = asyncio.get_running_loop()
    callers = [Caller(request(True, "every=1.5 chunks=6 "), 1, STREAM_ENDS) for _ in range(OPEN_STREAMS)]
    for number, caller in enumerate(callers):
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", proxy.port)  # type: ignore[misc]
        if number % 100 == 99:
            await asyncio.sleep(0.05)
    while not all(c.first for c in callers):
        await asyncio.sleep(0.05)
    assert not any(c.done.done() for c in callers), "the first streams have ended before the last began"
    resident = proxy.resident_mb()
    ends = await asyncio.gather(*(c.done for c in callers), return_exceptions=True)
    return sum(not isinstance(end, BaseException) for end in ends), resident


def _print(gateway: Proxy, peers: dict[str, Proxy | str], small: float, whole: int, big: float) -> None:
    nginx = peers["nginx"]

    def row(name: str, figure: str, times: float) -> dict[str, Any]:
        ours = statistics.median(getattr(gateway, figure))
        others = [
            f"{title} {statistics.median(getattr(peer, figure)):.1f}" if isinstance(peer, Proxy) else peer
            for title, peer in peers.items()
        ]
        goal = f"<= {times:g} x nginx"
        if isinstance(nginx, Proxy):
            goal += f" (it is {ours / statistics.median(getattr(nginx, figure)):.2f})"
        return {"name": name, "value": round(ours, 1), "unit": "us CPU", "goal": goal, "peer": ", ".join(others)}

    def beyond_direct(proxy: Proxy, place: float) -> float:
        return (_quantile(proxy.first_byte, place) - _quantile(proxy.direct, place)) * 1000

    def added(name: str, place: float, goal: str) -> dict[str, Any]:
        theirs = f"nginx {beyond_direct(nginx, place):.2f}" if isinstance(nginx, Proxy) else nginx
        return {
            "name": name,
            "value": round(beyond_direct(gateway, place), 2),
            "unit": "ms",
            "goal": goal,
            "peer": theirs,
        }

    request_row = row(f"a request, 1 kB in, 0.5 kB out, {CONNECTIONS} connections", "request", 7)
    request_row["goal"] = f"<= 120, {request_row['goal']}"
    report(
        f"Gateway, {os.cpu_count()} cores, {_processor()}",
        [
            request_row,
            row(f"a streamed chunk, {STREAMS} streams", "chunk", 1.3),
            added(f"added time to first byte at {STREAMS} streams, median", 0.5, "<= 1"),
            added(f"added time to first byte at {STREAMS} streams, 99th percentile", 0.99, "<= 5"),
            {"name": "resident memory", "value": round(small, 1), "unit": "MB", "goal": "< 60"},
            {"name": f"resident memory with {OPEN_STREAMS} open streams", "value": round(big, 1), "unit": "MB", "goal": "< 150"},
            {"name": f"of {OPEN_STREAMS} streams cut", "value": OPEN_STREAMS - whole, "unit": "", "goal": "0"},
        ],
    )  # fmt: skip


def _quantile(values: Sequence[float], place: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(place * (len(ordered) - 1)))]


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.machine()


if __name__ == "__main__":
    main()

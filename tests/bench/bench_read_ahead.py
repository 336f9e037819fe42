"""How long a 1 GB model takes to load with its files on the disk alone, in the page cache, and read ahead meanwhile.

    python -m tests.bench.bench_read_ahead [ROUNDS]      as root: it drops the page cache before each cold load

The machine below may cache as well: a cold figure near the warm one says so.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.runtime.launcher import ChannelRuntime
from controller.cli.demo_model import write_tiny_gguf
from controller.cli.demo_parts import find_llama_server
from tests.agent.runtime.runtimes import end_all, runtime, start, until_ready
from tests.bench.report import report


def main() -> None:
    server = find_llama_server()
    if isinstance(server, str):
        sys.exit(server)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        (folder / "models").mkdir()
        file = write_tiny_gguf(folder / "models" / "big.gguf", 1024, 24)
        os.sync()
        try:
            channel = runtime(folder, server.command, env=server.env)
            cold, warm, ahead, reads = asyncio.run(measure(channel, file, rounds))
        finally:
            end_all(folder)
        size = file.stat().st_size
    rows = [
        {"name": name, "value": statistics.median(seconds), "unit": "s", "peer": f"{min(seconds):.2f} at best"}
        for name, seconds in (
            ("from the disk", cold),
            ("from the page cache", warm),
            ("read ahead, then loaded", ahead),
            ("the reading itself", reads),
        )
    ]
    rows += [
        {"name": "the reading", "value": size / 1e6 / statistics.median(reads), "unit": "MB/s"},
    ]
    report(f"Load times of a {size / 1e9:.2f} GB GGUF (llama-server, {os.cpu_count()} processors)", rows)


async def measure(channel: ChannelRuntime, file: Path, rounds: int) -> tuple[list[float], ...]:
    """Seconds from start to ready: cold, warm, cold with the files read ahead; and of the reading."""
    cold, warm, ahead, reads = [], [], [], []
    await load(channel)  # whatever is done only once
    for _ in range(rounds):
        drop(file)
        cold.append(await load(channel))
        warm.append(await load(channel))
        drop(file)
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "agent.runtime.read_ahead", str(file)], check=True)
        reads.append(time.monotonic() - begun)
        ahead.append(await load(channel))
    return cold, warm, ahead, reads


def drop(file: Path) -> None:
    """The file's pages out of the page cache: of all files where that is allowed, else of this one."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        with file.open("rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def load(channel: ChannelRuntime) -> float:
    begun = time.monotonic()
    process = await start(channel, "-c", "256", "-np", "1", "-ngl", "0", model="big")
    await until_ready(channel, process, 300)
    seconds = time.monotonic() - begun
    await channel.stop(process, 10.0)
    return seconds


if __name__ == "__main__":
    main()

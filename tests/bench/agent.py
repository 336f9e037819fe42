"""The agent beside the benchmark's gateway, as far as a gateway sees one: its table and keys, and who takes the usage rows."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from agent.gateways import Gateways
from tests.bench.load import KEY


async def main(folder: Path, engine: str) -> None:
    gateways = Gateways(folder / "state", folder / "state" / "run", lambda rows: None)
    target = {"identity": "i", "model": "bench-model", "preset": None}
    serving = {**target, "launch_id": "l", "socket": engine, "host": "", "port": 0, "engine_key": "k",
               "served_name": "bench-model"}  # fmt: skip
    entry = {"name": "main", "open": True, "phase": "ready", "serving": serving, "loading": None, "fallback": False,
             "switching": None, "failure": None, "blocked": None, "steps": [{"at": 0, "target": target, "why": "default"}]}  # fmt: skip
    key = {"id": "k1", "user_id": "u1", "user_name": "bench", "role": "user", "expires_at_ms": None}
    await gateways.start()
    gateways.publish("main", entry)
    gateways.set_keys({hashlib.sha256(KEY.encode()).hexdigest(): key})
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

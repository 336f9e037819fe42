"""The state folder of a gateway that is a real process: what an agent has left in it, and a stub engine's socket."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.gateway_rig import Rig, step, target
from tests.fakes.stub_engine import StubEngine
from tests.parts import Child, start, wait_until

RUN = "import sys\nfrom agent.gateway.main import run\nfrom agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"


class Place:
    """A state folder with a node file, what an agent left in it, and a stub engine's socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = StubEngine(folder / "engine.sock")
        self.log = folder / "gateway.log"
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "SLOTSERVE_NODE_FILE": str(folder / "node.toml"),
            "SLOTSERVE_AGENT_STATE_DIR": str(folder / "state"),
        }
        self.listen(f"unix:{folder}/gateway.sock", "127.0.0.1:0", "[::1]:0")

    def listen(self, *addresses: str) -> None:
        (self.folder / "node.toml").write_text(f'node = "n"\n[gateway]\nlisten = {json.dumps(list(addresses))}\n')

    def entry(self, **more: Any) -> dict[str, Any]:
        fake = Rig.__new__(Rig)
        fake.engine = self.engine
        return Rig.entry(fake, serving=target(), **{"steps": [step(0, target())], **more})

    def save(self, **settings: Any) -> None:
        """What an agent that is away has left."""
        saved = self.folder / "state" / "gateway"
        saved.mkdir(parents=True)
        table = {"type": "table", "version": 1, "clock": None, "settings": settings, "channels": [self.entry()]}
        (saved / "table.json").write_text(json.dumps(table))
        (saved / "keys.json").write_text(json.dumps({"type": "keys", "keys": Rig.keys()}))

    @contextmanager
    def gateway(self, **env: str) -> Iterator[Child]:
        child = start([sys.executable, "-c", RUN], self.log, {**self.env, **env})
        try:
            wait_until(lambda: self.answers() or not child.alive(), 10, "the gateway answers")
            yield child
        finally:
            child.stop()

    def answers(self) -> bool:
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.folder / "gateway.sock"))) as client:
                return client.get("http://g/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    async def dial(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self.folder / "gateway.sock"))
        writer.write(data)
        return reader, writer

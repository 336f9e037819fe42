"""A node whose gateways are real processes; the stub engine and the agent's side are in the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent.gateway.handover import NAME
from agent.gateways import Gateways
from tests.agent.gateway.test_tls import trust, write_certificate
from tests.fakes.gateway_rig import Answer, Rig, chat, read_answer, request, step, target
from tests.fakes.stub_engine import StubEngine
from tests.parts import Child, free_port, start

RUN = (
    "import sys\nfrom protos.shared import logs\nlogs.set_up()\nfrom agent.gateway.main import run\n"
    "from agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"
)
START_SECONDS = 60.0  # of a gateway and its workers, where everything is busy


class Node:
    """A stub engine, the agent's side in this process, and gateways that are real processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = StubEngine(folder / "engine.sock")
        self.port = free_port()
        self.rows: list[dict[str, Any]] = []
        self.children: list[Child] = []
        self.agent = self.new_agent()
        self.kind = "IPv4"  # of the address that clients call: or IPv6, TLS, Unix
        self.listen()

    def listen(self, *more: str, kind: str = "IPv4") -> None:
        self.kind = kind
        host = "[::1]" if kind == "IPv6" else "127.0.0.1"
        addresses = [f"{host}:{self.port}", f"unix:{self.folder}/gateway.sock", *more]
        tls = ""
        if kind == "TLS":
            write_certificate(self.folder)
            tls = f'tls_certificate = "{self.folder}/tls.pem"\ntls_key = "{self.folder}/tls.key"\n'
        (self.folder / "node.toml").write_text(f'node = "n"\n[gateway]\nlisten = {json.dumps(addresses)}\n{tls}')

    def new_agent(self) -> Gateways:
        return Gateways(self.folder / "state", self.folder / "state" / "run", self.rows.extend)

    async def begin(self, **settings: Any) -> None:
        await self.engine.start()
        await self.start_agent(**settings)

    async def start_agent(self, **settings: Any) -> None:
        await self.agent.start()
        self.agent.set_keys(Rig.keys())
        self.agent.set_settings(settings)
        fake = Rig.__new__(Rig)
        fake.engine = self.engine
        self.agent.publish("main", Rig.entry(fake, serving=target(), steps=[step(0, target())]))

    def gateway(self, **env: str) -> Child:
        child = start(
            [sys.executable, "-c", RUN],
            self.folder / f"gateway{len(self.children)}.log",
            {**self.env(), **env},
        )
        self.children.append(child)
        return child

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "SLOTSERVE_NODE_FILE": str(self.folder / "node.toml"),
            "SLOTSERVE_AGENT_STATE_DIR": str(self.folder / "state"),
        }

    async def up(self, gateways: int = 1) -> None:
        await Rig.until(lambda: self.agent.connected == gateways, START_SECONDS)
        await Rig.until(self.offered, START_SECONDS)

    def offered(self) -> bool:
        return (self.folder / "state" / "run" / NAME).exists()

    async def alive(self, workers: int) -> None:
        """Returns once /healthz says that all of so many workers serve: each is linked to the agent before it does."""
        async with asyncio.timeout(20):
            while True:
                health = (await self.ask(request("/healthz", who=None, method="GET"))).json()
                assert health["workers"] == workers
                if health["workers_alive"] == workers:
                    return
                await asyncio.sleep(0.05)

    async def counted(self, served: int) -> None:
        """Returns once /metrics counts so many requests, of all processes together."""
        line = f'requests_total{{channel="main",outcome="ok",status="200"}} {served}\n'
        async with asyncio.timeout(20):
            while line not in await self.metrics():
                await asyncio.sleep(0.05)

    async def all_know(self, in_flight: int) -> None:
        """Returns once each process has been told of so many running requests in all of them."""

        def told() -> bool:
            links = self.agent._links
            if len(links) == 1:  # nobody tells it of others
                return True
            return all(
                x.told and x.counts.get("main", 0) + x.told["channels"].get("main", 0) == in_flight for x in links
            )

        await Rig.until(lambda: self.agent.in_flight("main") == in_flight and told())
        await self.agent.close("none")  # answered behind what was said before

    async def end(self) -> None:
        for child in self.children:
            await asyncio.to_thread(child.stop)
        await self.agent.close_server()
        await self.engine.stop()

    async def dial(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.kind == "Unix":
            reader, writer = await asyncio.open_unix_connection(str(self.folder / "gateway.sock"))
        else:
            host = "::1" if self.kind == "IPv6" else "127.0.0.1"
            context = trust(self.folder) if self.kind == "TLS" else None
            reader, writer = await asyncio.open_connection(host, self.port, ssl=context)
        writer.write(data)
        return reader, writer

    async def ask(self, data: bytes | None = None) -> Answer:
        reader, writer = await self.dial(chat() if data is None else data)
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.dial(chat(True))
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def metrics(self) -> str:
        return (await self.ask(request("/metrics", who="root", method="GET"))).body.decode()


def go(node: Node, test: Callable[[], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        try:
            await node.begin(**settings)
            await test()
        finally:
            await node.end()

    asyncio.run(main())

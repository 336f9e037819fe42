"""Many agents in one process that speak the real contract over real mutual TLS, and do nothing else.

`python -m tests.bench.light_agents FOLDER ADDRESS[,ADDRESS]`: FOLDER holds ca.crt and, for each agent, NAME.crt and
NAME.key; of several controllers one after the other is dialled until one takes the stream. For each plan that an agent
gets, it writes a line to FOLDER/agents.log: time, name, epoch, generation, what (`plan`, or `welcome` where a connection
began), the beginning of the plan's digest, and the instants of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import resource
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc

from protos import fleet_pb2, fleet_pb2_grpc, types_pb2

CHANNELS = 8
HEARTBEAT_SECONDS = 5.0
MOST_SECONDS = 5.0  # between two attempts, as the real link has it
VERSION = version("slotserve")
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20))


class LightAgent:
    """One node. What it is told to run, it says it runs."""

    def __init__(self, folder: Path, name: str, addresses: list[str], log: Any) -> None:
        self.name, self._addresses, self._log = name, addresses, log
        key, certificate = (folder / f"{name}.key").read_bytes(), (folder / f"{name}.crt").read_bytes()
        self._credentials = grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(), key, certificate)
        self._held = (0, 0, b"")
        self._writes = asyncio.Lock()  # gRPC takes one message at a time
        self._plan = types_pb2.Plan()

    async def run(self) -> None:
        tries = number = 0
        while True:
            began, address = time.monotonic(), self._addresses[number % len(self._addresses)]
            number += 1
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the controller went away
                async with grpc.aio.secure_channel(address, self._credentials, options=OPTIONS) as channel:
                    await self._converse(fleet_pb2_grpc.FleetStub(channel).Connect())
            tries = 0 if time.monotonic() - began > MOST_SECONDS else tries + 1
            await asyncio.sleep(random.uniform(0, min(MOST_SECONDS, 0.2 * 2**tries)))

    async def _converse(self, call: Any) -> None:
        epoch, generation, digest = self._held
        hello = fleet_pb2.Hello(
            node=self.name,
            version=VERSION,
            contract=1,
            epoch=epoch,
            generation=generation,
            plan_sha256=digest,
            channels=[types_pb2.DeclaredChannel(name=f"c{n}", engines=["simulated"]) for n in range(CHANNELS)],
            gateway_urls=["http://127.0.0.1:1"],
        )
        await call.write(fleet_pb2.AgentMessage(hello=hello))
        beats = asyncio.create_task(self._beat(call))
        try:
            while (said := await call.read()) is not grpc.aio.EOF:
                match said.WhichOneof("body"):
                    case "welcome":
                        self._note(said.welcome.epoch, self._held[1], "welcome")
                    case "plan":
                        await self._take(call, said.plan)
        finally:
            beats.cancel()

    async def _take(self, call: Any, push: fleet_pb2.PlanPush) -> None:
        if hashlib.sha256(push.plan).digest() != push.sha256 or push.epoch < self._held[0]:
            raise SystemExit(f"{self.name}: a plan that cannot be right")
        self._held = (push.epoch, push.generation, push.sha256)
        self._plan = types_pb2.Plan.FromString(push.plan)
        answer = fleet_pb2.PlanAnswer(epoch=push.epoch, generation=push.generation, accepted=True)
        steps = sorted({s.at_ms for c in self._plan.channels for s in c.steps})
        self._note(push.epoch, push.generation, "plan", push.sha256.hex()[:16], steps)
        await self._say(call, fleet_pb2.AgentMessage(plan_answer=answer))
        await self._say(call, self._status())

    async def _say(self, call: Any, message: fleet_pb2.AgentMessage) -> None:
        async with self._writes:
            await call.write(message)

    async def _beat(self, call: Any) -> None:
        await asyncio.sleep(random.uniform(0, HEARTBEAT_SECONDS))
        while True:
            await self._say(call, self._status())
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _status(self) -> fleet_pb2.AgentMessage:
        now = time.time() * 1000
        said = []
        for channel in self._plan.channels:
            step = next((s for s in reversed(channel.steps) if s.at_ms <= now), None)
            target = step.target if step else ""
            model = next((x.model for x in channel.launches if x.identity == target), "")
            phase = "ready" if target else "off"
            said.append(
                types_pb2.ChannelStatus(channel=channel.channel, phase=phase, running=target, running_model=model)
            )
        return fleet_pb2.AgentMessage(status=fleet_pb2.Status(channels=said))

    def _note(self, epoch: int, generation: int, what: str, digest: str = "-", steps: Iterable[int] = ()) -> None:
        instants = ",".join(map(str, steps))
        self._log.write(f"{time.time():.6f} {self.name} {epoch} {generation} {what} {digest} {instants}\n")
        self._log.flush()


async def main(folder: Path, addresses: list[str]) -> None:
    names = sorted(p.stem for p in folder.glob("z*.crt"))
    with (folder / "agents.log").open("a") as log:
        agents = [LightAgent(folder, name, addresses, log) for name in names]
        await asyncio.gather(*(agent.run() for agent in agents))


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2].split(",")))

"""The node as a whole: its channels' tasks, its models and GPUs, and what the controller is told of them.

The link calls it with what comes down (plan, keys, commands); it gathers what goes up. Own settings win over those that
come with the plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agent import messages
from agent.channels import ChannelTask
from agent.core.types import Timing
from agent.errors import PlanRefused
from agent.plan import NodePlan, parse
from agent.runtime.aside import Aside
from agent.runtime.facts import FactBook
from agent.runtime.gpu import Gpu, Gpus, resolve
from agent.runtime.models import ModelIndex
from agent.settings import AgentSettings, NodeFile
from agent.state import SavedPlan
from protos import fleet_pb2, types_pb2

log = logging.getLogger(__name__)
OWN = ("stop_timeout_seconds", "drain_seconds", "load_timeout_seconds", "disk_read_mbps", "gateway_linger_seconds")
GPU_SECONDS = 5.0
SCAN_LONG_SECONDS = 60.0


class Door(Protocol):
    """What the node tells the gateways beside the channels' entries (agent/gateways.py)."""

    def set_keys(self, keys: Mapping[str, Mapping[str, Any]]) -> None: ...

    def set_settings(self, settings: Mapping[str, Any]) -> None: ...

    def set_directory(self, places: list[dict[str, Any]], members: str) -> None: ...


class Node:
    """`channels`: the tasks by name, in the order of the node's file."""

    def __init__(
        self,
        file: NodeFile,
        settings: AgentSettings,
        *,
        channels: Mapping[str, ChannelTask],
        models: ModelIndex,
        gpus: Gpus,
        door: Door,
    ) -> None:
        self.name = file.node
        self.channels = channels
        self._file, self._models, self._gpus, self._door = file, models, gpus, door
        self._settings = settings
        self._facts = FactBook(settings.agent_state_dir / "models.json")
        self.own = own_settings(settings)
        self._seen: tuple[Gpu, ...] = ()
        self._scanned = False
        self._disks = Aside("model folders")
        self._uuids: dict[str, tuple[str, ...]] = {}
        self._memory: dict[str, int] = {}  # by UUID; what was seen once is kept while a driver or a card is away
        self._gpu_messages: tuple[types_pb2.Gpu, ...] = ()
        self._gpu_problem = ""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """As seen last."""
        return self._seen

    # --- for the link -----------------------------------------------------------------------------------------------

    def hello(self) -> fleet_pb2.Hello:
        declared = []
        for channel in self._file.channels:
            uuids = self._uuids.get(channel.name, ())
            known = [self._memory.get(u, 0) for u in uuids]
            declared.append(
                types_pb2.DeclaredChannel(
                    name=channel.name,
                    gpu_uuids=uuids,
                    engines=channel.engines,
                    gpu_memory_bytes=sum(known) if all(known) else 0,
                )
            )
        own = types_pb2.Settings()
        for name, value in self.own.items():
            setattr(own, name, value)
        return fleet_pb2.Hello(
            channels=declared,
            gateway_urls=[gateway_url(self._file)],
            own_settings=own,
            relay_address=relay_address(self._file),
        )

    def status(self) -> fleet_pb2.Status:
        return fleet_pb2.Status(
            channels=[types_pb2.ChannelStatus(**task.status()) for task in self.channels.values()],
            gpus=self._gpu_messages,
            gpu_problem=self._gpu_problem,
        )

    def inventory(self) -> fleet_pb2.Inventory | None:
        if not self._scanned:
            return None  # "no models" would have the controller believe that they are gone
        return fleet_pb2.Inventory(models=[messages.model(m, self._facts.of(m)) for m in self._models.models()])

    def check_plan(self, plan: bytes) -> NodePlan:
        return parse(plan, self.name, self.channels, self.own)

    def take_plan(self, plan: NodePlan) -> None:
        for name, task in self.channels.items():
            task.set_steps(plan.channels.get(name, ()), plan.timing)
        self._door.set_settings(
            {
                "show_holders": plan.show_holders,
                "drain_seconds": plan.timing.drain,
                "stop_timeout_seconds": plan.timing.stop_timeout,
                "gateway_linger_seconds": plan.gateway_linger,
                "limits": dict(plan.limits),
            }
        )

    def take_keys(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        self._door.set_keys(keys)

    def take_directory(self, places: list[dict[str, Any]], members: str) -> None:
        self._door.set_directory([p for p in places if p["node"] != self.name], members)

    async def command(self, kind: str, channel: str) -> tuple[bool, str]:
        if channel and channel not in self.channels:
            return False, f"this node has no channel {channel!r}"
        asked = [self.channels[channel]] if channel else list(self.channels.values())
        answers = await asyncio.gather(*(task.command(kind) for task in asked))
        refused = [
            f"{t.name}: {why}" if not channel else why for t, (ok, why) in zip(asked, answers, strict=True) if not ok
        ]
        if refused:
            return False, "; ".join(refused)
        return True, "; ".join(dict.fromkeys(why for _, why in answers))

    # --- by itself --------------------------------------------------------------------------------------------------

    def go_on_with(self, saved: SavedPlan | None) -> None:
        """The plan from before this start. A channel that is no longer declared is left out of it."""
        if saved is None:
            for task in self.channels.values():
                task.set_steps((), Timing())
            return
        try:
            plan = parse(saved.plan, self.name, self.channels, self.own, lenient=True)
        except PlanRefused as err:
            log.error("saved plan not usable why=%r; waiting for the controller's", str(err))
            return
        log.info("going on with the saved plan epoch=%s generation=%s", saved.epoch, saved.generation)
        self.take_plan(plan)

    async def watch_models(self, on_change: Callable[[], None]) -> None:
        """Looks at the model folders every scan_seconds, until cancelled."""
        shown: tuple[str, ...] = ()
        while True:
            try:
                changed = await self._scan()
                if changed or not self._scanned:
                    self._scanned = True
                    log.info("models changed models=%s", len(self._models.models()))
                    on_change()
                if self._models.unreadable != shown:
                    shown = self._models.unreadable
                    for problem in shown:
                        log.warning("model folder not readable problem=%r", problem)
                if await self._facts.fill(self._models.models()):
                    on_change()
                    continue  # a look at the folders between two batches
            except Exception:  # of foreign files and disks: it is said, and looked at again
                log.exception("looking for models failed")
            await asyncio.sleep(self._settings.scan_seconds)

    async def _scan(self) -> bool:
        look = asyncio.ensure_future(self._disks(self._models.scan))
        try:
            if not (await asyncio.wait([look], timeout=SCAN_LONG_SECONDS))[0]:
                log.error("looking for models hangs: a disk does not answer; new models are not seen until it does")
            return await look
        finally:
            look.cancel()

    async def watch_gpus(self, on_change: Callable[[], None], on_declared: Callable[[], None]) -> None:
        """Keeps what the status says of the GPUs fresh, until cancelled. `on_declared`: what `hello` says is different
        (a driver came up after us: now the channels' cards and their memory are known)."""
        while True:
            before = self.hello()
            await self.look_at_gpus()
            on_change()
            if self.hello() != before:
                log.info("declared GPUs are known now gpus=%s", len(self._seen))
                on_declared()
            await asyncio.sleep(GPU_SECONDS)

    async def look_at_gpus(self) -> None:
        try:
            await self._gpus.aside(self._look, self._engines())
        except Exception:  # whatever the driver comes up with: the status goes on without
            log.exception("looking at the GPUs failed")

    def _look(self, engines: Mapping[int, str]) -> None:
        """May block for as long as the driver does."""
        seen, problem = self._gpus.inventory(), ""
        for channel in self._file.channels:
            if seen or channel.name not in self._uuids:
                self._uuids[channel.name] = resolve(channel.gpus, seen)
            if not problem and channel.gpus:
                problem = self._gpus.missing(channel.gpus)
        if problem != self._gpu_problem:
            (log.error if problem else log.info)("GPUs: %s", problem or "all declared ones are there")
        self._memory |= {g.uuid: g.memory_total_bytes for g in seen if g.memory_total_bytes}
        self._gpu_messages = tuple(messages.gpu(g, engines) for g in seen)
        self._seen, self._gpu_problem = seen, problem

    def _engines(self) -> dict[int, str]:
        """The channels by the pids of what runs for them."""
        found: dict[int, str] = {}
        for name, task in self.channels.items():
            if task.process is not None:
                found |= {task.process.engine_pid: name, task.process.shim_pid: name}
        return found


def own_settings(settings: AgentSettings) -> dict[str, float]:
    """What this node's environment sets for itself, by the names of the protocol's Settings."""
    return {name: value for name in OWN if (value := getattr(settings, name)) is not None}


def gateway_url(file: NodeFile) -> str:
    """What people call: as the file says, else from the first TCP listen address."""
    if file.gateway.url:
        return file.gateway.url.rstrip("/")
    for listen in file.gateway.listen:
        if not listen.startswith("unix:"):
            host, _, port = listen.rpartition(":")
            scheme = "http" if file.gateway.tls is None else "https"
            return f"{scheme}://{file.node if host.strip('[]') in ('0.0.0.0', '::', '*', '') else host}:{port}"
    return ""


def relay_address(file: NodeFile) -> str:
    """What other nodes' gateways dial: as the file says, else from the listen address; "" where relays are not taken."""
    if file.gateway.relay_listen is None:
        return ""
    if file.gateway.relay_address:
        return file.gateway.relay_address
    host, _, port = file.gateway.relay_listen.rpartition(":")
    return f"{file.node if host.strip('[]') in ('0.0.0.0', '::', '*', '') else host}:{port}"

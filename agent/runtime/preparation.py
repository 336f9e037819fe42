"""From a launch to what is executed: finds the model, chooses the place, has the engine room make the command line."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from agent import engines
from agent.core.types import Launch
from agent.engines.base import Engine, Place, Prepared, unique_name
from agent.interfaces import StartFailed, Trouble
from agent.runtime import ports, preflight
from agent.runtime.aside import Aside
from agent.runtime.gpu import Gpus
from agent.runtime.models import FoundModel, ModelIndex
from agent.runtime.records import ChannelPaths
from agent.settings import ChannelConfig, EngineConfig

LONGEST = 15.0  # seconds; the owner task gives a whole look 20
NOWHERE = "/nonexistent/check.sock"  # should a program serve where it was only asked, it must not take our socket
KEPT = 64
T = TypeVar("T")


class Preparation:
    """What one channel's launches need of the node. `socket`: where engines that can listen on one do; `cache`: where what
    they compile is kept, "" = it is not."""

    def __init__(
        self,
        channel: ChannelConfig,
        declared: Mapping[str, EngineConfig],
        paths: ChannelPaths,
        socket: Path,
        models: ModelIndex,
        gpus: Gpus,
        inherited: Mapping[str, str],
        cache: str = "",
    ) -> None:
        self._cache = cache
        self.channel, self.declared, self.paths, self.socket = channel, declared, paths, socket
        self._models, self._gpus, self._inherited = models, gpus, inherited
        self._disks = Aside(f"disks of {channel.name}")
        self._refusals: dict[tuple[object, ...], Trouble | None] = {}  # what the engine said of arguments

    async def check(self, launch: Launch) -> Trouble | None:
        """All that can be known without starting anything."""
        try:
            model = await self._answer("the disk of the model or the engine", self._disks(self._model, launch))
            if missing := await self._answer("the GPU driver", self._gpus.aside(self._gpus.missing, self.channel.gpus)):
                return Trouble("cpu_fallback", f"{missing}; without it the engine would run on the processor")
            uuids = (await self._answer("the GPU driver", self._gpus.aside(self._look_at_gpus)))[0]
            engine = engines.get(launch.engine)
            place = Place(
                model.path, (launch.model,), "check", socket=NOWHERE, gpu_uuids=uuids, projector=model.projector
            )
            prepared = self._prepare(engine, launch, place)
            command = engine.check_command(prepared)
            if command is None:
                return None
            program = self._config(launch.engine).command
            stamp = await self._answer("the engine's disk", self._disks(preflight.stamp, program, prepared.env))
            key = (stamp, command, tuple(sorted(prepared.env.items())))
            if key not in self._refusals:
                self._refusals[key] = await preflight.check_arguments(
                    engine, launch, command, prepared.env, self.paths.root
                )
                for old in list(self._refusals)[:-KEPT]:
                    del self._refusals[old]
            return self._refusals[key]
        except StartFailed as known:
            return known.trouble

    async def prepare(self, launch: Launch, launch_id: str) -> tuple[Place, Prepared, dict[str, int]]:
        """Where and how to start it, and the bytes now in use on the channel's GPUs. Raises StartFailed."""
        model = await self._answer("the disk of the model or the engine", self._disks(self._model, launch))
        uuids, used = await self._answer("the GPU driver", self._gpus.aside(self._look_at_gpus))
        engine = engines.get(launch.engine)
        place = self._place(engine, launch, model, launch_id, uuids)
        return place, self._prepare(engine, launch, place), used

    async def _answer(self, whose: str, question: Coroutine[Any, Any, T]) -> T:
        """Raises StartFailed where a disk or the driver hangs."""
        try:
            async with asyncio.timeout(LONGEST):
                return await question
        except TimeoutError:
            words = f"{whose} does not answer (waited {LONGEST:g} s); see whether it is a network disk, and the kernel's log"
            raise StartFailed(Trouble("hung", words)) from None

    def _model(self, launch: Launch) -> FoundModel:
        """May block for as long as the disk does. Raises StartFailed."""
        trouble = preflight.check_engine(launch, self.channel, self.declared)
        if trouble is not None:
            raise StartFailed(trouble)
        engine = engines.get(launch.engine)
        model = self._find(launch.model)
        trouble = preflight.check_model(launch, model, engine, self.channel)
        if trouble is None and engine.unix_socket:
            trouble = preflight.check_socket(self.socket)
        if trouble is not None or model is None:
            raise StartFailed(trouble or Trouble("missing_file", f"model {launch.model} is not there"))
        return model

    def _find(self, name: str) -> FoundModel | None:
        """As last scanned; looked for anew where it is not there or was incomplete then."""
        found = self._models.find(name, self.channel.name)
        if found is None or found.incomplete:
            self._models.refresh()
            found = self._models.find(name, self.channel.name)
        return found

    def _look_at_gpus(self) -> tuple[tuple[str, ...], dict[str, int]]:
        if not self.channel.gpus:
            return (), {}
        return self._gpus.resolve(self.channel.gpus), self._gpus.used(self.channel.gpus)

    def _place(
        self, engine: Engine, launch: Launch, model: FoundModel, launch_id: str, uuids: tuple[str, ...]
    ) -> Place:
        at: dict[str, Any] = (
            {"socket": str(self.socket)} if engine.unix_socket else {"port": ports.free_port(beside=engine.beside)}
        )
        return Place(
            model_path=model.path,
            served_names=(launch.model, unique_name(launch.model, launch_id)),
            engine_key=secrets.token_urlsafe(32),
            gpu_uuids=uuids,
            home=str(self.paths.home(launch_id)),
            tmpdir=str(self.paths.tmp(launch_id)),
            cache=self._cache,
            projector=model.projector,
            **at,
        )

    def _prepare(self, engine: Engine, launch: Launch, place: Place) -> Prepared:
        config = self._config(launch.engine)
        env = config.env | self.channel.env
        return engine.prepare(config.command, launch.args, launch.env, place, self._inherited, env)

    def _config(self, engine: str) -> EngineConfig:
        config = preflight.engine_config(engine, self.declared)
        assert config is not None, "check_engine came first"
        return config

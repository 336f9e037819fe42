"""From a launch to what is executed: finds the model, chooses the place, has the engine room make the command line."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import engines
from agent.core.types import Launch
from agent.engines.base import Engine, Place, Prepared, unique_name
from agent.interfaces import StartFailed, Trouble
from agent.runtime import ports, preflight
from agent.runtime.gpu import Gpus
from agent.runtime.models import FoundModel, ModelIndex
from agent.runtime.records import ChannelPaths
from agent.settings import ChannelConfig, EngineConfig

NOBODY = "0" * 22  # a launch id for looking only


class Preparation:
    """What one channel's launches need of the node. `socket`: where engines that can listen on one do."""

    def __init__(
        self,
        channel: ChannelConfig,
        declared: Mapping[str, EngineConfig],
        paths: ChannelPaths,
        socket: Path,
        models: ModelIndex,
        gpus: Gpus,
        inherited: Mapping[str, str],
    ) -> None:
        self.channel, self.declared, self.paths, self.socket = channel, declared, paths, socket
        self._models, self._gpus, self._inherited = models, gpus, inherited

    async def check(self, launch: Launch) -> Trouble | None:
        """All that can be known without starting anything."""
        try:
            model = await self._model(launch)
        except StartFailed as known:
            return known.trouble
        if missing := await asyncio.to_thread(self._gpus.missing, self.channel.gpus):
            return Trouble("cpu_fallback", f"{missing}; without it the engine would run on the processor")
        engine = engines.get(launch.engine)
        prepared = self._prepare(engine, launch, self._place(engine, launch, model, NOBODY, ()))
        return await preflight.check_arguments(launch, self._config(launch.engine).command, prepared)

    async def prepare(self, launch: Launch, launch_id: str) -> tuple[Place, Prepared, dict[str, int]]:
        """Where and how to start it, and the bytes now in use on the channel's GPUs. Raises StartFailed."""
        model = await self._model(launch)
        uuids, used = await asyncio.to_thread(self._look_at_gpus)
        engine = engines.get(launch.engine)
        place = self._place(engine, launch, model, launch_id, uuids)
        return place, self._prepare(engine, launch, place), used

    async def _model(self, launch: Launch) -> FoundModel:
        trouble = preflight.check_engine(launch, self.channel, self.declared)
        if trouble is not None:
            raise StartFailed(trouble)
        engine = engines.get(launch.engine)
        model = await self._find(launch.model)
        trouble = preflight.check_model(launch, model, engine, self.channel)
        if trouble is None and engine.unix_socket:
            trouble = preflight.check_socket(self.socket)
        if trouble is not None or model is None:
            raise StartFailed(trouble or Trouble("missing_file", f"model {launch.model} is not there"))
        return model

    async def _find(self, name: str) -> FoundModel | None:
        """As last scanned; looked for anew where it is not there or was incomplete then."""
        found = self._models.find(name, self.channel.name)
        if found is None or found.incomplete:
            await asyncio.to_thread(self._models.refresh)
            found = self._models.find(name, self.channel.name)
        return found

    def _look_at_gpus(self) -> tuple[tuple[str, ...], dict[str, int]]:
        if not self.channel.gpus:
            return (), {}
        return self._gpus.resolve(self.channel.gpus), self._gpus.used(self.channel.gpus)

    def _place(
        self, engine: Engine, launch: Launch, model: FoundModel, launch_id: str, uuids: tuple[str, ...]
    ) -> Place:
        at: dict[str, Any] = {"socket": str(self.socket)} if engine.unix_socket else {"port": ports.free_port()}
        return Place(
            model_path=model.path,
            served_names=(launch.model, unique_name(launch.model, launch_id)),
            engine_key=secrets.token_urlsafe(32),
            gpu_uuids=uuids,
            home=str(self.paths.home(launch_id)),
            tmpdir=str(self.paths.tmp(launch_id)),
            **at,
        )

    def _prepare(self, engine: Engine, launch: Launch, place: Place) -> Prepared:
        config = self._config(launch.engine)
        return engine.prepare(config.command, launch.args, launch.env, place, self._inherited, config.env)

    def _config(self, engine: str) -> EngineConfig:
        config = preflight.engine_config(engine, self.declared)
        assert config is not None, "check_engine came first"
        return config

"""The processes of one channel: starts its engine under a shim, looks at it, waits for its end, stops it, adopts it again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping

from agent import engines
from agent.core.types import Launch, Millis, Seconds
from agent.engines.base import Ended
from agent.interfaces import Holder, Process, StartFailed, Trouble
from agent.runtime import adoption, memory, proc, records, stopping
from agent.runtime.caches import CacheFolder
from agent.runtime.cpu_fallback import CpuWatch
from agent.runtime.gpu import Gpus
from agent.runtime.logs import LaunchLog, LogFolder
from agent.runtime.models import ModelIndex
from agent.runtime.preparation import Preparation
from agent.runtime.probe import Prober
from agent.runtime.records import ChannelPaths, RunRecord
from agent.runtime.spawn import make_room, remove_folders, spawn
from agent.runtime.verdicts import Verdicts
from agent.runtime.vitals import Vitals
from agent.settings import AgentSettings, ChannelConfig, NodeFile

log = logging.getLogger(__name__)
EXIT_RECORD = 10.0  # from the engine's end to its shim's
CLEAR = 35.0  # for what is left of the engine before


class ChannelRuntime:
    """An EngineRuntime (agent/interfaces.py) of real processes.

    channel, node_file: as declared; settings: the folders and the node's stop time-out; models: its folders' index;
    gpus: the machine's; now: node time in ms. `inherited`: the environment engines may take known variables from.
    After `adopt` said None, `died_unwatched` holds an engine that had ended by itself while no agent ran, and why.
    """

    def __init__(
        self,
        channel: ChannelConfig,
        node_file: NodeFile,
        settings: AgentSettings,
        models: ModelIndex,
        gpus: Gpus,
        now: Callable[[], Millis],
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        self.channel = channel
        self.paths = ChannelPaths((settings.agent_state_dir / "channels" / channel.name).absolute())
        self.socket = (settings.run_dir / f"{channel.name}.sock").absolute()
        self.logs = LogFolder(self.paths.logs)
        self.died_unwatched: tuple[Process, Trouble] | None = None
        self._gpus, self._now = gpus, now
        self._stop_timeout = 30.0 if settings.stop_timeout_seconds is None else settings.stop_timeout_seconds
        inherited = os.environ if inherited is None else inherited
        self.cache = CacheFolder(self.paths.cache, round(settings.engine_cache_gb * 1e9))
        kept = str(self.cache.path) if self.cache.limit else ""
        self._preparation = Preparation(
            channel, node_file.engines, self.paths, self.socket, models, gpus, inherited, kept
        )
        self._record: RunRecord | None = None
        self._prober: Prober | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._verdicts = Verdicts(self.paths, self.logs)
        self._ready: set[str] = set()
        self._stopping: set[str] = set()
        self._said_until_ready = ("", 0)  # launch, bytes of its output
        self._took = ("", 0)  # launch, bytes of GPU memory when it was ready
        self._cpu_watch = CpuWatch(gpus, channel.gpus)

    # --- adoption ---------------------------------------------------------------------------------------------------

    def adopt(self) -> Process | None:
        """By the run record; leftovers of dead engines are ended. None where nothing runs, or what runs is being stopped
        already (the next start waits for it)."""
        for spec in self.paths.root.glob("spec-*.json"):  # of an agent that was killed while it started an engine
            spec.unlink(missing_ok=True)
        self.cache.measure_aside()
        found = adoption.look(self.paths)
        self._record = found.record
        keep = found.record.process.launch_id if found.record and (found.alive or found.stopping) else ""
        self._end_logs(keep, found)
        remove_folders(self.paths, keep)
        if found.record is None or not found.alive:
            return None
        process = found.record.process
        if process.was_ready:
            self._ready.add(process.launch_id)
        log.info("engine adopted channel=%s launch=%s pid=%d", self.channel.name, process.launch_id, process.engine_pid)
        return process

    def _end_logs(self, keep: str, found: adoption.Found) -> None:
        """Notes the end of launches that ended while nobody watched, and keeps the reason of the last one."""
        for launch in self.logs.launches():
            if launch.ended or launch.launch_id == keep:
                continue
            failed = False
            if found.record and launch.launch_id == found.record.process.launch_id:
                failed = not (found.ended and found.ended.stop_asked)
                if failed:
                    trouble = self.why_died(found.record.process)
                    self.died_unwatched = (found.record.process, trouble)
                    log.warning("engine had ended unwatched launch=%s reason=%s", launch.launch_id, trouble.reason)
            ago = found.ended.seconds_ago() if found.ended else 0.0
            self.logs.end(launch.launch_id, self._now() - int(ago * 1000), failed)

    # --- before a start ---------------------------------------------------------------------------------------------

    async def preflight(self, launch: Launch) -> Trouble | None:
        return await self._preparation.check(launch)

    async def gpu_holders(self) -> list[Holder]:
        if not self.channel.gpus:
            return []
        return await self._gpus.aside(self._holders)

    def _holders(self) -> list[Holder]:
        processes = self._gpus.processes(self.channel.gpus)
        if not processes:
            return []
        ours = {s.pid for s in stopping.leftovers(self.paths.root, self._record)}
        return [
            Holder(p.gpu, p.pid, proc.user(p.pid), proc.command(p.pid), p.memory_bytes)
            for p in processes
            if p.pid not in ours
        ]

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self, launch: Launch, reservation_id: str, now: Millis) -> Process:
        await self._clear_old()
        launch_id = f"{now:013d}-{secrets.token_hex(4)}"
        place, prepared, used = await self._preparation.prepare(launch, launch_id)
        names = engines.get(launch.engine).served_names(place)
        process = Process(
            launch_id=launch_id,
            identity=launch.identity,
            model=launch.model,
            preset=launch.preset,
            engine=launch.engine,
            started_at=now,
            shim_pid=0,
            engine_pid=0,
            socket=place.socket,
            host=place.host,
            port=place.port,
            engine_key=place.engine_key,
            served_name=names[0],
            unique_name=names[1] if len(names) > 1 else "",  # with one name only it is told apart by its key
        )
        extra = {"args": list(launch.args), "reservation_id": reservation_id, "gpu_used": used}
        note = LaunchLog(launch_id, launch.model, launch.preset, launch.identity, reservation_id, now)
        self.cache.before_start()
        make_room(self.paths, self.socket, self.logs, note)
        self._record, shim = await spawn(self.paths, process, prepared, extra, self._stop_timeout)
        self._children.append(shim)
        process = self._record.process
        log.info(
            "engine started channel=%s launch=%s model=%s engine=%s pid=%d",
            self.channel.name,
            launch_id,
            launch.model,
            launch.engine,
            process.engine_pid,
        )
        return process

    async def _clear_old(self) -> None:
        """Nothing is started beside an engine that has not quite gone (a cancelled start, a stop under way when the agent
        was restarted)."""
        record = records.read_run(self.paths)
        if record is not None and record.this_boot and record.shim_alive:
            gone = await stopping.stop(self.paths, record, self._stop_timeout)
        elif record is None or not record.this_boot or not records.read_exit(self.paths, record.process.launch_id):
            begun = asyncio.get_running_loop().time()
            gone = await stopping.clear(self.paths, record, kill_at=begun, give_up=begun + CLEAR)
        else:
            gone = True
        if not gone:
            left = ", ".join(map(str, await self.leftovers()))
            raise StartFailed(Trouble("hung", f"the engine before (pid {left}) cannot be ended; nothing is started"))
        await self._finish(None)

    # --- while it runs ----------------------------------------------------------------------------------------------

    async def probe(self, process: Process) -> bool:
        if self._prober is None or self._prober.launch_id != process.launch_id:
            await self._close_prober()
            self._prober = Prober(process)
        if self._verdicts.given(process) or not await self._prober.look():
            return False
        if process.launch_id not in self._ready:
            if self.channel.gpus:
                if await self._on_cpu(process):
                    return False
                before = record.gpu_used if (record := self._of(process)) else {}
                rise = await self._gpus.aside(memory.rise, self._gpus, self.channel.gpus, before)
                self._took = process.launch_id, rise
            self._ready.add(process.launch_id)
            self._said_until_ready = process.launch_id, self.logs.read(process.launch_id, -1, 1).next_offset
            try:
                records.mark_ready(self.paths, process.launch_id, self._now())
            except OSError as err:
                log.warning("ready mark not written launch=%s error=%s", process.launch_id, err)
        return True

    def vitals(self, process: Process) -> Vitals:
        """What a ready engine's health, work and words are looked at with."""
        launch, offset = self._said_until_ready
        return Vitals(
            process, self._gpus, self.channel.gpus, self.logs, offset if launch == process.launch_id else None
        )

    def gpu_memory(self, process: Process) -> int:
        launch, size = self._took
        return size if launch == process.launch_id else 0

    def condemn(self, process: Process, trouble: Trouble) -> None:
        """It is going to be ended as a failure: its output is kept as a failed launch's."""
        self._verdicts.give(process, trouble)

    async def _on_cpu(self, process: Process) -> bool:
        """True = not ready: either not yet to be told, or it was found to run on the processor, and ended."""
        record = self._of(process)
        if record is None:
            return False
        said = self._verdicts.by_output(process, record, Ended(None))
        found = await self._gpus.aside(self._cpu_watch.judge, record, said)
        if isinstance(found, Trouble):
            self._verdicts.give(process, found)
            await stopping.stop(self.paths, record, self._stop_timeout)
        return found is not None

    async def wait_exit(self, process: Process) -> Trouble:
        record = self._of(process)
        if record is not None:
            await stopping.wait_gone(process.engine_pid, record.engine_ticks)
            if not await stopping.wait_gone(process.shim_pid, record.shim_ticks, EXIT_RECORD):
                log.error("shim did not end after its engine launch=%s shim=%d", process.launch_id, process.shim_pid)
            if records.read_exit(self.paths, process.launch_id) is None:
                now = asyncio.get_running_loop().time()
                await stopping.clear(self.paths, record, kill_at=now, give_up=now + stopping.GIVE_UP)
        trouble = self.why_died(process)
        if process.launch_id not in self._stopping:  # else `stop` finishes
            await self._finish(process, failed=True)
        return trouble

    async def stop(self, process: Process, stop_timeout: Seconds) -> bool:
        record, failed = self._of(process), self._verdicts.given(process)
        self._stopping.add(process.launch_id)
        gone = record is None or await stopping.stop(self.paths, record, stop_timeout)
        if gone:
            await self._finish(process, failed)
        return gone

    async def leftovers(self) -> list[int]:
        return [s.pid for s in await asyncio.to_thread(stopping.leftovers, self.paths.root, self._record)]

    async def wait_memory_free(self) -> str:
        before = self._record.gpu_used if self._record else {}
        return await memory.wait_free(self._gpus, self.channel.gpus, before)

    def why_died(self, process: Process) -> Trouble:
        asked = process.launch_id in self._stopping
        return self._verdicts.why(process, self._of(process), process.launch_id in self._ready, asked)

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _of(self, process: Process) -> RunRecord | None:
        if self._record is not None and self._record.process.launch_id == process.launch_id:
            return self._record
        return None

    async def _finish(self, process: Process | None, failed: bool = False) -> None:
        """Notes the end, closes the prober, reaps the shim, removes the launch's folders."""
        await self._close_prober()
        self._children = [c for c in self._children if c.poll() is None]
        if process is not None:
            self.cache.measure_aside()
            self.logs.end(process.launch_id, self._now(), failed)
            self._verdicts.keep_only(process)
            self._ready &= {process.launch_id}
        remove_folders(self.paths, "")

    async def _close_prober(self) -> None:
        prober, self._prober = self._prober, None
        if prober is not None:
            with contextlib.suppress(OSError):
                await prober.close()

"""The agent's process: everything of a node put together on one event loop, until SIGTERM. Engines go on without it.

A part that ends by itself ends the process (systemd starts it again, and it adopts what runs).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Coroutine
from typing import Any

from agent import control
from agent.ahead import ReadAhead
from agent.channels import ChannelTask
from agent.clock import JUMP_MS, NodeClock
from agent.core.alive import Limits
from agent.figures import Figures
from agent.gateways import Gateways
from agent.link import Link
from agent.liveness import Liveness
from agent.log_shipping import LogShipper
from agent.node import Node
from agent.runtime import adoption
from agent.runtime.gpu import Gpus
from agent.runtime.launcher import ChannelRuntime
from agent.runtime.models import ModelIndex
from agent.settings import AgentSettings, NodeFile
from agent.spool import Spool
from agent.state import State
from protos import fleet_pb2
from protos.shared import clocks
from protos.shared.files import write_private
from protos.shared.systemd import feed_watchdog, notify

log = logging.getLogger(__name__)
STATUS_SECONDS = 2.0
STOP_WAIT_SECONDS = 90.0
UNDECLARED_SECONDS = 60.0


async def run(file: NodeFile, settings: AgentSettings) -> None:
    """Returns after SIGTERM or SIGINT. Raises AgentError where the folder is another agent's."""
    state = State(settings.agent_state_dir)
    lock = state.lock()
    try:
        settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        await Agent(file, settings, state).run()
    finally:
        os.close(lock)


class Agent:
    """The parts and who calls whom."""

    def __init__(self, file: NodeFile, settings: AgentSettings, state: State) -> None:
        self._settings, self._state = settings, state
        self.clock = NodeClock(state.folder / "clock.json")
        self.gpus, self.models = Gpus(), ModelIndex(file.channels)
        self.gateways = Gateways(state.folder, settings.run_dir, self._usage)
        self.figures = Figures()
        self.gateways.on_in_flight = lambda _: self.link.up.status_changed()
        self.gateways.set_clock(self.clock.anchor())
        self.runtimes = {
            c.name: ChannelRuntime(c, file, settings, self.models, self.gpus, self.clock.now_ms) for c in file.channels
        }
        self.channels = {name: self._task(name, runtime) for name, runtime in self.runtimes.items()}
        limits = Limits(settings.hung_seconds, settings.probe_seconds)
        self.liveness = {
            name: Liveness(task, self.runtimes[name], self.clock.now_ms, limits) for name, task in self.channels.items()
        }
        self.node = Node(file, settings, channels=self.channels, models=self.models, gpus=self.gpus, door=self.gateways)
        self.read_ahead = ReadAhead(self.channels, self.models, self.clock.now_ms)
        self.spool = Spool(state.folder / "spool.jsonl")
        shipper = LogShipper({name: r.logs for name, r in self.runtimes.items()})
        self.link: Link = Link(self.node, state, self.clock, self.spool, shipper)
        self.link.on_clock = self._on_clock
        self.link.on_away = lambda: self.gateways.directory_ages(self.clock.now_ms())
        self._stopped = asyncio.Event()
        self._clock_wrong = False

    async def run(self) -> None:
        """Until a signal, or until a part ends."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        gpus = loop.create_task(self.node.look_at_gpus())  # a driver that hangs must not keep the node down
        await asyncio.wait([gpus], timeout=5)
        await self.gateways.start()
        self.gateways.keep_channels(set(self.channels))
        self.gateways.directory_ages(self.clock.now_ms())  # until the controller is there
        server = await control.serve(
            self._settings.run_dir, {"status": self._status_answer, "stop_engines": self._stop_engines}
        )
        self.node.go_on_with(self.link.down.held)
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "link": self.link.run(),
            "models": self.node.watch_models(self.link.up.inventory_changed),
            "gpus": self.node.watch_gpus(self.link.up.status_changed, self.link.up.declared_changed),
            "status": self._write_status(),
            "watchdog": feed_watchdog(),
            "undeclared channels": self._stop_undeclared(),
            **{f"channel {name}": task.run() for name, task in self.channels.items()},
            **({"read ahead": self.read_ahead.run()} if self._settings.read_ahead else {}),
            **{f"liveness {name}": looker.run() for name, looker in self.liveness.items()},
        }
        tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
        stop = asyncio.create_task(self._stopped.wait())
        log.info("agent runs node=%s pid=%s channels=%s", self.node.name, os.getpid(), ",".join(self.channels))
        notify("READY=1")
        try:
            done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                task.result()
                raise RuntimeError(f"{task.get_name()} ended by itself")
            notify("STOPPING=1")
            log.info("agent ends; engines go on")
        finally:
            server.close()
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
            await self.gateways.close_server()

    def _task(self, name: str, runtime: ChannelRuntime) -> ChannelTask:
        return ChannelTask(
            name,
            runtime=runtime,
            door=self.gateways,
            now=self.clock.now_ms,
            load_retry=lambda: self._state.load_retry(name),
            save_retry=lambda record: self._state.save_retry(name, record),
            on_status=self._on_status,
            on_load_result=self._on_load_result,
            on_event=lambda fields: self.link.up.event(fleet_pb2.Event(**fields)),
        )

    def _on_clock(self, moved: int) -> None:
        """Node time has been measured anew."""
        if abs(moved) >= JUMP_MS:
            for name, task in self.channels.items():
                task.clock_moved(moved)
                self.liveness[name].clock_moved()
        self.gateways.set_clock(self.clock.anchor())

    def _on_status(self, fields: dict[str, Any]) -> None:
        self.figures.status(fields)
        self.link.up.status_changed()

    def _on_load_result(self, fields: dict[str, Any]) -> None:
        self.figures.load_result(fields)
        self.link.up.load_result(fleet_pb2.LoadResult(**fields))

    async def _stop_undeclared(self) -> None:
        """Engines of channels that the node's file no longer has hold GPUs of others, and nobody else would stop them."""
        timeout = 30.0 if self._settings.stop_timeout_seconds is None else self._settings.stop_timeout_seconds
        while True:
            try:
                left = await adoption.stop_undeclared(self._state.folder, self.channels, timeout)
                for name, pids in left.items():
                    if pids:
                        log.error("engine of an undeclared channel cannot be stopped channel=%s pids=%s", name, pids)
                await asyncio.to_thread(adoption.drop_caches, self._state.folder, self.channels)
            except OSError as err:
                log.error("undeclared channels not looked at error=%r", str(err))
            await asyncio.sleep(UNDECLARED_SECONDS)

    async def _usage(self, rows: list[dict[str, Any]]) -> None:
        for name, looker in self.liveness.items():
            looker.traffic.take(row for row in rows if row["channel"] == name)
        await self.link.up.usage(fleet_pb2.UsageRow(**row) for row in rows)

    # --- for `status` and `stop-engines` ----------------------------------------------------------------------------

    def _status(self) -> dict[str, Any]:
        held = self.link.down.held
        return {
            "node": self.node.name,
            "pid": os.getpid(),
            "at_ms": self.clock.now_ms(),
            "connected": self.link.connected,
            "trouble": self.link.trouble,
            "clock_measured": self.clock.measured,
            "clock_skew_seconds": self.clock.skew_seconds(),
            "clock_skew_limit_seconds": clocks.LIMIT_SECONDS,
            "plan": {"epoch": held.epoch, "generation": held.generation} if held else None,
            "unsent": len(self.spool),
            "channels": [task.status() for task in self.channels.values()],
            "cache_bytes": {name: r.cache.size for name, r in self.runtimes.items() if r.cache.size is not None},
        }

    async def _status_answer(self) -> dict[str, Any]:
        return self._status()

    async def _write_status(self) -> None:
        """status.json, for people when the agent is gone; and the figures for /metrics."""
        shown: dict[str, Any] = {}
        while True:
            self.gateways.set_figures(self.figures.text(self.node.gpus))
            said = self._status()
            self._say_clock(said["clock_skew_seconds"])
            lasting = {**said, "at_ms": 0, "clock_skew_seconds": 0}
            if lasting != shown:
                shown = lasting
                try:
                    write_private(self._state.folder / "status.json", json.dumps(said).encode(), sync=False)
                except OSError as err:
                    log.warning("status not written error=%r", str(err))
            await asyncio.sleep(STATUS_SECONDS)

    def _say_clock(self, skew: float | None) -> None:
        """Once when this machine's clock leaves the limit, once when it is back."""
        wrong = clocks.wrong(skew)
        if wrong != self._clock_wrong:
            say, what = (log.error, "is wrong") if wrong else (log.info, "is right again")
            say("this machine's clock %s off_by_seconds=%.1f limit_seconds=%g", what, skew or 0.0, clocks.LIMIT_SECONDS)
        self._clock_wrong = wrong

    async def _stop_engines(self) -> dict[str, Any]:
        """Stops every engine and says how it went; they start again with the next change of the plan."""
        await self.node.command("stop_engines", "")
        deadline = time.monotonic() + STOP_WAIT_SECONDS
        while running := await asyncio.to_thread(adoption.still_running, self._state.folder):
            if time.monotonic() > deadline:
                left = [{"channel": name, "pid": pid} for name, pids in running.items() for pid in pids]
                return {"stopped": False, "running": left}
            await asyncio.sleep(0.1)
        return {"stopped": True}

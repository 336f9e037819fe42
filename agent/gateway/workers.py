"""Several worker processes of one gateway, and the process above them.

All accept from the same listening sockets, so that nothing is lost when one dies, and each is a gateway of its own to
the agent: counts are summed and a barrier is over when every one has answered. The process above starts them, starts
those that have died or hang again, passes signals on, and hands the sockets over when a new gateway comes. It feeds systemd's watchdog
for all of them: only while none hangs.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.gateway.board import Board
from agent.gateway.handover import Offer, Predecessor, offered, start_successor
from agent.gateway.silence import Silence
from agent.settings import AgentSettings
from protos.shared.systemd import feed_watchdog, watchdog_seconds

log = logging.getLogger(__name__)
VARIABLE = "SLOTSERVE_GATEWAY_WORK"
READY_SECONDS = 10.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # before a worker is started again
STEADY_SECONDS = 10.0
LOOK_SECONDS = 3.0  # between looks for workers that hang
LOOKS_A_FEED = 3  # where systemd watches: one that hangs is ended before systemd ends all
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Work:
    """What a worker is told: its place, the sockets' and the board's file descriptors, the settings in force."""

    number: int
    workers: int
    node: str
    sockets: Mapping[str, int]
    board: int
    ready: int
    settings: AgentSettings
    tls: tuple[str, str] | None = None

    @classmethod
    def read(cls) -> Work:
        said = json.loads(os.environ.pop(VARIABLE))
        return cls(**{**said, "settings": AgentSettings(**said["settings"])})  # what is given wins over the environment

    def say_ready(self) -> None:
        os.write(self.ready, b"r")
        os.close(self.ready)

    def end_with_parent(self) -> None:
        """Where the process above is killed, this one finishes what runs and ends, as on SIGTERM."""
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent or parent == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it is for the process above


async def supervise(
    sockets: Mapping[str, socket.socket],
    settings: AgentSettings,
    node: str,
    before: Predecessor | None,
    tls: tuple[Path, Path] | None = None,
) -> int:
    """Runs the workers until told to stop, and to the end of the last one; the exit status."""
    crew = _Crew(sockets, settings, node, tls)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, crew.stop, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGHUP, crew.tell, signal.SIGHUP)
    loop.add_signal_handler(signal.SIGUSR2, start_successor)
    tasks = [loop.create_task(crew.keep(number)) for number in range(settings.gateway_workers)]
    await crew.all_ready()
    offer: Offer | None = None
    if not crew.stopping:
        offer = offered(settings.run_dir, sockets, before, crew.replaced)
    elif before is not None:
        before.close()
    feeding = loop.create_task(feed_watchdog(crew.well))
    watching = loop.create_task(crew.watch())
    crew.on_replaced = feeding.cancel
    await asyncio.gather(*tasks)
    feeding.cancel()
    watching.cancel()
    if offer is not None:
        offer.close()
    return 0


class _Crew:
    def __init__(
        self,
        sockets: Mapping[str, socket.socket],
        settings: AgentSettings,
        node: str,
        tls: tuple[Path, Path] | None,
    ) -> None:
        self.stopping = False
        self.on_replaced: Callable[[], object] = lambda: None
        self._sockets, self._settings, self._node, self._tls = sockets, settings, node, tls
        self._number = settings.gateway_workers
        self._board = Board.create(self._number)
        self._seen, self._silence = Board(self._board, self._number, 0), Silence(self._number)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ready: dict[int, asyncio.Event] = {n: asyncio.Event() for n in range(self._number)}
        self._told = asyncio.Event()

    def stop(self, number: signal.Signals) -> None:
        """No worker is started any more; those that run are told by this signal."""
        self.stopping = True
        self._told.set()
        self.tell(number)

    def replaced(self) -> None:
        """Another gateway accepts now."""
        self.on_replaced()
        self.stop(signal.SIGUSR1)

    def tell(self, number: signal.Signals) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)

    async def all_ready(self) -> None:
        waits = [asyncio.ensure_future(e.wait()) for e in self._ready.values()]
        told = asyncio.ensure_future(self._told.wait())
        whole = asyncio.gather(*waits)
        await asyncio.wait((whole, told), timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (whole, told):
            task.cancel()
        await asyncio.gather(whole, told, return_exceptions=True)

    def well(self) -> bool:
        """No worker hangs, or each that does is being started anew."""
        return self._silence.none_hangs

    async def watch(self) -> None:
        """Ends workers that hang, until cancelled; `keep` starts others."""
        fed = watchdog_seconds()
        while True:
            await asyncio.sleep(fed / LOOKS_A_FEED if fed else LOOK_SECONDS)
            for number in self._silence.look(self._seen.written()):
                process = self._running.get(number)
                if process is not None and process.returncode is None:
                    log.error("gateway worker hangs, ended worker=%s pid=%s", number, process.pid)
                    process.kill()

    async def keep(self, number: int) -> None:
        """One worker, again and again."""
        pause = SHORTEST_PAUSE
        while not self.stopping:
            begun = time.monotonic()
            status = await self._one(number)
            if self.stopping:
                return
            pause = SHORTEST_PAUSE if time.monotonic() - begun > STEADY_SECONDS else min(2 * pause, LONGEST_PAUSE)
            log.error("gateway worker ended, started again worker=%s status=%s seconds=%s", number, status, pause)
            try:
                async with asyncio.timeout(pause):
                    await self._told.wait()
            except TimeoutError:
                continue

    async def _one(self, number: int) -> int:
        ready, say = os.pipe()
        fds = {name: each.fileno() for name, each in self._sockets.items()}
        said = {
            "number": number,
            "workers": self._number,
            "node": self._node,
            "sockets": fds,
            "board": self._board,
            "ready": say,
            "settings": self._settings.model_dump(mode="json"),
            "tls": self._tls and [str(file) for file in self._tls],
        }
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "agent.gateway.worker",
                env={**os.environ, VARIABLE: json.dumps(said)},
                pass_fds=(*fds.values(), self._board, say),
                stdin=asyncio.subprocess.DEVNULL,
            )
        except OSError as err:
            log.error("gateway worker not started worker=%s error=%s", number, err)
            os.close(ready)
            return -1
        finally:
            os.close(say)
        self._running[number] = process
        self._silence.begins(number)
        if self.stopping:
            process.send_signal(signal.SIGTERM)
        log.info("gateway worker started worker=%s pid=%s", number, process.pid)
        loop = asyncio.get_running_loop()

        def heard() -> None:
            loop.remove_reader(ready)
            if os.read(ready, 1):
                self._ready[number].set()
            os.close(ready)

        loop.add_reader(ready, heard)
        return await process.wait()

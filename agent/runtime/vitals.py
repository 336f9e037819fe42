"""What can be seen of an engine that serves: does its health check answer, does it work, what has it said since.

For agent/liveness.py, which draws no conclusions either: those are agent/core/alive.py's. A Vitals is of one launch.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from agent.core.alive import DEVICE_ERROR, Answer, Health
from agent.interfaces import Process
from agent.runtime import proc
from agent.runtime.gpu import Gpus
from agent.runtime.logs import LogFolder

HEALTH_SECONDS = 5.0
BUSY_SHARE = 0.05  # of one processor
BUSY_PERCENT = 3  # of a GPU; a desktop's clock is less
READ_BYTES = 256 << 10  # of output a look
# Idle or not, these keep a processor turning round: only their GPUs tell whether they work.
SPINS = frozenset({"vllm", "sglang"})
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Work:
    """Processor time and pages read from disk of an engine's tree, as last seen."""

    at: float = 0.0
    ticks: dict[int, int] = field(default_factory=dict)
    faults: dict[int, int] = field(default_factory=dict)


class Vitals:
    """`names`: the channel's GPUs as declared; `offset`: where its output stood when it became ready (None: where it
    stands now). Everything is asked beside the loop or with a bound, but `ask_small`."""

    def __init__(
        self, process: Process, gpus: Gpus, names: list[str | int], logs: LogFolder, offset: int | None = None
    ) -> None:
        self.process = process
        self._gpus, self._names, self._logs = gpus, names, logs
        self._work = Work()
        self._offset = offset
        self.on_gpu = bool(names)
        anew = httpx.Limits(max_keepalive_connections=0)  # as requests come: an old connection proves nothing
        transport = httpx.AsyncHTTPTransport(uds=process.socket or None, limits=anew, verify=False)  # as in probe.py
        host = f"[{process.host}]" if ":" in process.host else process.host
        self._client = httpx.AsyncClient(
            transport=transport,
            base_url="http://engine" if process.socket else f"http://{host}:{process.port}",
            headers={"Authorization": f"Bearer {process.engine_key}"},
            trust_env=False,
            timeout=None,
        )

    async def health(self) -> tuple[Health, str]:
        """ok, bad (and what it said), or silent (and how). That nobody listens at its address is as clear as an error:
        whoever is only busy still has its connections accepted by the kernel."""
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                answer = await self._client.get("/health")
        except (httpx.HTTPError, TimeoutError) as err:
            if isinstance(err, httpx.ConnectError) and await self._nobody_listens():
                return "bad", "nobody listens at its address any more"
            return "silent", str(err) or type(err).__name__
        return ("ok", "") if answer.status_code == 200 else ("bad", _said(answer))

    async def _nobody_listens(self) -> bool:
        """Not so where the queue of those that wait is full."""
        to = self.process
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                if to.socket:
                    _, writer = await asyncio.open_unix_connection(to.socket)
                else:
                    _, writer = await asyncio.open_connection(to.host, to.port)
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:  # TimeoutError is one
            return False
        writer.close()
        return False

    async def ask_small(self) -> tuple[Answer | None, str]:
        """One token, however long it takes. None: the connection broke, which says nothing by itself."""
        body = {"model": self.process.served_name, "prompt": "1", "max_tokens": 1, "temperature": 0}
        try:
            answer = await self._client.post("/v1/completions", json=body)
        except httpx.HTTPError as err:
            return None, str(err) or type(err).__name__
        if answer.status_code == 200:
            return "answered", ""
        if answer.status_code < 500 or answer.status_code == 501:
            return "refused", _said(answer)  # an embedding model, say
        return "failed", _said(answer)

    async def works(self) -> bool:
        """Whether its GPUs or processors worked since the last call; the first call says yes."""
        busy = await asyncio.to_thread(self._worked)
        if self._names:
            uses = await self._gpus.aside(self._gpus.utilisation, self._names)
            if any(u >= BUSY_PERCENT for u in uses):
                return True
            if uses and self.process.engine in SPINS:
                return False
        return busy

    async def new_device_error(self) -> str:
        """The first line of new output that names an error of the GPU's driver."""
        return await asyncio.to_thread(self._read_output)

    async def close(self) -> None:
        await self._client.aclose()

    def _worked(self) -> bool:
        now = time.monotonic()
        ticks: dict[int, int] = {}
        faults: dict[int, int] = {}
        waits_for_disk = False
        for one in proc.tree(self.process.engine_pid):
            load = proc.load(one.pid)
            if load is not None:
                ticks[one.pid], faults[one.pid] = load
            waits_for_disk |= one.state == "D"
        old, self._work = self._work, Work(now, ticks, faults)
        if not old.at:
            return True
        used = sum(max(0, t - old.ticks.get(pid, t)) for pid, t in ticks.items()) / TICKS
        read = any(f > old.faults.get(pid, f) for pid, f in faults.items())
        return read or waits_for_disk or used > BUSY_SHARE * max(now - old.at, 0.1)

    def _read_output(self) -> str:
        launch = self.process.launch_id
        if self._offset is None:  # from now on: what was said while it loaded is the load's
            self._offset = self._logs.read(launch, -1, 1).next_offset
            return ""
        piece = self._logs.read(launch, self._offset, READ_BYTES)
        self._offset = piece.next_offset
        text = piece.data.decode("utf-8", "replace")
        return next((line.strip()[:500] for line in text.splitlines() if DEVICE_ERROR.search(line)), "")


def _said(answer: httpx.Response) -> str:
    """An engine's refusal in a line."""
    text = ""
    try:
        body: Any = answer.json()
        error = body.get("error") if isinstance(body, dict) else None
        text = str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
    except ValueError:
        text = answer.text
    return f"HTTP {answer.status_code}: {text.strip()[:300]}".rstrip(": ")

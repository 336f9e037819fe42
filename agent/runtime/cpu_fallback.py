"""Whether an engine that answers runs on the processor though its channel has GPUs: slow, silent, healthy to look at.

Its own words tell ("no usable GPU found"), or memory that has not risen on any of the channel's GPUs within 2 s of its
first answer. A preset that asks for the processor (-ngl 0, --device none) is taken as meant.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from agent.interfaces import Trouble
from agent.runtime import memory, preflight, proc
from agent.runtime.gpu import Gpus
from agent.runtime.records import RunRecord

SETTLE = 2.0
SILENT = Trouble(
    "cpu_fallback",
    "the engine answers, but has no memory on the channel's GPUs: it runs on the processor; see whether its driver is "
    "loaded and its program is built for this GPU (arguments such as -ngl 0 are taken as meant)",
)


@dataclass(slots=True)
class CpuWatch:
    """For one channel; keeps since when an engine answers without a GPU."""

    gpus: Gpus
    names: list[str | int]
    launch_id: str = ""
    since: float = 0.0

    def judge(self, record: RunRecord, words: Trouble) -> Trouble | Literal["wait"] | None:
        """None: it has its GPU. `words`: what its output says so far. May block for as long as the driver does."""
        if not self.names or record.process.engine == "simulated":
            return None
        if words.category == "cpu_fallback":
            return words
        pids = {s.pid for s in proc.tree(record.process.engine_pid)}
        if preflight.wants_no_gpu(record.args) or memory.taken(self.gpus, self.names, record.gpu_used, pids):
            return None
        if self.launch_id != record.process.launch_id:
            self.launch_id, self.since = record.process.launch_id, time.monotonic()
        return SILENT if time.monotonic() >= self.since + SETTLE else "wait"

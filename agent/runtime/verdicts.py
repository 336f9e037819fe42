"""Why the launches of a channel ended: what was found while one ran, else its exit record and its last words."""

from __future__ import annotations

from agent import engines
from agent.engines.base import Ended
from agent.interfaces import Process, Trouble
from agent.runtime import records
from agent.runtime.logs import LogFolder
from agent.runtime.records import ChannelPaths, RunRecord

TAIL = 128 << 10


class Verdicts:
    """One a launch: whatever is asked later, the first one stays."""

    def __init__(self, paths: ChannelPaths, logs: LogFolder) -> None:
        self._paths, self._logs = paths, logs
        self._by_launch: dict[str, Trouble] = {}

    def give(self, process: Process, trouble: Trouble) -> None:
        """It is going to be ended for this."""
        self._by_launch[process.launch_id] = trouble

    def given(self, process: Process) -> bool:
        return process.launch_id in self._by_launch

    def keep_only(self, process: Process) -> None:
        """Those of other launches are forgotten."""
        self._by_launch = {k: v for k, v in self._by_launch.items() if k == process.launch_id}

    def why(self, process: Process, record: RunRecord | None, ready: bool, asked: bool) -> Trouble:
        """`record`: the channel's, where it is of this launch; `asked`: we are stopping it."""
        if (known := self._by_launch.get(process.launch_id)) is not None:
            return known
        ended = records.read_exit(self._paths, process.launch_id)
        was_ready = process.was_ready or ready
        if ended is not None and ended.error:
            trouble = Trouble("crashed", f"the engine could not be started: {ended.error}")
        elif ended is not None and ended.stop_asked:
            by = "" if asked else " from outside: its shim was sent SIGTERM"
            trouble = Trouble("crashed", f"the engine was stopped{by}")
        elif ended is not None:
            trouble = self.by_output(process, record, Ended(ended.code, was_ready=was_ready))
        elif record is not None and record.engine_alive:
            trouble = self.by_output(process, record, Ended(None, timed_out=not was_ready, was_ready=was_ready))
        else:
            trouble = Trouble("crashed", "the engine's shim was killed from outside, and the engine with it")
        self._by_launch[process.launch_id] = trouble
        return trouble

    def by_output(self, process: Process, record: RunRecord | None, ended: Ended) -> Trouble:
        """What the engine's last words mean."""
        output = self._logs.tail(process.launch_id, TAIL)
        verdict = engines.get(process.engine).classify(output, ended, record.args if record else ())
        return Trouble(verdict.category, verdict.reason, verdict.detail)  # type: ignore[arg-type]

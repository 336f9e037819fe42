"""The demo's processes: started in sessions of their own with their output in files, ended by pid.

What a killed demo left behind is found again by pid + start time, and ended before anything new starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from protos.shared.files import write_private

STOP_SECONDS = 20.0


class Child:
    """One of our programs."""

    def __init__(self, name: str, args: Sequence[str], env: Mapping[str, str], logs: Path) -> None:
        self.name, self.output = name, logs / f"{name}.log"
        if self.output.exists():
            os.replace(self.output, self.output.with_suffix(".log.1"))
        with self.output.open("wb") as out:
            self._popen = subprocess.Popen(
                list(args),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the demo alone, which ends its children in order
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> int | None:
        """The exit status, None while it runs."""
        return self._popen.poll()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM, SIGKILL when that does not end it in time."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def tail(self, lines: int = 25) -> str:
        """The end of its output."""
        try:
            text = self.output.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def remember(file: Path, children: Sequence[Child]) -> None:
    """Notes who runs, for the next start in this folder."""
    write_private(file, json.dumps([[c.name, c.pid, start_ticks(c.pid)] for c in children]).encode())


def end_leftovers(file: Path, seconds: float = STOP_SECONDS) -> list[str]:
    """Ends what an earlier demo in this folder left running; returns the names. A pid that was given to somebody else
    since is told by its start time and left alone."""
    try:
        rows = json.loads(file.read_text())
        known = [(str(name), int(pid), int(ticks)) for name, pid, ticks in rows]
    except (FileNotFoundError, ValueError, TypeError):
        return []
    alive = [(name, pid, ticks) for name, pid, ticks in known if ticks and start_ticks(pid) == ticks]
    for sig, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        for _, pid, ticks in alive:
            if start_ticks(pid) == ticks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sig)
        deadline = time.monotonic() + wait
        while any(start_ticks(pid) == ticks for _, pid, ticks in alive) and time.monotonic() < deadline:
            time.sleep(0.05)
    file.unlink(missing_ok=True)
    return [name for name, _, _ in alive]


def start_ticks(pid: int) -> int:
    """When the process was started, in the kernel's ticks since boot; 0 where there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])

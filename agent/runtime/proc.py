"""What /proc says about processes. A process is known by pid + start ticks; one in state Z is dead."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
DEAD = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Stat:
    pid: int
    comm: str
    state: str
    ppid: int
    ticks: int  # start time in clock ticks since boot

    @property
    def alive(self) -> bool:
        return self.state not in DEAD


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        raw = (PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    comm, _, rest = raw.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    return Stat(pid, comm, fields[0], int(fields[1]), int(fields[19]))


def load(pid: int) -> tuple[int, int] | None:
    """Processor time in clock ticks, and pages that had to be read from a disk, since its start."""
    try:
        raw = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = raw.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12]), int(fields[9])) if len(fields) > 12 else None


def alive(pid: int, ticks: int) -> bool:
    """Whether that very process (not a later one with its number) still runs."""
    found = stat(pid)
    return found is not None and found.alive and found.ticks == ticks


def all_stats() -> Iterator[Stat]:
    for name in os.listdir(PROC):
        if name.isdigit() and (found := stat(int(name))) is not None:
            yield found


def tree(*roots: int) -> list[Stat]:
    """The living processes among `roots` and all below them, whatever session they are in."""
    stats = {s.pid: s for s in all_stats()}
    children: dict[int, list[int]] = {}
    for s in stats.values():
        children.setdefault(s.ppid, []).append(s.pid)
    found: dict[int, Stat] = {}
    todo = [pid for pid in roots if pid in stats]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found[pid] = stats[pid]
            todo += children.get(pid, ())
    return [s for s in found.values() if s.alive]


def marked(name: str, value: str) -> list[Stat]:
    """Living processes of this user whose environment has name=value. Never this one or those above it."""
    entry = f"{name}={value}".encode()
    mine, uid = set(ancestors(os.getpid())), os.geteuid()
    found = []
    for s in all_stats():
        if s.pid in mine or not s.alive:
            continue
        try:
            if (PROC / str(s.pid)).stat().st_uid == uid and entry in environ(s.pid):
                found.append(s)
        except OSError:
            continue  # gone, or not ours to read
    return found


def environ(pid: int) -> list[bytes]:
    return (PROC / str(pid) / "environ").read_bytes().split(b"\0")


def ancestors(pid: int) -> Iterator[int]:
    """`pid` and the processes above it, init last."""
    while pid > 0:
        yield pid
        found = stat(pid)
        pid = found.ppid if found else 0


def send(pid: int, ticks: int, sig: signal.Signals) -> bool:
    """Signals that very process; False where it is gone or not ours."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not alive(pid, ticks):
            return False
        signal.pidfd_send_signal(fd, sig)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def send_all(stats: Iterable[Stat], sig: signal.Signals) -> None:
    for s in stats:
        send(s.pid, s.ticks, sig)


def mapped_bytes(pid: int) -> int:
    """Files' pages of its resident memory; 0 where it cannot be read."""
    try:
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("RssFile:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def user(pid: int) -> str:
    """The owner's name, its number where it has none, "?" where the process cannot be seen."""
    try:
        uid = (PROC / str(pid)).stat().st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def command(pid: int, limit: int = 200) -> str:
    """The command line (its name where that is empty), "?" where the process cannot be seen."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return "?"
    text = raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    if not text:
        found = stat(pid)
        text = found.comm if found else "?"
    return text[:limit]

"""Real systemd hosts on this machine: each boots in a container of its own, in a network namespace of its own.

    python -m tests.hosts.lab up 3        h1, h2, h3 at 10.213.77.11, .12, .13, reached by ssh from here and from nowhere else
    python -m tests.hosts.lab down        ends them and takes away all that was made

With SLOTSERVE_HOSTS_KEEP=1 a run of the tests leaves its hosts up, and takes those that are up: for work on single tests.

A host is a layer above a base (tests/hosts/base.py), and has no way out: what it needs is in the base, or is copied to it.
Needs root, Linux, and the Debian packages of PROGRAMS.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.base import FOLDER, LabError, base, do

KEEP = bool(os.environ.get("SLOTSERVE_HOSTS_KEEP"))
BRIDGE, NET = "slotlab0", "10.213.77"
OUTSIDE = f"{NET}.200"  # another address of this machine, for whoever is to be kept out
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "openssl": "openssl",
}
HIERARCHIES = ("systemd", "unified")  # of control groups, where there are several
GROUPS = Path("/sys/fs/cgroup")
REBOOT = 133  # nspawn's exit status when the host asks for one


def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    lacking = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return f"not installed: {' '.join(lacking)} (Debian's packages)" if lacking else ""


class Host:
    """One of them. `name` is h1, h2 …; `address` its IPv4 address."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab, self.name, self.address = lab, f"h{number}", f"{NET}.{10 + number}"
        self.folder = lab.folder / self.name
        self.root = self.folder / "root"
        self._link = f"slotlab-{self.name}"
        self._namespace = f"slotlab-{self.name}"
        self._keeper: subprocess.Popen[bytes] | None = None

    def up(self, lower: Path) -> None:
        """Starts it; `wait` says when it can be used."""
        do("ip", "netns", "add", self._namespace)
        do("ip", "-n", self._namespace, "link", "set", "lo", "up")
        do("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        do("ip", "link", "set", self._link, "master", BRIDGE, "up")
        do("ip", "-n", self._namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        do("ip", "-n", self._namespace, "link", "set", "eth0", "up")
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        layers = f"lowerdir={lower},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}"
        do("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        (self.root / "etc/machine-id").unlink(missing_ok=True)
        do("systemd-machine-id-setup", f"--root={self.root}")
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        names = "".join(f"{h.address} {h.name}\n" for h in self.lab.hosts)
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
        keys = self.root / "root/.ssh"
        keys.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.lab.folder / "id.pub", keys / "authorized_keys")
        for path in (self.root / "etc/ssh").glob("ssh_host_*"):
            path.unlink()
        do("ssh-keygen", "-q", "-A", "-f", str(self.root))
        self._boot()

    def _boot(self) -> None:
        """A process keeps the host running, also through its reboots."""
        command = [sys.executable, "-m", "tests.hosts.keeper", self.name, str(self.root), self._namespace]
        with (self.folder / "console.log").open("ab") as console:
            self._keeper = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        (self.folder / "pid").write_text(f"{self._keeper.pid}\n")

    def wait(self, seconds: float = 60) -> None:
        """Until the host answers by ssh and systemd has come up."""
        end = time.monotonic() + seconds
        while True:
            said = self.run("systemctl", "is-system-running", check=False, seconds=10)
            if said.stdout.strip() in ("running", "degraded"):
                return
            if time.monotonic() > end:
                tail = (self.folder / "console.log").read_text(errors="replace")[-2000:]
                raise LabError(f"{self.name} did not come up in {seconds:g} s: {said.stdout}{said.stderr}\n{tail}")
            time.sleep(0.2)

    def run(self, *command: str, check: bool = True, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """A command there, by ssh, as root: its words, each as it is."""
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)
        return self.sh(quoted, check=check, seconds=seconds)

    def sh(self, line: str, *, check: bool = True, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """A line for the shell there."""
        said = subprocess.run(
            ["ssh", *self.lab.ssh_options, f"root@{self.address}", line],
            capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if check and said.returncode:
            raise LabError(f"{self.name}: {line}: exit status {said.returncode}\n{said.stdout}{said.stderr}")
        return said

    def unplug(self) -> None:
        """Takes the network cable out."""
        do("ip", "link", "set", self._link, "down")

    def plug(self) -> None:
        do("ip", "link", "set", self._link, "up")

    def reboot(self, seconds: float = 60) -> None:
        """A clean one, from inside; returns when the host is back."""
        before = self.run("cat", "/proc/sys/kernel/random/boot_id").stdout, self._booted()
        self.sh("systemctl reboot", check=False)
        end = time.monotonic() + seconds
        while self._booted() == before[1] or not self._booted():
            if time.monotonic() > end:
                raise LabError(f"{self.name} did not boot anew in {seconds:g} s")
            time.sleep(0.2)
        self.wait(seconds)

    def _booted(self) -> str:
        """When its first process was started; empty while there is none."""
        return self.run("stat", "-c", "%Y", "/proc/1", check=False, seconds=10).stdout.strip()

    def processor_seconds(self) -> float:
        """What all its processes have used since it was started; 0 where this machine does not count."""
        for folder in (GROUPS / "unified", GROUPS):
            with contextlib.suppress(OSError):
                said = dict(
                    line.split() for line in (folder / f"slotlab-{self.name}/cpu.stat").read_text().splitlines()
                )
                return int(said["usage_usec"]) / 1e6
        return 0.0

    def alive(self) -> bool:
        return bool(self._keeper_pid())

    def _keeper_pid(self) -> int:
        """Of the process that keeps it running; 0 when there is none."""
        try:
            pid = int((self.folder / "pid").read_text())
            return pid if "tests.hosts.keeper" in Path(f"/proc/{pid}/cmdline").read_text() else 0
        except (OSError, ValueError):
            return 0

    def down(self) -> None:
        """Ends it and takes away what was made for it; goes on where something is not there."""
        if pid := self._keeper_pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + 20
            while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
                if self._keeper is not None and self._keeper.poll() is not None:
                    break
                time.sleep(0.05)
        _try("umount", str(self.root))
        if not self.root.is_mount():
            shutil.rmtree(self.folder, ignore_errors=True)
        _try("ip", "netns", "del", self._namespace)
        _try("ip", "link", "del", self._link)


class Lab:
    """`with Lab(3) as lab`: the hosts are up, and gone at the end."""

    def __init__(self, number: int, folder: Path | None = None) -> None:
        if why := missing():
            raise LabError(why)
        self.folder = folder or FOLDER / "lab"
        self.hosts = [Host(self, n) for n in range(1, number + 1)]
        self.key = self.folder / "id"
        self.ssh_options = [
            *("-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"),
            *("-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=5", "-o", "IdentitiesOnly=yes"),
            *("-o", "ControlMaster=no", "-F", "/dev/null"),
        ]
        self._lock: object = None

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        if not KEEP:
            self.down()

    def up(self) -> None:
        lower = base()
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (FOLDER / "lab.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError("another run has the hosts on this machine") from None
        self._lock = lock  # kept while the hosts are
        if KEEP and all(host.alive() for host in self.hosts):
            return
        self.clear()
        if not self.key.exists():
            do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        do("ip", "link", "add", BRIDGE, "type", "bridge")
        for address in (f"{NET}.1", OUTSIDE):
            do("ip", "addr", "add", f"{address}/24", "dev", BRIDGE)
        do("ip", "link", "set", BRIDGE, "up")
        try:
            for host in self.hosts:
                host.up(lower)
            for host in self.hosts:
                host.wait()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Ends what a run has left, this one's or one that was killed."""
        found = [Host(self, int(p.name[1:])) for p in self.folder.glob("h[0-9]*") if p.is_dir()]
        mine = {h.name: h for h in self.hosts}
        for host in found:
            mine.get(host.name, host).down()
        for left in self.folder.glob("gateway.*"):
            left.unlink()
        _try("ip", "link", "del", BRIDGE)


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)


def main(words: Sequence[str]) -> None:
    if len(words) == 2 and words[0] == "up":
        lab = Lab(int(words[1]))
        lab.up()
        for host in lab.hosts:
            print(f"{host.name} {host.address}   ssh {' '.join(lab.ssh_options)} root@{host.address}")
    elif list(words) == ["down"]:
        Lab(0).down()
    else:
        sys.exit("python -m tests.hosts.lab up N | down")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Keeps one host of the lab running: `python -m tests.hosts.keeper NAME ROOT NAMESPACE`. SIGTERM powers it off.

Each host has a control group of its own: systemd-nspawn, told to keep to the one it is in, would put all of them into one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.hosts.lab import GROUPS, HIERARCHIES, REBOOT


def main(name: str, root: str, namespace: str) -> None:
    groups = [GROUPS / h / f"slotlab-{name}" for h in HIERARCHIES if (GROUPS / h).is_dir()]
    groups = groups or [GROUPS / f"slotlab-{name}"]  # one hierarchy only
    for group in groups:
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    command = [
        *("systemd-nspawn", "-q", "-b", "-D", root, "-M", f"slotlab-{name}", "--register=no", "--keep-unit"),
        *(f"--network-namespace-path=/run/netns/{namespace}", "--resolv-conf=off", "--timezone=off"),
        *("--link-journal=no", "--console=pipe", "--capability=CAP_NET_ADMIN"),  # its namespace's firewall is its own
    ]
    ended = False
    child: subprocess.Popen[bytes] | None = None

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        if child is not None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not ended:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        )
        try:
            status = child.wait(None if not ended else 15)
        except subprocess.TimeoutExpired:
            child.kill()
            break
        if status != REBOOT:
            break
    for group in groups:
        (group.parent / "cgroup.procs").write_text(f"{os.getpid()}\n")
        for folder in sorted((p for p in (group, *group.rglob("*")) if p.is_dir()), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                break  # something still runs in it


if __name__ == "__main__":
    main(*sys.argv[1:4])

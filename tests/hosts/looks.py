"""What the tests look at on the hosts and at the controller."""

from __future__ import annotations

import socket

import httpx

from tests.hosts.fleet import TINY, Fleet
from tests.hosts.lab import NET, Host


def reached(place: tuple[str, int], come_from: str = f"{NET}.1", seconds: float = 5) -> bool:
    try:
        socket.create_connection(place, seconds, (come_from, 0)).close()
        return True
    except TimeoutError:
        return False


def gateways(host: Host) -> int:
    """Processes of the gateway's service, the lingering ones too."""
    said = host.run("systemctl", "show", "--property=ControlGroup", "--value", "slotserve-gateway").stdout.strip()
    return len(host.run("cat", f"/sys/fs/cgroup{said}/cgroup.procs").stdout.split())


def runs(host: Host, component: str, service: str) -> str:
    """The release that a service's process has loaded its libraries from, wherever the link leads by now."""
    pid = host.run("systemctl", "show", "--property=MainPID", "--value", f"slotserve-{service}").stdout.strip()
    found = host.run("grep", "-ho", f"{component}/releases/[^/]*", f"/proc/{pid}/maps").stdout.split()
    (release,) = set(found)
    return release.removeprefix(f"{component}/")


def online(fleet: Fleet, node: str) -> bool:
    try:
        return bool(fleet.node(node)["online"])
    except (httpx.HTTPError, AssertionError):
        return False


def reported(fleet: Fleet) -> int:
    """Loads of the tiny model that the controller has heard of."""
    program = (
        "import sqlite3; db = sqlite3.connect('file:/var/lib/slotserve/slotserve.db?mode=ro', uri=True); "
        f"print(db.execute('SELECT count(*) FROM loads WHERE model = ? AND ok', ['{TINY}']).fetchone()[0])"
    )
    return int(fleet.controller.run("/opt/slotserve/controller/current/venv/bin/python", "-c", program).stdout)

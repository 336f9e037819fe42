#!/usr/bin/python
"""Looks at a host and says what is in SlotServe's way there; changes nothing.

`look` asks the host, `problems` judges what it found (tests/ansible/test_preflight.py). For every Python that Ansible
works with, so it is written for older ones than SlotServe itself.
"""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import time
from pathlib import Path

DOCUMENTATION = """
module: slotserve_preflight
short_description: Says what is in SlotServe's way on a host
description: [Looks at Python, the clock, free space, ports, model folders and GPUs. Changes nothing.]
author: [The SlotServe project]
options:
  python: {description: The Python that virtual environments are made with., type: path, required: true}
  release: {description: What wheelhouse.py wrote of the release., type: dict, required: true}
  now: {description: The control machine's time in seconds since 1970., type: float, required: true}
  clock_tolerance: {description: Seconds by which the clocks may differ., type: float, required: true}
  require_ntp: {description: Whether the clock must be kept in sync., type: bool, required: true}
  free_megabytes: {description: Space that must be free in each of the places., type: int, required: true}
  places: {description: Folders that will be written to., type: list, elements: path, required: true}
  ports: {description: "Ports to listen on, each with the unit that may have it already.", type: list, elements: dict, default: []}
  user: {description: The service user., type: str, required: true}
  groups: {description: Groups it is in or will be., type: list, elements: str, default: []}
  folders: {description: Model folders that it must be able to read., type: list, elements: path, default: []}
  gpus: {description: GPUs that the driver must see., type: int, default: 0}
"""
EXAMPLES = """
- name: Look at the host
  slotserve_preflight: {python: /usr/bin/python3, ports: [{port: 8710, unit: slotserve-gateway.socket}]}
"""
RETURN = """
problems: {description: A sentence each; none where all is well., type: list, returned: always}
"""
LEAST_PYTHON = (3, 11)
ON_THE_WAY = 10  # seconds that a question may take to get here: the host's clock only seems ahead by them
NOBODY = 65534
DRIVER_SECONDS = 30
PYTHON_SAYS = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
LISTENING = "0A"  # in /proc/net/tcp


def look(wanted):
    """What is there, as `problems` takes it."""
    python = run(wanted["python"], "-c", PYTHON_SAYS)
    found = {
        "systemd": os.path.isdir("/run/systemd/system"),
        "arch": os.uname().machine,
        "python": python.stdout.strip() if python.returncode == 0 else "",
        "python_error": (python.stderr.strip().splitlines() or [""])[-1],
        "ahead": time.time() - wanted["now"],
        "ntp": run("timedatectl", "show", "--property=NTPSynchronized", "--value").stdout.strip() == "yes",
        "free": {place: free_megabytes(place) for place in wanted["places"]},
        "taken": [],
        "folders": {folder: readable(folder, wanted["user"], wanted["groups"]) for folder in wanted["folders"]},
    }
    listening = listening_ports()
    for each in wanted["ports"]:
        if int(each["port"]) in listening and run("systemctl", "is-active", "--quiet", each["unit"]).returncode:
            found["taken"].append(each)
    if wanted["gpus"]:
        driver = run("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
        why = (driver.stderr or driver.stdout).strip().splitlines()
        found["driver_error"] = "" if driver.returncode == 0 else (why or ["it says nothing"])[0]
        found["gpus"] = len(driver.stdout.splitlines())
    return found


def problems(found, wanted):
    """A sentence each, with what helps."""
    return [
        *python_problems(found, wanted),
        *clock_problems(found, wanted),
        *place_problems(found, wanted),
        *(gpu_problems(found, wanted) if wanted["gpus"] else ()),
    ]


def python_problems(found, wanted):
    python, version, release = wanted["python"], found["python"], wanted["release"]
    if not found["systemd"]:
        yield "systemd does not run this host; SlotServe's services are systemd units"
    if not version:
        why = found["python_error"] or "it says nothing"
        yield f"{python} cannot be used ({why}): install Python 3.11 or newer, or set slotserve_common_python"
    elif tuple(map(int, version.split("."))) < LEAST_PYTHON:
        yield f"{python} is Python {version}; 3.11 or newer is needed: slotserve_common_python names another"
    elif version != release["python"]:
        yield (
            f"{python} is Python {version}, the wheelhouse is for {release['python']}: ./wheelhouse.py --python {version}, "
            "or another slotserve_common_python"
        )
    if found["arch"] != release["arch"]:
        arch = found["arch"]
        yield f"this host is {arch}, the wheelhouse is for {release['arch']}: ./wheelhouse.py --arch {arch}"


def clock_problems(found, wanted):
    if not -wanted["clock_tolerance"] <= found["ahead"] <= wanted["clock_tolerance"] + ON_THE_WAY:
        yield (
            f"the clock differs from the control machine's by {found['ahead']:+.1f} s, so bookings would begin at the wrong "
            "time: set it, and have chrony or systemd-timesyncd keep it"
        )
    if wanted["require_ntp"] and not found["ntp"]:
        yield (
            "the clock is not kept in sync (timedatectl): install chrony or systemd-timesyncd, or set "
            "slotserve_common_require_ntp: false where something else keeps it"
        )


def place_problems(found, wanted):
    for place, free in found["free"].items():
        if free < wanted["free_megabytes"]:
            yield f"only {free} MB are free in {place}; {wanted['free_megabytes']} are needed (slotserve_common_free_megabytes)"
    for each in found["taken"]:
        yield (
            f"port {each['port']} is in use by something else than {each['unit']}: end that (ss -ltnp says what it is), or "
            "choose another port"
        )
    for folder, state in found["folders"].items():
        if state == "missing":
            yield f"the model folder {folder} is not there: make or mount it, or change model_folders"
        elif state == "unreadable":
            yield (
                f"the model folder {folder} cannot be read by {wanted['user']}: open it, or name the group that may read it "
                "in slotserve_common_groups"
            )


def gpu_problems(found, wanted):
    if why := found["driver_error"]:
        yield (
            f"the GPU driver does not answer (nvidia-smi: {why}): install it, or set slotserve_agent_expected_gpus: 0 where "
            "there is another maker's"
        )
    elif found["gpus"] < wanted["gpus"]:
        yield (
            f"the driver sees {found['gpus']} GPUs, {wanted['gpus']} are expected: look at nvidia-smi, at the channels' gpus "
            "and at slotserve_agent_expected_gpus"
        )


def run(*command):
    """A command's end, also where there is no such command."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        why = getattr(err, "strerror", None) or f"no answer within {DRIVER_SECONDS} s"
        return subprocess.CompletedProcess(command, 127, "", why)


def free_megabytes(place):
    """Of the folder, or of the nearest one above it that is there."""
    path = Path(place)
    while not path.exists():
        path = path.parent
    said = os.statvfs(str(path))
    return said.f_bavail * said.f_frsize // (1024 * 1024)


def listening_ports(tables=("/proc/net/tcp", "/proc/net/tcp6")):
    """TCP ports that somebody listens on."""
    found = set()
    for table in tables:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for line in lines:
            _, local, _, state = line.split()[:4]
            if state == LISTENING:
                found.add(int(local.rpartition(":")[2], 16))
    return found


def readable(folder, user, groups):
    """`missing`, `unreadable` or `fine` for the service user; one that is not there yet is taken for a stranger with the
    groups that it will have."""
    if not os.path.isdir(folder):
        return "missing"
    extra = {g.gr_gid for g in grp.getgrall() if g.gr_name in groups}
    try:
        who = pwd.getpwnam(user)
        uid, gid = who.pw_uid, who.pw_gid
        extra |= set(os.getgrouplist(user, gid))
    except KeyError:
        uid = gid = NOBODY
    if os.geteuid() != 0:
        return "fine"  # it cannot be tried
    test = subprocess.run(
        ["/usr/bin/test", "-r", folder, "-a", "-x", folder],
        user=uid, group=gid, extra_groups=sorted(extra), stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return "fine" if test.returncode == 0 else "unreadable"


def main():
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(
        supports_check_mode=True,
        argument_spec={
            "python": {"type": "path", "required": True},
            "release": {"type": "dict", "required": True},
            "now": {"type": "float", "required": True},
            "clock_tolerance": {"type": "float", "required": True},
            "require_ntp": {"type": "bool", "required": True},
            "free_megabytes": {"type": "int", "required": True},
            "places": {"type": "list", "elements": "path", "required": True},
            "ports": {"type": "list", "elements": "dict", "default": []},
            "user": {"type": "str", "required": True},
            "groups": {"type": "list", "elements": "str", "default": []},
            "folders": {"type": "list", "elements": "path", "default": []},
            "gpus": {"type": "int", "default": 0},
        },
    )
    module.exit_json(changed=False, problems=problems(look(module.params), module.params))


if __name__ == "__main__":
    main()

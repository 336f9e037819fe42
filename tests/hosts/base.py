"""The hosts' common lower layer: a small Debian as a new machine has it, made once and kept.

What the roles install is not in it: a folder of packages stands for the distribution's mirror, which the hosts cannot
reach, and no host has asked it yet what there is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(os.environ.get("SLOTSERVE_HOSTS_DIR", "/var/tmp/slotserve-hosts"))
MIRROR = "srv/apt"  # on each host
SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "openssh-server", "iproute2", "procps", "ca-certificates", "curl"),
    *("python3", "python3-apt", "libgomp1", "libstdc++6"),
)
OFFERED = ("nginx-light", "nftables", "postgresql")  # with what they need
# What a fresh Debian starts by itself and nobody needs here.
ASLEEP = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
    "systemd-timesyncd.service",
)
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
WAYS = ("Acquire::Check-", "Acquire::http", "Acquire::https")  # how this machine comes to its mirrors


class LabError(RuntimeError):
    """The hosts cannot be had; the message says why."""


def base() -> Path:
    """The layer's folder, made when it is not there yet (about a minute)."""
    folder = FOLDER / f"base-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        for old in FOLDER.glob("base*/"):
            shutil.rmtree(old)
        scratch = FOLDER / "base-unfinished"
        _install(scratch)
        _be_a_mirror(scratch)
        scratch.rename(folder)
    return folder


def stanza(package: Path) -> str:
    """What an index of packages says of one beside it."""
    with package.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    control = do("dpkg-deb", "--field", str(package))
    return f"{control}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n"


def do(*command: str) -> str:
    """What a command prints; LabError where it fails."""
    said = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if said.returncode:
        raise LabError(f"{' '.join(command[:6])}: exit status {said.returncode}\n{said.stdout}{said.stderr}"[-3000:])
    return said.stdout


def _install(root: Path) -> None:
    sources = [p for p in SOURCES if Path(p).exists()][:1]
    ways = [f"--aptopt={line}" for line in do("apt-config", "dump").splitlines() if line.startswith(WAYS)]
    hooks = (
        f'chroot "$1" systemctl mask --quiet {" ".join(ASLEEP)}',
        'rm "$1"/var/cache/apt/archives/*.deb',  # those that are installed
        'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --quiet=2 --yes --download-only --no-install-recommends install '
        + " ".join(OFFERED),
        f'mkdir -p "$1/{MIRROR}" && mv "$1"/var/cache/apt/archives/*.deb "$1/{MIRROR}"',
    )
    do("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", *ways,
       *(f"--customize-hook={hook}" for hook in hooks), SUITE, str(root), *sources)  # fmt: skip


def _be_a_mirror(root: Path) -> None:
    """The only one that the hosts' apt knows."""
    for path in (root / "etc/apt/sources.list.d").iterdir():
        path.unlink()
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{MIRROR} ./\n")
    mirror = root / MIRROR
    (mirror / "Packages").write_text("".join(stanza(package) for package in sorted(mirror.glob("*.deb"))))

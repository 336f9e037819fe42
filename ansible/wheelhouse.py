#!/usr/bin/env python3
"""Gathers a release for machines that reach no package registry: our wheel and all that it needs.

    ansible/wheelhouse.py [--python 3.11] [--arch x86_64] [--source CHECKOUT] [FOLDER]

FOLDER (default: ansible/wheelhouse) then holds

    release.json           {"version", "release", "python", "arch", "source", "pip"}; `release` names the folder on the hosts
    controller.tar         wheels of slotserve[controller], and of pip
    agent.tar              wheels of slotserve[agent], and of pip

Run on a machine with pip and a registry (or a mirror that pip is set up for); it may be another than the one that runs
the plays. Prints `unchanged` where the folder holds this already. The same source and the same wheels give the same
release name.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPONENTS = ("controller", "agent")
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")  # wheels for older systems run on newer ones
SOURCES = ("setup.cfg", "pyproject.toml", "LICENSE", "README.md", "controller", "agent", "protos")


def main() -> int:
    said = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    said.add_argument("folder", nargs="?", type=Path, default=HERE / "wheelhouse")
    said.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}", help="of the hosts")
    said.add_argument("--arch", default=os.uname().machine, help="of the hosts: x86_64 or aarch64")
    said.add_argument("--source", type=Path, default=HERE.parent, help="a checkout of SlotServe")
    given = said.parse_args()
    source = digest_of(given.source)
    wanted = {"python": given.python, "arch": given.arch, "source": source}
    manifest = given.folder / "release.json"
    if manifest.exists():
        have = json.loads(manifest.read_text())
        if {k: have.get(k) for k in wanted} == wanted and "pip" in have:
            print(f"unchanged {have['release']}")
            return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        ours = build(given.source, Path(scratch))
        digests = []
        for component in COMPONENTS:
            wheels = Path(scratch) / component
            download(wheels, given.python, given.arch, f"slotserve[{component}] @ {ours.as_uri()}", "pip")
            digests += [f"{component}/{p.name} {file_digest(p)}" for p in sorted(wheels.iterdir())]
            pack(wheels, given.folder / f"{component}.tar")
            (installer,) = (p.name for p in wheels.glob("pip-*.whl"))
    version = ours.name.split("-")[1]
    release = f"{version}-{hashlib.sha256(chr(10).join(digests).encode()).hexdigest()[:8]}"
    manifest.write_text(
        json.dumps({"version": version, "release": release, "pip": installer, **wanted}, indent=2) + "\n"
    )
    print(f"made {release} in {given.folder}")
    return 0


def build(source: Path, scratch: Path) -> Path:
    """Our wheel, out of a copy: nothing is written beside the sources."""
    copy = scratch / "source"
    copy.mkdir()
    for name in SOURCES:
        if (source / name).is_dir():
            shutil.copytree(source / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / name, copy / name)
    pip("wheel", "--no-deps", "--wheel-dir", scratch / "ours", copy.resolve())
    (wheel,) = (scratch / "ours").glob("slotserve-*.whl")
    return wheel.resolve()


def download(folder: Path, python: str, arch: str, *wanted: str) -> None:
    """Wheels alone: nothing can be compiled on the hosts."""
    platforms = [f"--platform=manylinux_{glibc}_{arch}" for glibc in GLIBC]
    platforms += [f"--platform={old}_{arch}" for old in ("manylinux2014", "manylinux2010", "manylinux1")]
    pip("download", "--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms, "--dest",
        folder, *wanted)  # fmt: skip


def pip(*words: str | Path) -> None:
    # A fixed time in the archive: the same source makes the same wheel.
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", words[0], "--quiet", *map(str, words[1:])],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"pip {words[0]} failed:\n{done.stderr or done.stdout}")


def pack(wheels: Path, target: Path) -> None:
    """One file a component: a hundred small ones take long over ssh."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = "root"
        member.mode = 0o644
        return member

    with tarfile.open(target, "w") as tar:
        for wheel in sorted(wheels.iterdir()):
            tar.add(wheel, wheel.name, filter=plain)


def digest_of(source: Path) -> str:
    """Of all that goes into our wheel."""
    total = hashlib.sha256()
    for name in SOURCES:
        found = sorted(p for p in (source / name).rglob("*") if p.is_file()) or [source / name]
        for path in found:
            if "__pycache__" not in path.parts:
                total.update(f"{path.relative_to(source)} {file_digest(path)}\n".encode())
    return total.hexdigest()[:16]


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

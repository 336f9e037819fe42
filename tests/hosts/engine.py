"""llama-server as a site has it: an archive, or a Debian package."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.base import FOLDER, MIRROR, do, stanza
from tests.hosts.lab import Host

PROGRAM = "bin/llama-server"  # in the archive
LIBRARY = "usr/lib/llama.cpp"  # in the package


def engine_archive(program: Path, libraries: Sequence[Path]) -> Path:
    """llama-server with its libraries as one archive, bin/…, as its own releases are."""
    target = FOLDER / f"llama-{int(program.stat().st_mtime)}-{program.stat().st_size}.tar.gz"
    if not target.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in FOLDER.glob("llama-*"):
            old.unlink()
        scratch = target.with_suffix(".unfinished")
        with tarfile.open(scratch, "w:gz", compresslevel=1, dereference=True) as tar:
            seen: set[str] = set()
            for folder in (*libraries, program.parent):
                for path in sorted(folder.iterdir()):
                    if path.is_file() and path.name not in seen:
                        seen.add(path.name)
                        tar.add(path.resolve(), f"bin/{path.name}")
        scratch.rename(target)
    return target


def offer_package(archive: Path, host: Host) -> None:
    """Has a host's mirror offer a package `llama.cpp-tools`, with what is in the archive."""
    mirror = host.root / MIRROR
    tree = mirror / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / LIBRARY).mkdir(parents=True)
    with tarfile.open(archive) as tar:
        tar.extractall(tree / LIBRARY, filter="data")
    program = tree / "usr/bin/llama-server"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH=/{LIBRARY}/bin exec /{LIBRARY}/{PROGRAM} "$@"\n'  # as a package's own rpath
    )
    program.chmod(0o755)
    control = {"Package": "llama.cpp-tools", "Version": "1", "Architecture": "all", "Maintainer": "nobody <nobody@localhost>",
               "Description": "for the tests"}  # fmt: skip
    (tree / "DEBIAN/control").write_text("".join(f"{k}: {v}\n" for k, v in control.items()))
    package = mirror / "llama.deb"
    do("dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(package))
    shutil.rmtree(tree)
    with (mirror / "Packages").open("a") as index:
        index.write(stanza(package))

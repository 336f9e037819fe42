"""Copies of this checkout as people have them who roll it out: of this version, and of one that is made up to be the next."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hosts.base import FOLDER
from tests.parts import ROOT

CONTENT = ("setup.cfg", "pyproject.toml", "LICENSE", "README.md", "controller", "agent", "protos", "ansible")


class Checkout:
    """`folder` has it; its release is gathered beside everything else, from the moment it is made."""

    def __init__(self, folder: Path, *, later: bool = False) -> None:
        self._folder = folder
        _copy(folder)
        if later:
            setup = folder / "setup.cfg"
            version = re.compile(r"(?m)^version = (\d+\.\d+)\.(\d+)$")
            setup.write_text(version.sub(lambda m: f"version = {m[1]}.{int(m[2]) + 1}", setup.read_text()))
        # What has been gathered before is kept between runs: wheelhouse.py sees by itself what has changed.
        kept = FOLDER / ("wheelhouse-next" if later else "wheelhouse-this")
        kept.mkdir(parents=True, exist_ok=True)
        (folder / "ansible/wheelhouse").symlink_to(kept)
        self._gathering = subprocess.Popen(
            [sys.executable, folder / "ansible/wheelhouse.py"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    @property
    def folder(self) -> Path:
        """Gathered."""
        assert self._gathering.wait(600) == 0, "wheelhouse.py has failed; what it said is above"
        return self._folder

    def end(self) -> None:
        self._gathering.terminate()
        self._gathering.wait()


def _copy(folder: Path) -> None:
    made_here = shutil.ignore_patterns("__pycache__", "*.egg-info", "wheelhouse", "hosts.yml")
    folder.mkdir()
    for name in CONTENT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=made_here)
        else:
            shutil.copy(ROOT / name, folder)

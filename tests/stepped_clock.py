"""A wall clock that a test sets for one process and its children, while it runs (tests/fakes/stepped_clock.c)."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

from tests.parts import ROOT, cannot_be_had


class SteppedClock:
    """`env` for the process; `set(seconds)` puts its clock off by so much, at once. Built into `folder`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            cannot_be_had("C compiler", "not installed; Debian has it as gcc, with libc6-dev")
        assert compiler is not None
        folder.mkdir(exist_ok=True)
        library, file = folder / "stepped_clock.so", folder / "offset"
        source = ROOT / "tests" / "fakes" / "stepped_clock.c"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-Wall", "-o", str(library), str(source)], check=True)
        file.write_bytes(struct.pack("<q", 0))
        with file.open("r+b") as handle:
            self._offset = mmap.mmap(handle.fileno(), 8)
        before = os.environ.get("LD_PRELOAD", "")
        self.env = {"LD_PRELOAD": f"{library} {before}".strip(), "STEPPED_CLOCK_FILE": str(file)}

    def set(self, seconds: float) -> None:
        self._offset[:] = struct.pack("<q", round(seconds * 1000))

"""A helper process that nobody is to notice: last for the processor and for the disk, and gone with its parent."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
IDLE = 3 << 13  # class idle
PR_SET_PDEATHSIG = 1


def be_last() -> None:
    """For this process, from now on. What the system does not allow is left out."""
    os.nice(19)
    libc = ctypes.CDLL(None, use_errno=True)
    number = IOPRIO_SET.get(platform.machine())
    if number is not None:
        libc.syscall(number, 1, 0, IDLE)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

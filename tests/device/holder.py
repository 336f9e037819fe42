"""A process that takes memory on a GPU and computes, by the CUDA driver alone: `python holder.py`, for check_gpu.py.

It says one line of JSON: {"held": bytes}, {"failed": call, "code", "words"}, or {"skip": why} where there is no CUDA.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

HELD = 1 << 30
SECONDS = 150.0  # it ends by itself


class Holder:
    """The process on the GPU of that UUID. `holds`: it has its memory."""

    def __init__(self, uuid: str) -> None:
        self.holds = False
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> dict[str, Any]:
        """What it says."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return {"failed": f"nothing said within {seconds:g} s"}
        line = self._process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line.strip() else {"failed": f"ended with {self._process.wait()}"}
        self.holds = said.get("held") == HELD
        return said

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as err:
        say({"skip": f"no CUDA here: {err}"})
        return
    device, context, place = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(place), ctypes.c_size_t(HELD))),
    ]
    for name, arguments in steps:
        code = getattr(cuda, name)(*arguments)
        if code:
            say({"failed": name, "code": code, "words": words(cuda, code)})
            return
    say({"held": HELD})
    end, parent = time.monotonic() + SECONDS, os.getppid()
    while time.monotonic() < end and os.getppid() == parent:
        for value in range(20):
            cuda.cuMemsetD8_v2(place, ctypes.c_ubyte(value), ctypes.c_size_t(HELD))
        cuda.cuCtxSynchronize()


def words(cuda: Any, code: int) -> str:
    text = ctypes.c_char_p()
    with contextlib.suppress(AttributeError):
        cuda.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"").decode("utf-8", "replace")


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()

"""What the simulated engine says, and how it ends."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, NoReturn

from agent.simulated.arguments import MARK, Values

STARTED = time.monotonic()


def log(message: str, level: str = "I") -> None:
    """A line as llama-server writes it: minutes, seconds, milliseconds, microseconds since the start."""
    micros = int((time.monotonic() - STARTED) * 1e6)
    stamp = f"{micros // 60_000_000}.{micros // 1_000_000 % 60:02d}.{micros // 1000 % 1000:03d}.{micros % 1000:03d}"
    sys.stderr.write(f"{stamp} {level} {message}\n")
    sys.stderr.flush()


def check_model(model: str) -> None:
    """As llama-server: a file that is missing, or no GGUF, ends the load."""
    try:
        with open(model, "rb") as file:
            magic = file.read(len(MARK))
    except OSError as err:
        _fail(model, f"gguf_init_from_file: failed to open GGUF file '{model}' ({err.strerror})")
    if not magic:
        _fail(model, "gguf_init_from_reader: failed to read magic")
    if not magic.startswith((b"GGUF", MARK)):
        seen = magic[:4].decode("latin-1")
        _fail(model, f"gguf_init_from_reader: invalid magic characters: '{seen}', expected 'GGUF'")


def break_device() -> None:
    """What llama.cpp says of a broken device."""
    log("ggml_cuda_error: CUDA error: an illegal memory access was encountered", "E")


def fail_to_load(settings: Values, model: str) -> None:
    if "oom" in settings:
        log(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 49152.00 MiB on device 0: cudaMalloc failed: out of memory",
            "E",
        )
        log("alloc_tensor_range: failed to allocate CUDA0 buffer of size 51539607552", "E")
        _fail(model, "llama_model_load: error loading model: unable to allocate CUDA0 buffer")
    if "crash-at-load" in settings:
        log("llama_model_load: error loading model: simulated failure", "E")
        crash(settings)


def crash(settings: Values) -> NoReturn:
    code = int(settings.get("exit-code", 1))
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(5)  # a signal that is ignored: end all the same
    os._exit(abs(code))


def end(number: int, frame: Any) -> None:
    """The first signal after the load ends it properly; there is nothing that a second one could meet."""
    log("srv    operator(): operator(): cleaning up before exit...")
    os._exit(0)


def leave(code: int, words: str) -> NoReturn:
    log(f"srv  llama_server: {words}", "E")
    os._exit(code)


def _fail(model: str, line: str) -> NoReturn:
    log(line, "E")
    log(f"srv    load_model: failed to load model, '{model}'", "E")
    leave(1, "exiting due to model loading error")

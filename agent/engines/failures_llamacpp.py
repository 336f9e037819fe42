"""llama-server's words when it fails. Lines were taken from its source and from the real program; wordings differ a
little from build to build, so patterns are kept to the part that stays."""

from __future__ import annotations

import re

from agent.engines.base import Ended, Verdict
from agent.engines.failures import Sign, Values, classify, lines_of, now, sign


def classify_llamacpp(output: str, ended: Ended, values: Values) -> Verdict:
    """`values`: the preset's options by their first spelling (LlamaCpp.values)."""
    lines = lines_of(output)
    if ended.was_ready:
        # What was said while loading was survived; only what came after can be why it ended.
        loaded = [i for i, line in enumerate(lines) if "model loaded" in line]
        lines = lines[loaded[-1] + 1 :] if loaded else lines
    return classify(_without_survived(lines), ended, values, SIGNS)


def _without_survived(lines: list[str]) -> list[str]:
    """An allocation that llama.cpp tries again in another way, and gets, is no failure: such lines do not count."""
    again = [i for i, line in enumerate(lines) if "retrying without pipeline parallelism" in line]
    last = again[-1] if again else -1
    return [
        line
        for i, line in enumerate(lines)
        if not (i <= last and ALLOCATION.search(line)) and not HARMLESS.search(line)
    ]


def _context(values: Values) -> str:
    return now(values, "-c", "not set: as long as the model allows")


def _gpu_memory(match: re.Match[str], values: Values) -> str:
    layers = f" (now {values['-ngl']})" if values.get("-ngl") else ""
    return f"out of GPU memory: lower -ngl{layers} or -c ({_context(values)})"


def _main_memory(match: re.Match[str], values: Values) -> str:
    return f"out of main memory: lower -c ({_context(values)}) or use a smaller model"


def _bad_argument(match: re.Match[str], values: Values) -> str:
    return f"bad argument: the engine does not know {match['flag']}; correct it in the preset, or use an engine that knows it"


def _bad_value(match: re.Match[str], values: Values) -> str:
    return f"bad argument: the engine refuses the value of {match['flag']} ({match['why'].strip()}); correct it in the preset"


def _bad_usage(match: re.Match[str], values: Values) -> str:
    return f"bad argument: the engine says {match['why'].strip()!r}; correct the preset"


def _file_missing(match: re.Match[str], values: Values) -> str:
    name = next(text for text in match.groups() if text)
    return f"file missing: {name} is not on this node; put it there, or correct the path"


def _file_forbidden(match: re.Match[str], values: Values) -> str:
    return f"file not readable: {match['file']} cannot be read by the agent's user; give it the right to read it"


def _architecture(match: re.Match[str], values: Values) -> str:
    return f"unsupported architecture {match['name']!r}: this llama-server does not know it; a newer one may"


def _bind(match: re.Match[str], values: Values) -> str:
    host = match["host"]
    if host.endswith(".sock"):
        return f"socket taken: {host} could not be opened; something else is there, or its folder is missing"
    return f"port taken: {match['port']} on {host} is in use by another program; the next try takes another port"


def _library(match: re.Match[str], values: Values) -> str:
    return (
        f"missing shared library {match['name']}: install it on the node, or set LD_LIBRARY_PATH for the engine in the"
        " node's file"
    )


OUT_OF_GPU_MEMORY = (
    r"(cuda|hip|musa)Malloc failed|(CUDA|ROCm|HIP) error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|unable to allocate (?!CPU)\S+ buffer|failed to allocate (?!CPU|buffer|output)\S+ buffer of size"
    r"|ErrorOutOfDeviceMemory|vk_error_out_of_device_memory|Requested buffer size .* exceeds|out of device memory"
    r"|device memory allocation .* failed"
)
OUT_OF_MAIN_MEMORY = (
    r"unable to allocate CPU\S* buffer|failed to allocate (CPU\S* )?buffer of size|std::bad_alloc|cannot allocate memory"
    r"|failed to allocate \d+ bytes|ErrorOutOfHostMemory|malloc: insufficient memory"
)
# Said after one of the above, or alone: whose memory it was is not in the line.
ANY_MEMORY = (
    r"failed to allocate buffer for (kv|rs) cache|failed to allocate compute (pp |tg )?buffers?|failed to allocate graph"
    r"|\bout of memory\b|not enough memory|insufficient memory"
)
ALLOCATION = re.compile(f"{OUT_OF_GPU_MEMORY}|{OUT_OF_MAIN_MEMORY}|{ANY_MEMORY}|allocation failed", re.IGNORECASE)
# Said by engines that go on all the same.
HARMLESS = re.compile(
    r"pinned memory|failed to fit params|trying to fit params|failed to mlock|async uploads", re.IGNORECASE
)
BROKEN = "broken file: the model's file is cut short or damaged; copy it again and compare its size and checksum"
TOO_NEW = "unsupported file version: the model's file was written for another llama.cpp; update the engine or convert it again"
TOO_OLD = "a shared library of this node is too old for this engine: update it, or use another build of the engine"
NO_GPU = "the engine found no GPU and fell back to the processor: look at the driver (nvidia-smi), then retry"
NO_BACKEND = (
    "llama-server finds none of its ggml backends: install it completely, or set LD_LIBRARY_PATH in the node's file"
)

LIBRARIES: tuple[Sign, ...] = (
    sign("missing_library", r"error while loading shared libraries: (?P<name>[^:\s]+)", _library),
    sign("missing_library", r"ImportError: (?P<name>[^:\s]+\.so[^:\s]*): cannot open shared object file", _library),
    sign("missing_library", r"version [`'][^`']+' not found|symbol lookup error", TOO_OLD),
)
SIGNS: tuple[Sign, ...] = (
    *LIBRARIES,
    sign("bad_argument", r"error: invalid argument: (?P<flag>.+)", _bad_argument),
    sign(
        "bad_argument",
        r'error while handling (argument|environment variable) "(?P<flag>[^"]+)": (?P<why>.+)',
        _bad_value,
    ),
    sign("bad_argument", r"^error: (?P<why>.+)", _bad_usage),
    sign("port_taken", r"couldn't bind \S+ server socket, hostname: (?P<host>[^,]+), port: (?P<port>\d+)", _bind),
    sign(
        "missing_file",
        r"failed to open (?:GGUF )?file '([^']+)' \(No such file|failed to open (\S+): No such file",
        _file_missing,
    ),
    sign("missing_file", r"failed to open file '([^']+)'$", _file_missing),
    sign(
        "missing_file", r"failed to open (GGUF )?(file )?'?(?P<file>[^'():]+)'?:? \(?Permission denied", _file_forbidden
    ),
    sign("unsupported_architecture", r"unknown model architecture: '(?P<name>[^']*)'", _architecture),
    sign("unsupported_architecture", r"unknown (pre-tokenizer|projector) type\W+(?P<name>[\w.-]+)", _architecture),
    sign("unsupported_architecture", r"file is version \d+ but|bad GGUF version", TOO_NEW),
    sign(
        "broken_file",
        r"not within the file bounds|corrupted|invalid magic|failed to read (magic|key-value|tensor)",
        BROKEN,
    ),
    sign(
        "broken_file", r"(illegal|invalid|missing) split file|failed to load GGUF split|wrong number of tensors", BROKEN
    ),
    sign(
        "broken_file", r"missing tensor|has wrong shape|tensor '[^']*' (not found|is duplicated)|invalid n_dims", BROKEN
    ),
    sign("broken_file", r"unexpectedly reached end of file|input/output error", BROKEN),
    sign("out_of_memory", OUT_OF_GPU_MEMORY, _gpu_memory),
    sign("out_of_memory", OUT_OF_MAIN_MEMORY, _main_memory),
    sign("out_of_memory", ANY_MEMORY, _gpu_memory),
    sign("port_taken", r"address already in use", "port taken by another program; the next try takes another port"),
    sign("cpu_fallback", r"failed to initialize CUDA|no usable GPU found", NO_GPU),
    sign("missing_library", r"no backends are loaded|(unable to|failed to) load backend", NO_BACKEND),
)

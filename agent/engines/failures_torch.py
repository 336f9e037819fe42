"""The words of vLLM and SGLang when they fail. The cause stands above their last lines ("see root cause above")."""

from __future__ import annotations

import re

from agent.engines.base import Ended, Verdict
from agent.engines.failures import AGAIN, KILLED, Sign, Values, by_signal, classify, lines_of, now, sign, tidy
from agent.engines.failures_llamacpp import LIBRARIES


def classify_vllm(output: str, ended: Ended, values: Values) -> Verdict:
    """`values`: the preset's options by their first spelling."""
    lines = _after_ready(output, ended, "Application startup complete")
    return classify(lines, ended, values, VLLM, cause=_cause(lines))


def classify_sglang(output: str, ended: Ended, values: Values) -> Verdict:
    """`values`: the preset's options by their first spelling. On any failure of a part it ends itself with SIGKILL."""
    lines = _after_ready(output, ended, "The server is fired up and ready to roll")
    return classify(lines, ended, values, SGLANG, kills_itself=True, cause=_cause(lines))


def _cause(lines: list[str]) -> str:
    """The first exception that is none of those that only pass another one on; else a line that says one was."""
    said = [(tidy(line), line) for line in lines]
    first = next((line for text, line in said if EXCEPTION.match(text) and not PASSED_ON.search(text)), "")
    return first or next((line for text, line in said if PASSED_ON.search(text)), "")


def _after_ready(output: str, ended: Ended, marker: str) -> list[str]:
    lines = lines_of(output)
    if ended.was_ready:
        ready = [i for i, line in enumerate(lines) if marker in line]
        lines = lines[ready[-1] + 1 :] if ready else lines
    return lines


def _vllm_memory(match: re.Match[str], values: Values) -> str:
    share = now(values, "--gpu-memory-utilization", "not set: 0.9")
    return f"out of GPU memory: lower --gpu-memory-utilization ({share}) or --max-model-len ({_vllm_length(values)})"


def _vllm_length(values: Values) -> str:
    return now(values, "--max-model-len", "not set: as long as the model allows")


def _vllm_fits(match: re.Match[str], values: Values) -> str:
    return (
        f"the KV cache is too small for the context: lower --max-model-len ({_vllm_length(values)}) to {match['fits']}"
    )


def _vllm_no_blocks(match: re.Match[str], values: Values) -> str:
    share = now(values, "--gpu-memory-utilization", "not set: 0.9")
    return f"no memory is left for the KV cache: raise --gpu-memory-utilization ({share}) or lower --max-model-len"


def _vllm_tight(match: re.Match[str], values: Values) -> str:
    share = now(values, "--gpu-memory-utilization", "not set: 0.9")
    length = _vllm_length(values)
    return f"the KV cache is too small for the context: lower --max-model-len ({length}) or raise --gpu-memory-utilization ({share})"


def _vllm_warming_up(match: re.Match[str], values: Values) -> str:
    share = now(values, "--gpu-memory-utilization", "not set: 0.9")
    requests = now(values, "--max-num-seqs", "not set: chosen by vLLM")
    return f"out of GPU memory: lower --max-num-seqs ({requests}) or --gpu-memory-utilization ({share})"


def _vllm_too_long(match: re.Match[str], values: Values) -> str:
    return (
        f"bad argument: the model allows {match['most']} tokens of context, and {match['asked']} are asked for: lower"
        f" --max-model-len ({_vllm_length(values)})"
    )


def _tensor_parallel(match: re.Match[str], values: Values) -> str:
    return (
        f"bad argument: {match['size']} GPUs cannot share the model's {match['heads']} attention heads evenly: choose a"
        " tensor parallel size that divides them"
    )


def _gpu_fault(match: re.Match[str], values: Values) -> str:
    return (
        f"the GPU reported a fault ({match['what'].strip()}): look for Xid in the node's kernel log; it is tried again"
    )


def _part_crashed(match: re.Match[str], values: Values) -> str:
    return f"a part of the engine crashed: {by_signal(int(match['number']))}; {AGAIN}"


def _sglang_memory(match: re.Match[str], values: Values) -> str:
    share = now(values, "--mem-fraction-static", "not set: chosen by SGLang")
    length = now(values, "--context-length", "not set: as long as the model allows")
    return f"out of GPU memory: lower --mem-fraction-static ({share}) or --context-length ({length})"


def _sglang_static(match: re.Match[str], values: Values) -> str:
    share = now(values, "--mem-fraction-static", "not set: chosen by SGLang")
    return f"no memory is left for the KV cache: raise --mem-fraction-static ({share}), or use fewer bits or more GPUs"


def _usage(match: re.Match[str], values: Values) -> str:
    return f"bad argument: the engine says {match['why'].strip()!r}; correct the preset"


def _missing(match: re.Match[str], values: Values) -> str:
    return f"file missing: {match['file']} is not on this node; put it there, or correct the path"


def _architecture(match: re.Match[str], values: Values) -> str:
    return f"unsupported architecture {match['name']}: this engine does not know it; a newer one may"


BUSY = "the GPU's memory is held by other processes: they must end first (see the channel's GPU list)"
PORT = "port taken by another program; the next try takes another port"
BROKEN = "broken file: a weight file is cut short or damaged; copy it again and compare its size and checksum"
NO_CONFIG = "file missing: the model's folder has no config.json that this engine can read; copy the model again, whole"
NO_GPU = "the engine found no GPU: look at the driver (nvidia-smi), then retry"

_COMMON: tuple[Sign, ...] = (
    *LIBRARIES,
    sign(
        "bad_argument",
        r"error: (?P<why>(unrecognized arguments|argument |ambiguous option|the following arguments).*)",
        _usage,
    ),
    sign("port_taken", r"address already in use", PORT),
)
_ARCHITECTURE: tuple[Sign, ...] = (
    sign("unsupported_architecture", r"Model architectures? \[?'?(?P<name>[\w.-]+)'?.* not supported", _architecture),
    sign(
        "unsupported_architecture",
        r"model (of )?type `(?P<name>[^`]+)` but Transformers does not recognize",
        _architecture,
    ),
    sign("bad_argument", r"User-specified max_model_len \((?P<asked>\d+)\).*?=(?P<most>\d+)", _vllm_too_long),
    sign(
        "bad_argument",
        r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<size>\d+)\)",
        _tensor_parallel,
    ),
    sign("missing_file", r"Invalid repository ID or local directory specified", NO_CONFIG),
)
_FILES: tuple[Sign, ...] = (
    sign("missing_file", r"No such file or directory: '(?P<file>[^']+)'", _missing),
    sign("missing_file", r"Cannot find any model weights with `(?P<file>[^`]+)`", _missing),
    sign(
        "broken_file",
        r"SafetensorError|Error while deserializing header|incomplete metadata|invalid JSON in header",
        BROKEN,
    ),
    sign("cpu_fallback", r"No CUDA GPUs are available|no CUDA-capable device|Failed to infer device type", NO_GPU),
    sign("crashed", r"CUDA error: (?P<what>[^\n]+)", _gpu_fault),
)
# A part of the engine that the kernel killed, or that crashed: the rest only says that it is gone.
_PARTS: tuple[Sign, ...] = (
    sign("killed_by_kernel", r"Failed core proc\(s\): \{[^}]*: -9\b", f"a part of it was killed (SIGKILL): {KILLED}"),
    sign(
        "killed_by_kernel",
        r"died during initialization \(exit code: -9\)",
        f"a part of it was killed (SIGKILL): {KILLED}",
    ),
    sign("crashed", r"Failed core proc\(s\): \{[^}]*: -(?P<number>\d+)", _part_crashed),
    sign("crashed", r"died during initialization \(exit code: -(?P<number>\d+)\)", _part_crashed),
)
_TORCH_MEMORY = r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|HIP out of memory|CUDA error: out of memory"
VLLM: tuple[Sign, ...] = (
    *_COMMON,
    *_ARCHITECTURE,
    sign("gpu_busy", r"Free memory on device .* is less than desired GPU memory utilization", BUSY),
    sign("kv_cache_too_small", r"estimated maximum model length is (?P<fits>\d+)", _vllm_fits),
    sign("kv_cache_too_small", r"KV cache is needed, which is larger than the available KV cache memory", _vllm_tight),
    sign("kv_cache_too_small", r"No available memory for the cache blocks", _vllm_no_blocks),
    sign("out_of_memory", r"CUDA out of memory occurred when warming up sampler", _vllm_warming_up),
    sign("out_of_memory", _TORCH_MEMORY, _vllm_memory),
    *_FILES,
    *_PARTS,
)
SGLANG: tuple[Sign, ...] = (
    *_COMMON,
    *_ARCHITECTURE,
    # Often a warning only, but then of the same cause as the failure for want of memory that follows it.
    sign("gpu_busy", r"memory capacity is unbalanced. Some GPUs may be occupied", BUSY),
    sign("kv_cache_too_small", r"Not enough memory. Please try to increase --mem-fraction-static", _sglang_static),
    sign("out_of_memory", rf"{_TORCH_MEMORY}|Capture cuda graph failed", _sglang_memory),
    *_FILES,
    *_PARTS,
)
# Python's words for what went wrong, and what vLLM and SGLang say about a failure that is told above.
EXCEPTION = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Interrupt|Failure|Exit)\b(:|$)")
PASSED_ON = re.compile(
    r"Engine core initialization failed|EngineCore failed to start|EngineDeadError|Received sigquit from a child"
    r"|hit an exception|died during initialization|WorkerProc initialization failed|Failed core proc"
)

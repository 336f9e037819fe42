"""An engine's environment: what it gets from the agent, from the node's file and from a preset, and what stays ours.

The agent's own environment is let through by a list of what engines need; the node's file is the administrator's and
counts whole; a preset may add what is neither owned by SlotServe nor able to load code into the engine. The latter
needs an administrator's permission: it stays, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.engines.base import Dropped, Place

# Of the agent's environment: where programs and libraries are, the language, and settings of drivers and frameworks.
PASSED = re.compile(
    r"PATH|LD_LIBRARY_PATH|LANG|LANGUAGE|LC_\w+|TZ|TERM|USER|LOGNAME|SSL_CERT_(FILE|DIR)"
    r"|(CUDA|NVIDIA|NCCL|CUBLAS|CUDNN|GGML|GPU|HIP|HSA|ROCR|ROCM|AMD|VK|MESA|OMP|KMP|MKL|OPENBLAS|GOMP|TORCH|PYTORCH"
    r"|TORCHINDUCTOR|TRITON|VLLM|SGLANG|SGL|FLASHINFER|UCX|GLOO|TRANSFORMERS|TOKENIZERS|HF_HUB|LLAMA)_\w+"
)
Reasons = tuple[tuple[re.Pattern[str], str], ...]
# Never from anybody: each would choose another key, port or path.
OWNED: Reasons = (
    (re.compile(r"LLAMA_API_KEY|VLLM_API_KEY"), "SlotServe gives the engine a new key at every start"),
    (re.compile(r"LLAMA_ARG_.*"), "options of llama-server go into the arguments, where they are seen and checked"),
    (re.compile(r"AIP_.*"), "it would move the engine to another port or path"),
    (
        re.compile(r"VLLM_PORT|VLLM_HOST_IP|VLLM_DP_.*|SGLANG_PORT|SGLANG_GRPC_PORT"),
        "SlotServe chooses the engine's ports",
    ),
    (re.compile(r"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"), "SlotServe asks for the engine's health every second"),
    (re.compile(r"SLOTSERVE_.*"), "it is a setting of SlotServe itself"),
)
# Not from a preset; the node's file is an administrator's.
OWNED_IN_PRESETS: Reasons = (
    (
        re.compile(r"HF_TOKEN(_PATH)?|HF_HOME|HUGGING_?FACE_.*|HF_ENDPOINT|LLAMA_CACHE"),
        "SlotServe serves the model on the disk; engines fetch nothing",
    ),
    (re.compile(r"HOME|TMPDIR|TMP|TEMP|XDG_.*"), "every launch has a home and a temporary folder of its own"),
    (
        re.compile(
            r"CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL"
            r"|(HIP|ROCR|GGML_VK)_VISIBLE_DEVICES"
        ),
        "the channel's GPUs are set by SlotServe",
    ),
)
# Able to make the engine run other code; useful now and then (a newer driver library), but not for everybody to say:
# they stay, and need an administrator's permission.
CODE_LOADING = re.compile(
    r"PATH|LD_.*|PYTHON.*|BASH_ENV|ENV|IFS|GCONV_PATH|LOCPATH|GLIBC_TUNABLES|OPENSSL_(CONF|MODULES|ENGINES)|VK_.*"
    r"|GGML_BACKEND_PATH|(CUDA|NVTX)_INJECTION64_PATH|NCCL_\w+_PLUGIN|NCCL_CONF_FILE|CC|CXX|TRITON_.*|TORCHINDUCTOR_.*"
    r"|TORCH_EXTENSIONS_DIR|VLLM_(PLUGINS|SERVER_DEV_MODE|ALLOW_INSECURE_SERIALIZATION|LOGGING_CONFIG_PATH)"
    r"|VLLM_RUST_FRONTEND_PATH|SGLANG_(EXTERNAL_\w+|PLUGINS|LOGGING_CONFIG_PATH)"
)
# The same of whatever names a place: what is compiled or downloaded into a folder is run from there.
PLACE_NAME = re.compile(r".+_(PATH|DIR|DIRECTORY|FOLDER|HOME|ROOT|BASE|FILE|LIB|LIBRARY|LIBRARIES|PLUGIN|MODULE)S?")
# Engines serve what is on the disk: they look for nothing on the network and report nothing, unless the node's file or a
# preset says otherwise.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# What engines compile (kernels, graphs, shaders) is kept in the channel's cache folder over launches: where each part of
# them looks for it, beside XDG_CACHE_HOME.
COMPILED = {"CUDA_CACHE_PATH": "cuda"}
COMPILED_BY_TORCH = {
    "VLLM_CACHE_ROOT": "vllm",
    "SGLANG_CACHE_DIR": "sglang",
    "SGLANG_JIT_CACHE_DIR": "sglang/jit",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "TILELANG_CACHE_DIR": "tilelang",
}
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOT_USABLE = "not something that an environment can hold: names are letters, digits and _"


def engine_environment(
    preset: Mapping[str, str],
    inherited: Mapping[str, str],
    node: Mapping[str, str],
    place: Place,
    *,
    torch: bool = False,
) -> tuple[dict[str, str], list[Dropped], list[str]]:
    """The environment without the engine's own key, what of the preset was dropped, and what needs permission. `torch`:
    the engine is built on it, and on its many compilers."""
    env = {name: value for name, value in inherited.items() if PASSED.fullmatch(name) and _usable(name, value)}
    env.update({name: value for name, value in node.items() if _usable(name, value)})
    env = {name: value for name, value in env.items() if _why(name, OWNED) is None}
    dropped: list[Dropped] = []
    permissioned: list[str] = []
    for name, given in preset.items():
        value = str(given)
        why = _why(name, OWNED) or _why(name, OWNED_IN_PRESETS)
        if why is None and not _usable(name, value):
            why = NOT_USABLE
        if why is not None:
            dropped.append(Dropped(name, why))
            continue
        if _reaches_beyond(name.upper(), value):
            permissioned.append(name)
        env[name] = value
    if place.gpu_uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpu_uuids)
    else:  # a channel without GPUs: those of the machine are other channels'
        env.update({name: "" for name in HIDING if name not in node})
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["HOME"] = place.home
    env["TMPDIR"] = place.tmpdir
    env["XDG_CONFIG_HOME"] = f"{place.home}/.config"
    env["XDG_CACHE_HOME"] = place.cache or f"{place.home}/.cache"
    if place.cache:
        for name, folder in (COMPILED | COMPILED_BY_TORCH if torch else COMPILED).items():
            env.setdefault(name, f"{place.cache}/{folder}")
        if torch:  # code that came with a model is copied there: not kept for the next one
            env.setdefault("HF_HOME", f"{place.home}/.cache/huggingface")
    return env, dropped, permissioned


def _reaches_beyond(name: str, value: str) -> bool:
    return bool(CODE_LOADING.fullmatch(name) or PLACE_NAME.fullmatch(name)) or "/" in value


def passable(text: str) -> bool:
    """Whether a process can be given this text at all: no NUL, and something that can be encoded."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def _usable(name: str, value: str) -> bool:
    return bool(_NAME.fullmatch(name)) and passable(value)


def _why(name: str, reasons: Reasons) -> str | None:
    return next((why for pattern, why in reasons if pattern.fullmatch(name.upper())), None)

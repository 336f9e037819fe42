"""What vLLM's and SGLang's last words mean. Excerpts are written from what the programs say, shortened."""
# ruff: noqa: E501 (the excerpts)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines import get
from agent.engines.base import Ended, Verdict

ARGS = {
    "vllm": ("--max_model_len", "131072", "--gpu-mem=0.95", "--max-num-seqs", "256"),
    "sglang": ("--context-length", "131072", "--mem", "0.9"),
}
V = "(EngineCore pid=4711) ERROR 11-30 04:40:12 [v1/engine/core.py:1510] "
S = "[2026-11-30 04:40:12 TP0] "
# What vLLM says below each failure of its engine process.
V_AFTER = f"""{V}EngineCore failed to start.
{V}Traceback (most recent call last):
{V}  File "/opt/v/vllm/v1/engine/core.py", line 1490, in run_engine_core
{V}    engine_core = EngineCoreProc(*args, **kwargs)
%s
(APIServer pid=4700) Traceback (most recent call last):
(APIServer pid=4700)   File "/opt/v/bin/vllm", line 8, in <module>
(APIServer pid=4700) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{'EngineCore': 1}}
"""
# And SGLang, before it kills itself.
S_AFTER = f"""{S}Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/s/sglang/srt/managers/scheduler.py", line 6360, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id)
%s

[2026-11-30 04:40:12] Received sigquit from a child process. It usually means the child failed.
"""
KV = "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (5.28 GiB). %sTry increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine."
ESTIMATE = "Based on the available memory, the estimated maximum model length is 43264. "


def vllm(line: str) -> str:
    return V_AFTER % (V + line)


def sglang(line: str) -> str:
    return S_AFTER % line


CASES = [
    # --- vLLM: output, exit status, category, words of the reason, words of the engine's own line
    ("vllm", vllm(KV % ESTIMATE), 1, "kv_cache_too_small", "the KV cache is too small for the context: lower --max-model-len (now 131072) to 43264", "ValueError: To serve at least one request"),
    ("vllm", vllm(KV % ""), 1, "kv_cache_too_small", "lower --max-model-len (now 131072) or raise --gpu-memory-utilization (now 0.95)", "ValueError: To serve"),
    ("vllm", vllm("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."), 1, "kv_cache_too_small", "no memory is left for the KV cache: raise --gpu-memory-utilization (now 0.95) or lower --max-model-len", "No available memory"),
    ("vllm", vllm("ValueError: Free memory on device cuda:0 (2.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.95, 75.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."), 1, "gpu_busy", "held by other processes", "Free memory on device cuda:0"),
    ("vllm", vllm("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.06 GiB is free."), 1, "out_of_memory", "out of GPU memory: lower --gpu-memory-utilization (now 0.95) or --max-model-len (now 131072)", "torch.OutOfMemoryError"),
    ("vllm", vllm("RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."), 1, "out_of_memory", "lower --max-num-seqs (now 256) or --gpu-memory-utilization (now 0.95)", "warming up sampler"),
    ("vllm", "usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --frobnicate 3\n", 2, "bad_argument", "unrecognized arguments: --frobnicate 3", "vllm serve: error:"),
    ("vllm", "vllm serve: error: argument --max-model-len: invalid human_readable_int_or_auto value: 'lots'\n", 2, "bad_argument", "argument --max-model-len", "lots"),
    ("vllm", "vllm serve: error: ambiguous option: --max-n could match --max-num-seqs, --max-num-batched-tokens\n", 2, "bad_argument", "ambiguous option: --max-n", "could match"),
    ("vllm", "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, User-specified max_model_len (131072) is greater than the derived max_model_len (max_position_embeddings=8192 or model_max_length=None in model's config.json).\n", 1, "bad_argument", "the model allows 8192 tokens of context, and 131072 are asked for: lower --max-model-len", "User-specified"),
    ("vllm", "  Value error, Total number of attention heads (14) must be divisible by tensor parallel size (4).\n", 1, "bad_argument", "4 GPUs cannot share the model's 14 attention heads evenly", "attention heads"),
    ("vllm", "  Value error, Model architectures ['FrobForCausalLM'] are not supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])\n", 1, "unsupported_architecture", "FrobForCausalLM", "not supported for now"),
    ("vllm", "ValueError: The checkpoint you are trying to load has model type `frob4` but Transformers does not recognize this architecture.\n", 1, "unsupported_architecture", "frob4", "Transformers does not recognize"),
    ("vllm", "ValueError: Invalid repository ID or local directory specified: '/models/q'.\nPlease verify the following requirements:\n", 1, "missing_file", "no config.json", "Invalid repository ID"),
    ("vllm", vllm("RuntimeError: Cannot find any model weights with `/models/q`"), 1, "missing_file", "/models/q is not on this node", "Cannot find any model weights"),
    ("vllm", vllm("safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"), 1, "broken_file", "cut short or damaged", "SafetensorError"),
    ("vllm", "OSError: [Errno 98] Address already in use\n", 1, "port_taken", "another port", "Errno 98"),
    ("vllm", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n", 1, "missing_library", "libcudart.so.12", "libcudart"),
    ("vllm", "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`\n", 1, "cpu_fallback", "found no GPU", "infer device type"),
    ("vllm", vllm("KeyError: 'model.layers.0.mlp.frob'"), 1, "crashed", "ended by itself before it was ready with exit status 1", "KeyError: 'model.layers.0.mlp.frob'"),
    ("vllm", vllm("").replace("'EngineCore': 1", "'EngineCore': -9"), 1, "killed_by_kernel", "main memory ran out", "Failed core proc"),
    ("vllm", vllm("").replace("'EngineCore': 1", "'EngineCore': -11"), 1, "crashed", "a part of the engine crashed: it touched memory that is not its own (SIGSEGV)", "Failed core proc"),
    ("vllm", "loading weights\n", -9, "killed_by_kernel", "SIGKILL", "loading weights"),
    # --- SGLang
    ("sglang", sglang("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.9"), -9, "kv_cache_too_small", "raise --mem-fraction-static (now 0.9)", "Not enough memory"),
    ("sglang", sglang("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), -9, "out_of_memory", "lower --mem-fraction-static (now 0.9) or --context-length (now 131072)", "torch.OutOfMemoryError"),
    ("sglang", sglang("Exception: Capture cuda graph failed: CUDA out of memory\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"), -9, "out_of_memory", "lower --mem-fraction-static (now 0.9)", "Capture cuda graph failed"),
    ("sglang", sglang("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=3.1, local_gpu_memory=78.5"), -9, "gpu_busy", "held by other processes", "unbalanced"),
    ("sglang", f"{S}The memory capacity is unbalanced. Some GPUs may be occupied by other processes. \n" + sglang("torch.OutOfMemoryError: CUDA out of memory."), -9, "gpu_busy", "held by other processes", "unbalanced"),
    ("sglang", "usage: sglang serve [-h]\nsglang serve: error: unrecognized arguments: --model_path /x\n", 2, "bad_argument", "--model_path /x", "unrecognized"),
    ("sglang", "sglang serve: error: argument --mem-fraction-static: invalid float value: 'half'\n", 2, "bad_argument", "argument --mem-fraction-static", "half"),
    ("sglang", sglang("ValueError: Model architectures ['FrobForCausalLM'] are not supported for now. Supported architectures: dict_keys([])"), -9, "unsupported_architecture", "FrobForCausalLM", "not supported"),
    ("sglang", sglang("AssertionError: frob"), -9, "crashed", "a part of the engine failed before it was ready, and it ended itself", "AssertionError: frob"),
    ("sglang", sglang("AssertionError: frob"), 137, "crashed", "a part of the engine failed", "AssertionError: frob"),
    ("sglang", "[2026-11-30 04:40:12] Received sigquit from a child process. It usually means the child failed.\n", -9, "crashed", "a part of the engine failed", "Received sigquit"),
    ("sglang", "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.\n", -9, "killed_by_kernel", "main memory ran out", "exit code: -9"),
    ("sglang", "RuntimeError: Rank 0 scheduler died during initialization (exit code: -11). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.\n", -9, "crashed", "SIGSEGV", "exit code: -11"),
    ("sglang", "loading weights\n", -9, "killed_by_kernel", "SIGKILL", "loading weights"),
    ("sglang", f"{S}Load weight begin. avail mem=78.5 GB\n", -15, "crashed", "SIGTERM", "Load weight begin"),
]  # fmt: skip


def verdict(engine: str, output: str, code: int | None, **more: bool) -> Verdict:
    return get(engine).classify(output, Ended(code, **more), ARGS[engine])


@pytest.mark.parametrize(("engine", "output", "code", "category", "words", "detail"), CASES)
def test_what_it_means(engine: str, output: str, code: int, category: str, words: str, detail: str) -> None:
    found = verdict(engine, output, code)
    assert (found.category, words in found.reason, detail in found.detail) == (category, True, True), found
    assert found.detail in output, "the engine's own words"
    assert not found.detail.startswith(("(", "[", "ERROR")), "without what stands before each of its lines"


@pytest.mark.parametrize(
    ("engine", "ready"),
    [
        ("vllm", "(APIServer pid=4700) INFO:     Application startup complete.\n"),
        ("sglang", "[2026-11-30 04:40:12] The server is fired up and ready to roll!\n"),
    ],
)
def test_after_it_was_ready(engine: str, ready: str) -> None:
    """What was survived while loading is no reason; the KV cache's being full is none at all."""
    earlier = "torch.OutOfMemoryError: CUDA out of memory.\n" + ready + "KV cache pool is full. Retract requests.\n"
    fault = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    found = verdict(engine, earlier + fault, -9 if engine == "sglang" else 1, was_ready=True)
    assert (found.category, "an illegal memory access" in found.reason) == ("crashed", True), found
    found = verdict(engine, earlier, 1, was_ready=True)
    assert (found.category, found.reason) == (
        "crashed",
        "the engine ended by itself while it served with exit status 1; see its output",
    )
    later = "torch.OutOfMemoryError: CUDA out of memory.\n"
    assert verdict(engine, earlier + later, 1, was_ready=True).category == "out_of_memory"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_still_loading_when_its_time_was_over(engine: str) -> None:
    found = verdict(engine, "Loading safetensors checkpoint shards:  12% Completed | 3/25\n", None, timed_out=True)
    assert (found.category, "load_timeout_seconds" in found.reason) == ("load_timeout", True)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_present_values_are_said_not_set_where_they_are_not(engine: str) -> None:
    found = get(engine).classify("torch.OutOfMemoryError: CUDA out of memory\n", Ended(1), ())
    assert found.reason.count("(not set: ") == 2


@given(st.sampled_from(["vllm", "sglang"]), st.text(max_size=300), st.integers(-64, 255) | st.none(), st.booleans())
def test_any_output_has_a_verdict(engine: str, output: str, code: int | None, ready: bool) -> None:
    found = verdict(engine, output, code, was_ready=ready)
    assert found.category
    assert found.reason

"""What llama-server's last words mean. Excerpts are written from what the program says, shortened."""
# ruff: noqa: E501 (the excerpts)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines import get
from agent.engines.base import Ended, Verdict

ARGS = ("-c", "65536", "-ngl", "99")
OOM = """0.01.204.881 I srv    load_model: loading model '/m/q.gguf'
0.03.004.881 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 49152.00 MiB on device 0: cudaMalloc failed: out of memory
0.03.004.901 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 51539607552
0.03.105.000 E llama_model_load: error loading model: unable to allocate CUDA0 buffer
0.03.106.000 E srv    load_model: failed to load model, '/m/q.gguf'
0.03.107.000 E srv  llama_server: exiting due to model loading error
"""
SURVIVED = """0.03.004.881 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 1: cudaMalloc failed: out of memory
0.03.004.901 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 943718400
0.03.004.902 W llama_context: compute buffer allocation failed, retrying without pipeline parallelism
"""


def verdict(output: str, code: int | None = 1, args: tuple[str, ...] = ARGS, **more: bool) -> Verdict:
    return get("llama.cpp").classify(output, Ended(code, **more), args)


CASES = [
    (OOM, "out_of_memory", "out of GPU memory: lower -ngl (now 99) or -c (now 65536)", "cudaMalloc failed: out of memory"),
    ("E x: failed to allocate buffer for kv cache\n", "out_of_memory", "lower -ngl (now 99) or -c (now 65536)", "kv cache"),
    ("E x: failed to allocate buffer for rs cache\n", "out_of_memory", "out of GPU memory", "rs cache"),
    ("E graph_reserve: failed to allocate compute buffers\n", "out_of_memory", "out of GPU memory", "compute buffers"),
    ("E init: failed to allocate compute pp buffers\n", "out_of_memory", "out of GPU memory", "pp buffers"),
    ("E ggml_gallocr: failed to allocate graph\n", "out_of_memory", "out of GPU memory", "graph"),
    ("ggml_vulkan: Device memory allocation of size 1 failed.\nvk::Device::allocateMemory: ErrorOutOfDeviceMemory\n", "out_of_memory", "out of GPU memory", "emory"),
    ("E alloc: failed to allocate CPU buffer of size 999\n", "out_of_memory", "out of main memory: lower -c (now 65536)", "CPU buffer"),
    ("E ggml_aligned_malloc: insufficient memory (attempted to allocate 19531.25 MB)\nE alloc_tensor_range: failed to allocate CPU buffer of size 20480000000\nE llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n", "out_of_memory", "out of main memory: lower -c (now 65536)", "aligned_malloc"),
    ("terminate called after throwing an instance of 'std::bad_alloc'\n", "out_of_memory", "out of main memory", "bad_alloc"),
    ("0.00.006.295 E gguf_init_from_file: failed to open GGUF file '/m/no.gguf' (No such file or directory)\n", "missing_file", "/m/no.gguf is not on this node", "gguf_init_from_file: failed to open"),
    ("E gguf_init_from_file: failed to open GGUF file 'a b.gguf' (Permission denied)\n", "missing_file", "a b.gguf cannot be read", "Permission"),
    ("E llama_model_load: error loading model: tensor 'blk.0.ffn' data is not within the file bounds, model is corrupted or incomplete\n", "broken_file", "cut short or damaged", "blk.0.ffn"),
    ("E gguf_init_from_reader: failed to read key-value pairs\n", "broken_file", "cut short", "key-value"),
    ("E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'\n", "broken_file", "cut short or damaged", "magic"),
    ("E llama_model_load: error loading model: missing tensor 'output.weight'\n", "broken_file", "damaged", "missing tensor"),
    ("E llama_model_load: error loading model: unknown model architecture: 'frob'\n", "unsupported_architecture", "'frob'", "unknown model architecture"),
    ("E llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'zork'\n", "unsupported_architecture", "'zork'", "zork"),
    ("error: invalid argument: --ctx-sise\n", "bad_argument", "does not know --ctx-sise", "error: invalid argument: --ctx-sise"),
    ('error while handling argument "-c": stoi\n\nusage:\n-c N\n', "bad_argument", "refuses the value of -c (stoi)", '"-c": stoi'),
    ('error while handling argument "--device": invalid device: CUDA0\n', "bad_argument", "--device (invalid device: CUDA0)", "CUDA0"),
    ("E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\n", "port_taken", "8080 on 127.0.0.1", "couldn't bind"),
    ("E srv start: couldn't bind HTTP server socket, hostname: /r/a.sock, port: 8080\n", "port_taken", "/r/a.sock could not be opened", "couldn't bind"),
    ("llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file or directory\n", "missing_library", "libcudart.so.12", "libcudart"),
    ("llama-server: /lib/libc.so.6: version `GLIBC_2.38' not found (required by llama-server)\n", "missing_library", "too old", "GLIBC_2.38"),
    ("E ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n", "cpu_fallback", "fell back to the processor", "failed to initialize"),
    ("W x: no usable GPU found, --gpu-layers option will be ignored\n", "cpu_fallback", "nvidia-smi", "no usable GPU"),
    ("E llama_model_load: error loading model: something nobody foresaw\n", "crashed", "exit status 1", "something nobody foresaw"),
    ("", "crashed", "ended by itself before it was ready with exit status 1", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "category", "reason", "detail"), CASES, ids=[f"{c[1]}-{i}" for i, c in enumerate(CASES)]
)
def test_what_it_means(output: str, category: str, reason: str, detail: str) -> None:
    found = verdict(output)
    assert found.category == category
    assert reason in found.reason
    assert detail in found.detail
    assert not found.detail.startswith("0.0")


def test_the_first_telling_line_is_shown_not_the_last() -> None:
    assert "49152.00 MiB" in verdict(OOM).detail


def test_present_values_that_are_not_set_are_said_to_be_so() -> None:
    assert verdict(OOM, args=()).reason == "out of GPU memory: lower -ngl or -c (not set: as long as the model allows)"


def test_an_allocation_that_was_tried_again_is_no_failure() -> None:
    other = "E llama_model_load: error loading model: unknown model architecture: 'x'\n"
    assert verdict(SURVIVED + other).category == "unsupported_architecture"
    assert verdict(SURVIVED, None, timed_out=True).category == "load_timeout"
    assert verdict(SURVIVED, -6).category == "crashed"
    assert verdict(SURVIVED + OOM).category == "out_of_memory"
    assert "49152.00 MiB" in verdict(SURVIVED + OOM).detail


@pytest.mark.parametrize(
    "harmless",
    [
        "W common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user\n",
        "W ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: out of memory\n",
        "W warning: failed to mlock 1000-byte buffer (after previously locking 0 bytes): Cannot allocate memory\n",
    ],
)
def test_warnings_are_no_failures(harmless: str) -> None:
    assert verdict(harmless, -11).category == "crashed"


def test_what_happened_while_loading_does_not_count_after_it() -> None:
    loaded = (
        OOM
        + "0.09.000.000 I srv  llama_server: model loaded\n0.09.000.001 I srv  llama_server: listening on unix:///x.sock\n"
    )
    assert verdict(loaded + "ggml-cuda.cu:88: an illegal memory access\n", -6, was_ready=True).category == "crashed"
    later = verdict(loaded + "CUDA error: out of memory\n  current device: 0\n", -6, was_ready=True)
    assert (later.category, later.detail) == ("out_of_memory", "CUDA error: out of memory")


@pytest.mark.parametrize(
    ("code", "more", "category", "words"),
    [
        (-9, {}, "killed_by_kernel", "main memory ran out"),
        (137, {}, "killed_by_kernel", "main memory ran out"),
        (-9, {"timed_out": True}, "load_timeout", "load_timeout_seconds"),
        (None, {"timed_out": True}, "load_timeout", "load_timeout_seconds"),
        (-6, {"was_ready": True}, "crashed", "while it served: it stopped itself after a fault (SIGABRT)"),
        (134, {}, "crashed", "SIGABRT"),
        (-11, {}, "crashed", "SIGSEGV"),
        (-4, {}, "crashed", "processor instructions"),
        (-15, {}, "crashed", "somebody ended it"),
        (0, {}, "crashed", "exit status 0"),
        (127, {}, "missing_library", "is not on this node"),
        (-64, {}, "crashed", "signal"),
        (None, {}, "crashed", "failed before it was ready"),
    ],
)
def test_where_nothing_was_said_the_exit_status_speaks(
    code: int | None, more: dict[str, bool], category: str, words: str
) -> None:
    found = verdict("0.00.003.513 I cmn  hello\n", code, **more)
    assert found.category == category
    assert words in found.reason


def test_killed_counts_more_than_what_was_said_before() -> None:
    assert verdict(OOM, -9).category == "killed_by_kernel"


def test_a_long_line_is_cut_and_colours_go() -> None:
    found = verdict("\x1b[31merror: invalid argument: --" + "x" * 2000 + "\x1b[0m\r\n")
    assert len(found.detail) == 500
    assert "\x1b" not in found.detail + found.reason


@given(
    st.text(),
    st.one_of(st.none(), st.integers(-70, 260)),
    st.booleans(),
    st.booleans(),
    st.lists(st.text(max_size=5), max_size=4),
)
def test_any_output_gets_a_verdict(
    output: str, code: int | None, timed_out: bool, was_ready: bool, args: list[str]
) -> None:
    for name in ("llama.cpp", "vllm", "sglang", "simulated"):
        found = get(name).classify(output, Ended(code, timed_out, was_ready), args)
        assert found.category
        assert found.reason

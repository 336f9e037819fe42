"""An engine's environment: what it is given, what a preset may add, what nobody may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.engines import ENGINES
from agent.engines.base import Place, Prepared
from agent.engines.environment import COMPILED_BY_TORCH

PLACE = Place("/m", ("m",), "KEY", socket="/s.sock", gpu_uuids=("GPU-1", "GPU-2"), home="/h", tmpdir="/t")


def prepare(engine: str = "llama.cpp", place: Place = PLACE, **envs: dict[str, str]) -> Prepared:
    preset, inherited, node = (envs.get(k, {}) for k in ("preset", "inherited", "node"))
    return ENGINES[engine].prepare(("x",), (), preset, place, inherited, node)


def test_ours_are_set_last() -> None:
    made = prepare(
        inherited={"HOME": "/root", "PATH": "/bin"}, node={"TMPDIR": "/n", "CUDA_VISIBLE_DEVICES": "0", "ANY": "1"}
    )
    assert made.env == {
        "PATH": "/bin",
        "ANY": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HOME": "/h",
        "TMPDIR": "/t",
        "XDG_CONFIG_HOME": "/h/.config",
        "XDG_CACHE_HOME": "/h/.cache",
        "LLAMA_API_KEY": "KEY",
    }


@pytest.mark.parametrize(
    ("engine", "name"),
    [("llama.cpp", "LLAMA_API_KEY"), ("simulated", "LLAMA_API_KEY"), ("vllm", "VLLM_API_KEY"), ("sglang", None)],
)
def test_each_engine_has_its_key_where_it_looks_for_it(engine: str, name: str | None) -> None:
    made = prepare(engine)
    assert {k for k, v in made.env.items() if v == "KEY"} == ({name} if name else set())
    assert ("--api-key=KEY" in made.command) == (name is None)


def test_a_channel_without_gpus_sees_none_of_the_machines() -> None:
    place = Place("/m", ("m",), "K")
    env = prepare(place=place, inherited={"CUDA_VISIBLE_DEVICES": "0", "PATH": "/bin"}).env
    hidden = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"}
    assert {name for name, value in env.items() if value == ""} == hidden
    env = prepare(place=place, node={"GGML_VK_VISIBLE_DEVICES": "0"}).env
    assert env["GGML_VK_VISIBLE_DEVICES"] == "0", "the node's file is the administrator's"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "SLOTSERVE_NODE_FILE",
            "LLAMA_ARG_PORT",
            "LLAMA_API_KEY",
            "AIP_MODE",
            "AIP_HTTP_PORT",
            "VLLM_PORT",
            "VLLM_API_KEY",
        ),
        *(
            "SGLANG_PORT",
            "LD_PRELOAD",
            "PYTHONPATH",
            "AWS_SECRET_ACCESS_KEY",
            "HF_TOKEN",
            "NOTIFY_SOCKET",
            "INVOCATION_ID",
        ),
    ],
)
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_the_agents_own_do_not_get_through(engine: str, name: str) -> None:
    assert prepare(engine, inherited={name: "from-the-agent"}).env.get(name) != "from-the-agent"


@pytest.mark.parametrize(
    "name", ["PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "CUDA_HOME", "NCCL_DEBUG", "GGML_VK_VISIBLE_DEVICES"]
)
def test_what_engines_need_gets_through(name: str) -> None:
    assert prepare(inherited={name: "v"}).env[name] == "v"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "LLAMA_ARG_MODEL",
            "LLAMA_ARG_HF_REPO",
            "LLAMA_ARG_CTX_SIZE",
            "LLAMA_ARG_NO_MMAP",
            "LLAMA_API_KEY",
            "AIP_MODE",
        ),
        *(
            "AIP_HTTP_PORT",
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "VLLM_API_KEY",
            "VLLM_PORT",
            "SGLANG_PORT",
            "SGLANG_GRPC_PORT",
            "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
            "VLLM_DP_SIZE",
            "VLLM_DP_MASTER_PORT",
            "HOME",
            "TMPDIR",
        ),
        *(
            "XDG_CONFIG_HOME",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "SLOTSERVE_TICK_SECONDS",
            "a b",
            "",
            "A=B",
            "1A",
        ),
    ],
)
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_what_a_preset_may_not_set_is_dropped_and_said(engine: str, name: str) -> None:
    made = prepare(engine, preset={name: "from-the-preset"})
    assert [d.argument for d in made.dropped] == [name]
    assert made.dropped[0].why
    assert "from-the-preset" not in repr(made)


def test_a_value_that_no_environment_can_hold_is_dropped() -> None:
    assert [d.argument for d in prepare(preset={"A": "x\0y", "B": "ok", "C": "\ud800"}).dropped] == ["A", "C"]


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "GGML_BACKEND_PATH", "VK_LAYER_PATH"),
        *("VLLM_PLUGINS", "VLLM_RUST_FRONTEND_PATH", "SGLANG_EXTERNAL_MODEL_PACKAGE", "SGLANG_PLUGINS"),
        *(
            "CUDA_HOME",
            "VLLM_CACHE_ROOT",
            "HF_MODULES_CACHE_DIR",
            "NUMBA_CACHE_DIR",
            "TORCH_HOME",
            "OMP_TOOL_LIBRARIES",
        ),
        *COMPILED_BY_TORCH,
    ],
)
def test_what_could_load_code_stays_and_needs_permission(name: str) -> None:
    made = prepare(preset={name: "v"}, inherited={"PATH": "/bin"})
    assert made.needs_permission == (name,)
    assert made.env[name] == "v"
    assert made.dropped == ()


@pytest.mark.parametrize("value", ["/tmp/mine", "../mine", "http://elsewhere/", "a.so:/tmp/b.so"])
def test_a_place_needs_permission_whatever_its_name(value: str) -> None:
    assert prepare(preset={"SOME_NEW_SETTING": value}).needs_permission == ("SOME_NEW_SETTING",)


def test_anything_else_of_a_preset_counts() -> None:
    made = prepare(
        preset={"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1", "VLLM_ATTENTION_BACKEND": "X"},
        node={"VLLM_ATTENTION_BACKEND": "Y"},
    )
    assert (made.env["GGML_CUDA_ENABLE_UNIFIED_MEMORY"], made.env["VLLM_ATTENTION_BACKEND"]) == ("1", "X")
    assert made.needs_permission == made.dropped == ()
    harmless = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_DISABLE_COMPILE_CACHE": "1"}
    harmless |= {"CUDA_MODULE_LOADING": "LAZY", "NCCL_P2P_DISABLE": "1", "OMP_NUM_THREADS": "8", "VLLM_USE_V1": "1"}
    assert prepare(preset=harmless).needs_permission == ()


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_what_engines_compile_is_kept_in_the_channels_folder(engine: str) -> None:
    place = replace(PLACE, cache="/c")
    env = prepare(engine, place, node={"TRITON_CACHE_DIR": "/fast/triton"}).env
    assert (env["XDG_CACHE_HOME"], env["CUDA_CACHE_PATH"]) == ("/c", "/c/cuda")
    assert (env["HOME"], env["TMPDIR"]) == ("/h", "/t"), "those are the launch's own"
    if engine in ("vllm", "sglang"):
        compiled = {name: env[name] for name in COMPILED_BY_TORCH}
        assert compiled.pop("TRITON_CACHE_DIR") == "/fast/triton", "the node's file is the administrator's"
        assert all(path.startswith("/c/") for path in compiled.values())
        assert env["HF_HOME"] == "/h/.cache/huggingface", "code that came with a model is not kept"
    else:
        assert not set(env) & (set(COMPILED_BY_TORCH) - {"TRITON_CACHE_DIR"})


def test_without_such_a_folder_nothing_is_kept() -> None:
    env = prepare("vllm").env
    assert env["XDG_CACHE_HOME"] == "/h/.cache"
    assert not set(env) & set(COMPILED_BY_TORCH)

"""vLLM's and SGLang's command lines: abbreviations, `=`, options with many values, stray words."""
# ruff: noqa: E501 (excerpts of logs)

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines import can_load, choose, get, names, prefixed, sglang, vllm
from agent.engines.base import Ended, Place, Prepared, unique_name
from tests.arguments.lists import ODD_NAMES

SOCKET = Place("/models/q", ("q/w", "q/w~1"), "KEY", socket="/run/a.sock")
PORT = Place("/models/q", ("q/w", "q/w~1"), "KEY", port=4001)
VLLM_OURS = ("--served-model-name", "q/w", "q/w~1", "--uds", "/run/a.sock")
SGLANG_OURS = ("--served-model-name=q/w", "--host", "127.0.0.1", "--port", "4001", "--api-key=KEY")


def prepare(engine: str, args: list[str]) -> Prepared:
    return get(engine).prepare((engine,), args, {}, SOCKET if engine == "vllm" else PORT, {})


def kept(engine: str, args: list[str]) -> list[str]:
    command = prepare(engine, args).command
    head, ours = (3, VLLM_OURS) if engine == "vllm" else (4, SGLANG_OURS)
    begin = ("vllm", "serve", "/models/q") if engine == "vllm" else ("sglang", "serve", "--model-path", "/models/q")
    assert command[:head] == begin
    assert command[-len(ours) :] == ours
    return list(command[head : -len(ours)])


@pytest.mark.parametrize(
    "owned",
    [
        *(
            "--model /x",
            "--model=/x",
            "--mod /x",
            "--served-model-name a b c",
            "--served-model x",
            "--served_model_name=x",
        ),
        *(
            "--ser x y",
            "--host 0.0.0.0",
            "--ho H",
            "--port 9",
            "--por 9",
            "--port=9",
            "--uds S",
            "--ud S",
            "--root-path P",
        ),
        *(
            "--ro P",
            "--api-key K L",
            "--api-k K",
            "--api_key=K",
            "--ssl-keyfile x",
            "--ssl-c x",
            "--grpc",
            "--grpc-port 1",
        ),
        *("--headless", "--head", "--api-server-count 2", "-asc 2", "--config f.yaml", "--config=f.yaml", "--conf f"),
        *(
            "--middleware m",
            "--data-parallel-size 2",
            "--data-parallel-address x",
            "-dpa x",
            "-dp 2",
            "-dpb x",
            "--omni",
        ),
        *("--data-parallel-supervisor-port 1", "--master-addr x", "--master-port 1", "--nnodes 2", "--node-rank 1"),
        *("--device-ids 0,1", "/other/model", "-- /other --port 1"),
    ],
)
def test_what_is_ours_goes_vllm(owned: str) -> None:
    assert kept("vllm", ["-tp", "2", *owned.split(), "--max-model-len", "8k"]) == (
        ["-tp", "2"] if owned.startswith("-- ") else ["-tp", "2", "--max-model-len", "8k"]
    )
    assert all(d.why for d in prepare("vllm", owned.split()).dropped)


@pytest.mark.parametrize(
    "owned",
    [
        *(
            "--model-path /x",
            "--model /x",
            "--model=/x",
            "--model-p /x",
            "--served-model-name x",
            "--se x",
            "--host x",
            "--ho x",
        ),
        *(
            "--port 1",
            "--po 1",
            "--port=1",
            "--api-key x",
            "--ap x",
            "--admin-api-key x",
            "--ad x",
            "--fastapi-root-path x",
        ),
        *(
            "--fa x",
            "--ssl-keyfile x",
            "--ssl-certfile=x",
            "--config f",
            "--config=f",
            "--conf f",
            "--dist-init-addr x",
        ),
        *("--nccl-init-addr x", "--nccl-port 1", "--grpc-port 1", "--grpc-mode", "--smg-grpc-mode", "--use-ray"),
        *(
            "--encoder-only",
            "--model-type diffusion",
            "--base-gpu-id 1",
            "--gpu-id-step 2",
            "--enable-http-worker-reuseport",
        ),
        *("--grpc-http-sidecar-port 1", "/other/model"),
    ],
)
def test_what_is_ours_goes_sglang(owned: str) -> None:
    stay = ["--tp-size", "2", "--mem-fraction-static", "0.8"]
    assert kept("sglang", [*stay[:2], *owned.split(), *stay[2:]]) == stay


@pytest.mark.parametrize(
    "args",
    [
        ["--max-model-len", "8k"],
        ["--max_model_len=8192"],
        ["--gpu-memory-utilization", "0.8", "--enforce-eager"],
        ["--hf-overrides.rope_scaling.factor", "2"],
        ["--speculative-config", '{"a b": "c=d"}'],
        ["--lora-modules", "a=/x", "b=/y"],
        ["-tp=2"],
        ["--seed", "-1"],
        ["--no-enable-prefix-caching"],
        ["--gpu-mem", "0.8"],
        ["-O3"],
        ["-O=3", "-cc.cudagraph_mode", "FULL"],
    ],
)
def test_what_is_not_ours_stays_vllm(args: list[str]) -> None:
    made = prepare("vllm", args)
    assert kept("vllm", args) == args
    assert made.dropped == made.unknown == ()


def test_underscores_are_not_sglangs() -> None:
    assert prepare("sglang", ["--model_path", "/x"]).unknown == ("--model_path",)


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        *[("vllm", f) for f in sorted(vllm.OPTIONS.permissioned)],
        ("vllm", "--trust_remote_code"),
        ("vllm", "--trust"),
        *[("sglang", f) for f in sorted(sglang.OPTIONS.permissioned)],
    ],
)
def test_what_loads_code_or_reads_files_needs_permission(engine: str, flag: str) -> None:
    assert prepare(engine, [flag, "x"]).needs_permission == (flag,)


def test_unknown_ones_stay_with_what_follows_them() -> None:
    made = prepare("vllm", ["--brand-new", "a", "b", "--other=1", "--max-model-len"])
    assert kept("vllm", ["--brand-new", "a", "b", "--other=1"]) == ["--brand-new", "a", "b", "--other=1"]
    assert made.unknown == ("--brand-new", "--other")
    assert [d.argument for d in made.dropped] == ["--max-model-len"]
    assert get("vllm").suggest("--max-modle-len") == "--max-model-len"
    assert get("vllm").suggest("--hots") != "--host", "that one would be dropped"


def test_a_node_may_name_the_subcommand_itself() -> None:
    assert get("vllm").prepare(("vllm", "serve"), (), {}, SOCKET, {}).command[:3] == ("vllm", "serve", "/models/q")
    old = get("sglang").prepare(("python3", "-m", "sglang.launch_server"), (), {}, PORT, {}).command
    assert old[:4] == ("python3", "-m", "sglang.launch_server", "--model-path")


WORDS = [
    "x",
    "-1",
    "-.5",
    "--",
    "-",
    "",
    " ",
    "=",
    "--=",
    "--.x",
    "--m",
    "--s",
    "--frob=1",
    "-O3",
    "-n2",
    "- x.y",
    "\0",
]


OPTIONS = {"vllm": vllm.OPTIONS, "sglang": sglang.OPTIONS}


def tokens(engine: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    known = st.sampled_from(sorted(OPTIONS[engine].counts))
    token = st.one_of(
        known,
        known.map(lambda o: o + "=1"),
        known.map(lambda o: o[: max(3, len(o) - 3)]),
        known.map(lambda o: o.replace("-", "_").replace("__", "--", 1)),
        known.map(lambda o: o + ".x"),
        known.map(lambda o: o + " 1"),
        st.sampled_from(WORDS),
        st.text(max_size=6),
    )
    return st.tuples(st.just(engine), st.lists(token, max_size=10))


@given(st.sampled_from(sorted(OPTIONS)).flatmap(tokens))
def test_whatever_a_preset_says_none_of_ours_is_left_in_it(drawn: tuple[str, list[str]]) -> None:
    engine, args = drawn
    options = OPTIONS[engine]
    left = kept(engine, args)
    read = list(prefixed.read(options, left))
    assert not [a for a in read if a.why is not None]
    assert kept(engine, left) == left


@pytest.mark.parametrize(
    ("engine", "output", "code", "category", "words"),
    [
        ("vllm", "vllm serve: error: unrecognized arguments: --frob\n", 2, "bad_argument", "unrecognized arguments: --frob"),
        ("vllm", "OSError: [Errno 98] Address already in use\n", 1, "port_taken", "another port"),
        ("vllm", "ValueError: Free memory on device cuda:0 (2.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).\n", 1, "gpu_busy", "held by other processes"),
        ("vllm", "ValueError: To serve at least one request with the model's max seq len (131072), (16 GiB KV cache is needed). Based on the available memory, the estimated maximum model length is 43210.\nRuntimeError: Engine core initialization failed. See root cause above.\n", 1, "kv_cache_too_small", "lower --max-model-len (now 131072) to 43210"),
        ("vllm", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n", 1, "kv_cache_too_small", "raise --gpu-memory-utilization"),
        ("vllm", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB\n", 1, "out_of_memory", "lower --gpu-memory-utilization (not set: 0.9) or --max-model-len (now 131072)"),
        ("vllm", "ValueError: Model architectures ['FrobLM'] are not supported for now.\n", 1, "unsupported_architecture", "FrobLM"),
        ("vllm", "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata\n", 1, "broken_file", "cut short"),
        ("vllm", "nothing\n", -9, "killed_by_kernel", "SIGKILL"),
        ("sglang", "torch.OutOfMemoryError: CUDA out of memory\nReceived sigquit from a child process.\n", -9, "out_of_memory", "lower --mem-fraction-static"),
        ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", -9, "kv_cache_too_small", "raise --mem-fraction-static"),
        ("sglang", "The memory capacity is unbalanced. Some GPUs may be occupied by other processes.\n", -9, "gpu_busy", "other processes"),
        ("sglang", "nothing\n", -9, "killed_by_kernel", "SIGKILL"),
    ],
)  # fmt: skip
def test_their_failures(engine: str, output: str, code: int, category: str, words: str) -> None:
    found = get(engine).classify(output, Ended(code), ["--max-model-len", "131072"] if engine == "vllm" else [])
    assert (found.category, words in found.reason) == (category, True), found


def test_which_engine_loads_what() -> None:
    assert names == ("llama.cpp", "vllm", "sglang", "simulated")
    assert choose(["vllm", "simulated", "llama.cpp"], "gguf") == "simulated"
    assert choose(["llama.cpp", "sglang"], "safetensors") == "sglang"
    assert choose(["llama.cpp", "nope"], "safetensors") is None
    assert not can_load("nope", "gguf")
    with pytest.raises(ValueError, match=r"engine: 'nope' is not one of llama\.cpp, vllm"):
        get("nope")


@pytest.mark.parametrize(
    ("engine", "args", "left"),
    [
        # a number with a dot would be taken for a part of a JSON value, and eat the next argument
        ("vllm", ["--revision", "-0.5"], ["--revision=-0.5"]),
        ("vllm", ["--cudagraph-capture-sizes", "1", "-0.5"], []),
        # what belongs to a part of a JSON value is put behind everything, ours included
        ("vllm", ["--ser.x", "stolen"], []),
        ("vllm", ["--served_model_name.x", "stolen"], []),
        ("vllm", ["-asc.x", "3"], []),
        ("vllm", ["--hf-overrides.x"], []),
        ("vllm", ["--brand.new"], []),
        ("vllm", ["--no-data-parallel-hybrid-lb"], []),
        ("vllm", ["-n2"], []),
        ("vllm", ["-r0"], []),
        ("vllm", ["-as", "2"], []),
        ("vllm", ["-d", "2"], []),
        ("vllm", ["-qawq"], ["-qawq"]),
        ("vllm", ["--device", "cpu"], []),  # means --device-ids or --device-memory-utilization: no start at all
        ("vllm", ["--help=all"], []),
        ("vllm", ["-h"], []),
        # an option and its value in one piece
        ("vllm", ["--max-model-len 8k"], ["--max-model-len=8k"]),
        ("vllm", ["--lora-modules", "a=/x", "--api-key word"], ["--lora-modules", "a=/x"]),
        ("vllm", ["--lora-modules", "a=/x", "--port 9", "--dtype half"], ["--lora-modules", "a=/x", "--dtype=half"]),
        ("vllm", ["--lora-modules a=/x b=/y"], ["--lora-modules", "a=/x", "b=/y"]),
        ("sglang", ["--model-type", "diffusion", "--pipeline-class-name=Flux", "--pipeline", "Flux"], []),
        ("sglang", ["--sidecar", "m", "--sidecar-args", "[]", "--gated-launch-port", "1"], []),
        ("sglang", ["--help"], []),
        ("sglang", ["--tp", "2", "--pipeline-parallel-size", "2"], ["--tp", "2", "--pipeline-parallel-size", "2"]),
        ("sglang", ["--random-seed", "-1"], ["--random-seed", "-1"]),
        ("sglang", ["--revision", "-0.5"], ["--revision", "-0.5"]),
        ("sglang", ["--model-checksum", "--model-checksum", "x"], ["--model-checksum", "--model-checksum", "x"]),
    ],
)
def test_odd_ones(engine: str, args: list[str], left: list[str]) -> None:
    assert kept(engine, args) == left


@pytest.mark.parametrize(
    ("engine", "args", "needs"),
    [
        ("vllm", ["--compilation-config", '{"cudagraph_mode": "FULL"}'], ()),
        ("vllm", ["--compilation-config", '{"backend": "my.module.compile"}'], ("--compilation-config",)),
        ("vllm", ["-cc", '{"\\u0062ackend": "my.module.compile"}'], ("-cc",)),
        ("vllm", ["-cc.backend=my.module.compile"], ("-cc.backend",)),
        ("vllm", ["--distributed-executor-backend", "mp"], ()),
        ("vllm", ["--distributed-executor-backend", "my.Executor"], ("--distributed-executor-backend",)),
        ("vllm", ["--no-trust-remote-code"], ()),
        ("vllm", ["--logging-config.log_config_file", "/x"], ("--logging-config.log_config_file",)),
        ("sglang", ["--hicache-storage-backend", "file"], ()),
        ("sglang", ["--hicache-storage-backend", "dynamic"], ("--hicache-storage-backend",)),
        ("sglang", ["--delete-ckpt"], ("--delete-ckpt",)),
    ],
)
def test_some_values_need_permission(engine: str, args: list[str], needs: tuple[str, ...]) -> None:
    assert prepare(engine, args).needs_permission == needs


def test_keys_are_not_shown_again() -> None:
    dropped = prepare("vllm", ["--api-key", "sk-1", "sk-2", "--hf-token=hf_x"]).dropped
    assert [d.argument for d in dropped] == ["--api-key …", "--hf-token …"]


def test_a_key_that_begins_with_a_dash_stays_a_value() -> None:
    place = Place("/models/q", ("q/w",), "-key", port=4001)
    assert get("sglang").prepare(("sglang",), (), {}, place, {}).command[-1] == "--api-key=-key"


@pytest.mark.parametrize("engine", sorted(OPTIONS))
def test_no_other_version_could_take_an_option_for_ours(engine: str) -> None:
    """A known option that begins one of ours would be an abbreviation of it where an engine lacks the known one."""
    options = OPTIONS[engine]
    ours = [s for s in options.counts if options.same[s] in options.owned]
    begin = [s for s in options.counts if options.same[s] not in options.owned and s.startswith("--")]
    assert [(s, o) for s in begin for o in ours if o.startswith(s)] == []


@pytest.mark.parametrize("engine", sorted(OPTIONS))
def test_every_rule_is_of_an_option_that_there_is(engine: str) -> None:
    options = OPTIONS[engine]
    named = {*options.owned, *options.permissioned, *options.secret, *options.telling, *options.glued.values()}
    assert named - set(options.same.values()) == set()


@pytest.mark.parametrize("engine", sorted(OPTIONS))
def test_engines_stay_off_the_network(engine: str) -> None:
    made = get(engine).prepare((engine,), (), {}, PORT, {}).env
    assert {made[n] for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS")} == {"1"}
    online = get(engine).prepare((engine,), (), {}, PORT, {}, {"HF_HUB_OFFLINE": "0"}).env
    assert online["HF_HUB_OFFLINE"] == "0", "the node's file is the administrator's"


def test_vllm_has_a_short_folder_for_its_sockets() -> None:
    """A socket's path has at most 107 bytes: where the launch's own folder is too deep, the channel's is taken."""
    for tmpdir, base in (("/t" * 35, None), ("/t" * 36, "/run")):
        place = Place("/models/q", ("q/w",), "KEY", socket="/run/a.sock", tmpdir=tmpdir)
        assert get("vllm").prepare(("vllm",), (), {}, place, {}).env.get("VLLM_RPC_BASE_PATH") == base


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1) | st.sampled_from(ODD_NAMES))
def test_whatever_a_model_is_called_argparse_reads_its_name(engine: str, name: str) -> None:
    """Names are those of files and folders: they may begin with `-`, or be an option of the engine's."""
    folder = "/models/" + name
    where = {"socket": "/run/a.sock"} if engine == "vllm" else {"port": 4001}
    place = Place(folder, (name, unique_name(name, "1")), "KEY", **where)
    command = get(engine).prepare((engine,), ["--max-num-seqs", "1"], {}, place, {}).command
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?") if engine == "vllm" else parser.add_argument("--model-path")
    parser.add_argument("--served-model-name", nargs="+" if engine == "vllm" else None)
    for option in ("--uds", "--host", "--port", "--api-key", "--max-num-seqs", "-O", "-dp"):
        parser.add_argument(option)
    read = parser.parse_args(command[2:])
    assert (read.model if engine == "vllm" else read.model_path) == folder
    shown = get(engine).served_names(place)
    assert read.served_model_name == (list(shown) if engine == "vllm" else shown[0])
    assert shown[0] == name or name == "--" or (engine == "sglang" and ":" in name)
    assert engine == "sglang" or len(shown) == 2 or any(n.startswith("-") for n in place.served_names)

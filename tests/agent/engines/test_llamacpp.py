"""llama.cpp's command line: what is SlotServe's goes in every spelling, what is left stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engines import get
from agent.engines.base import ArgumentError, Place, Prepared, tokenise, unique_name
from agent.engines.llamacpp import OWNED, PERMISSIONED, LlamaCpp

ENGINE = LlamaCpp()
PLACE = Place(
    "/models/q.gguf",
    ("q/w", "q/w~1"),
    "KEY",
    socket="/run/s/a.sock",
    gpu_uuids=("GPU-1", "GPU-2"),
    home="/h",
    tmpdir="/t",
)
OURS = ("--offline", "-m", "/models/q.gguf", "--alias", "q/w,q/w~1", "--host", "/run/s/a.sock")


def prepare(
    args: list[str], env: dict[str, str] | None = None, place: Place = PLACE, **more: dict[str, str]
) -> Prepared:
    return ENGINE.prepare(("llama-server",), args, env or {}, place, more.get("inherited", {}), more.get("node", {}))


def kept(args: list[str]) -> list[str]:
    command = prepare(args).command
    assert command[0] == "llama-server"
    assert command[-len(OURS) :] == OURS
    return list(command[1 : -len(OURS)])


OWNED_SPELLINGS = [
    *("-m x", "--model x", "--model=x", "-m=x", "-mu x", "--model-url x", "--model_url x", "--model_url=x", "-dr x"),
    *(
        "--docker-repo x",
        "-hf x",
        "-hfr x",
        "--hf-repo x",
        "--hf_repo=x",
        "-hff x",
        "--hf-file x",
        "-hft x",
        "--hf-token x",
    ),
    *("--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default"),
    *("--fim-qwen-7b-spec", "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default"),
    *("--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default", "--spec-default"),
    *(
        "--spec_default",
        "-a x",
        "--alias x",
        "--alias=x,y",
        "--tags x",
        "--host x",
        "--host=0.0.0.0",
        "--port 1",
        "--port=1",
    ),
    *("--reuse-port", "--reuse_port", "--api-prefix x", "--api_prefix=/x", "--path x", "--api-key x", "--api_key=x"),
    *(
        "--api-key-file x",
        "--ssl-key-file x",
        "--ssl_cert_file x",
        "--models-dir x",
        "--models-preset x",
        "--models-max 2",
    ),
    *(
        "--models-autoload",
        "--no-models-autoload",
        "--no_models_autoload",
        "-h",
        "--help",
        "--usage",
        "--version",
        "-cl",
    ),
    *("--cache-list", "--list-devices", "--list_devices", "--completion-bash", "--offline"),
]


@pytest.mark.parametrize("spelling", OWNED_SPELLINGS)
def test_what_is_ours_goes_in_every_spelling(spelling: str) -> None:
    tokens = spelling.split()
    made = prepare(["-c", "4096", *tokens, "-ngl", "9"])
    assert list(made.command[1 : -len(OURS)]) == ["-c", "4096", "-ngl", "9"]
    (dropped,) = made.dropped
    assert dropped.why
    assert dropped.argument.replace("_", "-").startswith(tokens[0].replace("_", "-").split("=")[0])
    assert (made.unknown, made.needs_permission) == ((), ())


def test_every_owned_option_is_tried_in_every_spelling() -> None:
    tried = {s.split()[0].split("=")[0].replace("_", "-") for s in OWNED_SPELLINGS}
    known = {spelling for spelling, (option, _) in ENGINE.options.items() if option in OWNED}
    assert known <= tried
    assert set(OWNED) | PERMISSIONED <= {option for option, _ in ENGINE.options.values()}


@pytest.mark.parametrize(
    ("given", "stays"),
    [
        (["--ctx-size=16384"], ["--ctx-size", "16384"]),
        (["--ctx_size", "16384"], ["--ctx-size", "16384"]),
        (["--cache_type_k=q4_0"], ["--cache-type-k", "q4_0"]),
        (["-ctk", "q4_0"], ["-ctk", "q4_0"]),
        (["-c=4096"], ["-c", "4096"]),
        (["--ctx-size 16384"], ["--ctx-size", "16384"]),
        (["--control-vector-layer-range 1 2"], ["--control-vector-layer-range", "1", "2"]),
        (["--control-vector-layer-range", "1", "2", "-v"], ["--control-vector-layer-range", "1", "2", "-v"]),
        (['--chat-template-kwargs={"a": "b=c"}'], ["--chat-template-kwargs", '{"a": "b=c"}']),
        (['--chat-template-kwargs {"a": 1}'], ["--chat-template-kwargs", '{"a": 1}']),
        (["--chat-template-kwargs '{\"a\": 1}'"], ["--chat-template-kwargs", '{"a": 1}']),
        (["-ot", r"blk\.\d+\.ffn=CPU"], ["-ot", r"blk\.\d+\.ffn=CPU"]),
        (["--reverse-prompt", "--model"], ["--reverse-prompt", "--model"]),
        (["-r", "-m", "-c", "5"], ["-r", "-m", "-c", "5"]),
        (["--lora", "a.gguf", "-md", "d.gguf"], ["--lora", "a.gguf", "-md", "d.gguf"]),
        (["-c", "1", "-c", "2"], ["-c", "1", "-c", "2"]),
        (["--temp", "-1"], ["--temp", "-1"]),
        (["--grammar="], ["--grammar", ""]),
        ([], []),
    ],
)
def test_what_is_not_ours_stays_as_the_engine_takes_it(given: list[str], stays: list[str]) -> None:
    made = prepare(given)
    assert kept(given) == stays
    assert made.dropped == made.unknown == ()


def test_a_value_that_looks_like_an_option_of_ours_is_a_value() -> None:
    made = prepare(["--reverse-prompt", "--port", "--port", "1"])
    assert kept(["--reverse-prompt", "--port", "--port", "1"]) == ["--reverse-prompt", "--port"]
    assert [d.argument for d in made.dropped] == ["--port 1"]


def test_a_dropped_option_takes_its_value_along_whatever_it_looks_like() -> None:
    assert kept(["--host", "-c", "--alias", "--metrics", "-fa", "on"]) == ["-fa", "on"]


def test_an_option_without_its_value_cannot_swallow_ours() -> None:
    for tokens in (["-n"], ["--ctx-size"], ["--control-vector-layer-range", "1"], ["--chat-template-file"]):
        made = prepare(["-v", *tokens])
        assert kept(["-v", *tokens]) == ["-v"]
        assert "needs a value" in made.dropped[0].why


def test_unknown_arguments_stay_and_are_listed_with_help() -> None:
    made = prepare(["--ctx-sise", "32768", "--brand-new=5", "word", "-zz", "--flag", "-1", "-c", "8"])
    assert list(made.command[1 : -len(OURS)]) == [
        "--ctx-sise",
        "32768",
        "--brand-new",
        "5",
        "word",
        "-zz",
        "--flag",
        "-1",
        "-c",
        "8",
    ]
    assert made.unknown == ("--ctx-sise", "--brand-new", "word", "-zz", "--flag")
    assert ENGINE.suggest("--ctx-sise") == "--ctx-size"
    assert ENGINE.suggest("--ctx_sise") == "--ctx-size"
    assert ENGINE.suggest("--nothing-like-it-at-all") is None
    assert ENGINE.suggest("--modle") != "--model", "that one would be dropped"


@pytest.mark.parametrize("token", ["--mlock=true", "--frob=--model", "--frob=-m", "--mlock -m", "--frob --model"])
def test_what_nobody_can_take_apart_stays_in_one_piece_for_the_engine_to_refuse(token: str) -> None:
    made = prepare([token, "x"])
    assert made.command[1:3] == (token, "x")
    assert made.unknown[0] == token


def test_the_case_of_an_option_matters_as_it_does_to_the_engine() -> None:
    assert prepare(["--Model", "x"]).unknown == ("--Model",)


@pytest.mark.parametrize(
    "flag",
    [
        *("--tools all", "--tools-runtime ssh:x", "-ag", "--agent", "--mcp-servers-config x", "--mcp_servers_json x"),
        *("--ui-mcp-proxy", "--webui-mcp-proxy", "--media-path /x", "--slot-save-path /x", "--log-file /x"),
        *("--log-prompts-dir /x", "--rpc h:1", "--rpc=h:1", "-lcd /x", "--lookup-cache-dynamic /x", "--cors-origins x"),
        *("--cors-methods x", "--cors-headers x", "--cors-credentials"),
    ],
)
def test_what_reaches_beyond_the_engine_needs_permission_and_stays(flag: str) -> None:
    made = prepare(flag.split())
    assert made.needs_permission == (flag.replace("_", "-").split("=")[0].split()[0],)
    assert made.dropped == ()
    assert made.needs_permission[0] in made.command


@pytest.mark.parametrize("flag", ["--no-agent", "-no-ag", "--no-ui-mcp-proxy", "--no-cors-credentials"])
def test_turning_such_a_thing_off_needs_none(flag: str) -> None:
    assert prepare([flag]).needs_permission == ()


def test_a_key_is_not_repeated_to_anybody() -> None:
    made = prepare(["--api-key", "very-secret", "--hf-token=hf_secret"])
    assert "secret" not in repr(made)


def test_ours_on_a_port() -> None:
    place = Place("/m.gguf", ("m",), "K", host="127.0.0.1", port=4001)
    command = prepare(["--port", "1"], place=place).command
    assert command[1:] == ("--offline", "-m", "/m.gguf", "--alias", "m", "--host", "127.0.0.1", "--port", "4001")


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ("-c 4096", True),
        ("--mmproj-offload", True),
        ("--mmproj /other.gguf", False),
        ("-mm=/other.gguf", False),
        ("--mmproj_url http://x", False),
        ("--no-mmproj", False),
        ("--what", True),
    ],
)
def test_the_models_projector_unless_the_preset_says_otherwise(args: str, given: bool) -> None:
    place = Place("/m.gguf", ("m",), "K", socket="/x.sock", projector="/mmproj.gguf")
    command = prepare(args.split(), place=place).command
    assert ("/mmproj.gguf" in command) == given
    if given:
        at = command.index("--offline")
        assert command[at + 1 : at + 4] == ("--mmproj", "/mmproj.gguf", "-m")


def test_names_with_a_comma_are_one_name_and_the_catalogues_comes_first() -> None:
    place = Place("/m.gguf", ("a,b", unique_name("a,b", "l1")), "K", socket="/x.sock")
    command = prepare([], place=place).command
    assert command[command.index("--alias") + 1] == "a_b,a_b~l1"
    assert ENGINE.served_names(place) == ("a_b", "a_b~l1")


@given(st.text(min_size=1), st.uuids())
def test_a_unique_name_sorts_behind_the_catalogues(name: str, launch: object) -> None:
    first, second = ENGINE.served_names(Place("/m", (name, unique_name(name, str(launch))), "K"))
    assert first.encode("utf-8", "surrogatepass") < second.encode("utf-8", "surrogatepass")
    assert "," not in first + second


def test_the_arguments_alone_can_be_checked() -> None:
    assert ENGINE.check_command(prepare(["-c", "1"]))[-1] == "--version"


def test_present_values_are_those_in_force() -> None:
    assert ENGINE.values(["--ctx-size=1", "-c", "2", "-ngl", "99", "--mlock", "-n"]) == {
        "-c": "2",
        "-ngl": "99",
        "--mlock": "",
    }


TOKENS = st.lists(
    st.one_of(
        st.sampled_from(sorted(ENGINE.options)),
        st.sampled_from(
            [o.replace("-", "_").replace("__", "--", 1) for o in sorted(ENGINE.options) if o.startswith("--")]
        ),
        st.sampled_from(sorted(ENGINE.options)).map(lambda o: f"{o}=/etc/x"),
        st.sampled_from(sorted(ENGINE.options)).map(lambda o: f"{o} /etc/x"),
        st.sampled_from(
            ["x", "-1", "--", "-", "", "=", "--=", "--frob", "--frob=1", "-z", "a b", "\0", "\ud800", "--model\t/x"]
        ),
        st.text(max_size=8),
    ),
    max_size=12,
)


@given(TOKENS)
def test_whatever_a_preset_says_the_engine_ends_up_with_ours(tokens: list[str]) -> None:
    made = prepare(tokens)
    command = list(made.command[1:])
    read = list(ENGINE.read(command))
    assert [token for argument in read for token in argument.tokens] == command
    ours = [(a.option, a.tokens[1:]) for a in read[-4:]]
    assert ours == [
        ("--offline", ()),
        ("-m", ("/models/q.gguf",)),
        ("-a", ("q/w,q/w~1",)),
        ("--host", ("/run/s/a.sock",)),
    ]
    assert not [a for a in read[:-4] if a.option in OWNED]
    assert all(a.complete for a in read)
    assert not [t for t in command if "\0" in t]
    # Nothing vanishes without a word: every argument of the preset is kept as it was, or named.
    named = [d.argument for d in made.dropped]
    stayed = [a for a in ENGINE.read(tokens) if a.typed not in named and f"{a.flag} …" not in named]
    assert [t for a in stayed for t in a.tokens] == command[: -len(OURS)]


@given(TOKENS)
def test_what_is_kept_is_kept_again(tokens: list[str]) -> None:
    once = kept(tokens)
    assert kept(once) == once


@given(st.text())
def test_any_string_is_split_or_refused_in_words(text: str) -> None:
    try:
        tokens = tokenise(text)
    except ArgumentError as err:
        tokens = []
        message = str(err)
    else:
        message = "args: "
    assert message.startswith("args: ")
    kept(tokens)


def test_the_simulated_engine_knows_more() -> None:
    engine = get("simulated")
    made = engine.prepare(engine.program, ["--sim-load-seconds=2", "--sim-oom", "--port", "1"], {}, PLACE, {})  # type: ignore[attr-defined]
    assert made.command[3:6] == ("--sim-load-seconds", "2", "--sim-oom")
    assert made.unknown == ()
    assert prepare(["--sim-oom"]).unknown == ("--sim-oom",)

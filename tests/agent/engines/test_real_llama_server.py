"""Our table and our parser beside the real llama-server: the same options, the same words, the same result."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.engines import get
from agent.engines.base import Ended, Place, Prepared, unique_name
from agent.engines.llamacpp import OWNED, LlamaCpp
from controller.cli.demo_model import write_tiny_gguf
from controller.cli.demo_parts import LlamaServer
from tests.parts import Child, engine_ready, running, unix_client, wait_until

pytestmark = pytest.mark.llama_server
ENGINE = LlamaCpp()


def prepare(server: LlamaServer, args: Sequence[str], folder: Path, model: Path, name: str = "cat/tiny") -> Prepared:
    names = (name, unique_name(name, "1"))
    place = Place(str(model), names, "key-1", socket=str(folder / "e.sock"), home=str(folder), tmpdir=str(folder))
    return ENGINE.prepare(server.command, args, {}, place, dict(os.environ), server.env)


def ready_or_ended(child: Child, folder: Path) -> bool:
    """Whether it is ready; waits until it is, or has ended."""
    wait_until(lambda: not child.alive() or engine_ready(folder / "e.sock"), 20, "ready or ended")
    return child.alive()


def run_to_its_end(prepared: Prepared, folder: Path) -> Child:
    """Runs one that cannot start. llama-server logs from a thread of its own and, ending early, loses its last lines in
    about one of ten runs: then it is run again."""
    for attempt in range(5):
        with running(prepared.command, folder / f"log{attempt}", prepared.env) as child:
            assert not ready_or_ended(child, folder)
        if re.search(r" E |^error", child.output(), re.MULTILINE):
            break
        if (folder / "e.sock").is_socket():
            (folder / "e.sock").unlink()
    return child


def test_the_table_is_the_programs_own(llama_server: LlamaServer) -> None:
    env = {**os.environ, **llama_server.env}
    text = subprocess.run([*llama_server.command, "--help"], env=env, capture_output=True, text=True, check=True).stdout
    there: dict[str, int] = {}
    for line in text.splitlines():
        match = re.match(r"((?:--?[A-Za-z0-9][\w.-]*,?\s+)*--?[A-Za-z0-9][\w.-]*)( \S.*|\s*$|\s{2,}.*)", line)
        if match:
            hint = "" if match[2].startswith("  ") else match[2].strip()
            count = 0 if not hint else 2 if hint.startswith("START END") else 1
            there.update(dict.fromkeys(match[1].replace(",", " ").split(), count))
    ours = {spelling: count for spelling, (_, count) in ENGINE.options.items()}
    if "7e4c0a9" in llama_server.version:  # the build that the table was made from
        assert ours == there
    both = {s: (ours[s], there[s]) for s in ours.keys() & there.keys()}
    assert {s: counts for s, counts in both.items() if counts[0] != counts[1]} == {}
    assert len(both) > 150


VALUES = {
    "-c": "256",
    "-b": "64",
    "-ub": "64",
    "-t": "1",
    "-np": "2",
    "-ngl": "0",
    "--temp": "0.5",
    "-s": "7",
    "-n": "9",
}


def test_thirty_lists_come_out_as_ours_in_the_real_parser(
    llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path
) -> None:
    """Each list mixes harmless options with ours in odd spellings. The program must take the command, and run as ours."""
    rng = random.Random(20261130)
    owned = [s for s, (option, _) in sorted(ENGINE.options.items()) if option in OWNED]
    for number in range(30):
        args: list[str] = []
        for _ in range(rng.randint(1, 6)):
            if rng.random() < 0.5:
                flag = rng.choice(sorted(VALUES))
                args += [flag, VALUES[flag]]
                continue
            flag = rng.choice(owned)
            value = rng.choice(["/etc/passwd", "0.0.0.0", "9", "--port", "-m"])
            spelled = (
                flag.replace("-", "_").replace("__", "--", 1) if flag.startswith("--") and rng.random() < 0.3 else flag
            )
            count = ENGINE.options[flag][1]
            args += [spelled] if count == 0 else [f"{spelled}={value}"] if rng.random() < 0.4 else [spelled, value]
        folder = short_dir / str(number)
        folder.mkdir()
        prepared = prepare(llama_server, args, folder, tiny_gguf)
        checked = subprocess.run(ENGINE.check_command(prepared), env=prepared.env, capture_output=True, text=True)
        assert checked.returncode == 0, (args, checked.stderr)
        if number % 6:
            continue
        with (
            running(prepared.command, folder / "log", prepared.env) as child,
            unix_client(folder / "e.sock", "key-1") as client,
        ):
            assert ready_or_ended(child, folder), (args, child.output())
            (model,) = client.get("/v1/models").json()["data"]
            assert (model["id"], model["aliases"]) == ("cat/tiny", ["cat/tiny", "cat/tiny~1"]), args
            assert client.get("/props").json()["model_path"] == str(tiny_gguf)
            assert client.get("/slots", headers={"Authorization": "Bearer other"}).status_code == 401


@pytest.mark.parametrize("name", ["--port", "-1 'q' \"é\"", "模型😀", "a=b:c/d", "x" * 250])
def test_whatever_a_model_is_called_it_runs_under_that_name(
    llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path, name: str
) -> None:
    model = short_dir / f"{name.replace('/', '')[:240]}.gguf"
    model.symlink_to(tiny_gguf)
    prepared = prepare(llama_server, [], short_dir, model, name)
    with (
        running(prepared.command, short_dir / "log", prepared.env) as child,
        unix_client(short_dir / "e.sock", "key-1") as client,
    ):
        assert ready_or_ended(child, short_dir), child.output()
        (shown,) = client.get("/v1/models").json()["data"]
        assert (shown["id"], shown["aliases"]) == (name, [name, f"{name}~1"])


def test_a_hostile_environment_does_not_reach_it(
    llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LLAMA_ARG_MODEL": "/x",
        "AIP_MODE": "PREDICTION",
        "AIP_HTTP_PORT": "1",
        "LLAMA_API_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    config = short_dir / "outer" / ".config" / "llama.cpp"
    config.mkdir(parents=True)
    (config / "config.ini").write_text("alias = stolen\n")
    monkeypatch.setenv("HOME", str(short_dir / "outer"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(short_dir / "outer" / ".config"))
    prepared = prepare(llama_server, [], short_dir, tiny_gguf)
    with (
        running(prepared.command, short_dir / "log", prepared.env),
        unix_client(short_dir / "e.sock", "key-1") as client,
    ):
        wait_until(lambda: engine_ready(short_dir / "e.sock"), 20, "ready")
        assert client.get("/v1/models").json()["data"][0]["aliases"] == ["cat/tiny", "cat/tiny~1"]
        assert client.get("/slots").status_code == 200


def cut(path: Path, tiny: Path, size: int) -> Path:
    path.write_bytes(tiny.read_bytes()[:size])
    return path


@pytest.mark.parametrize(
    ("kind", "args", "category", "words"),
    [
        ("missing", [], "missing_file", "is not on this node"),
        ("cut in the weights", [], "broken_file", "cut short or damaged"),
        ("cut in the head", [], "broken_file", "cut short or damaged"),
        ("empty", [], "broken_file", "cut short or damaged"),
        ("text", [], "broken_file", "cut short or damaged"),
        ("other architecture", [], "unsupported_architecture", "'frobnicator'"),
        ("good", ["--frobnicate", "3"], "bad_argument", "does not know --frobnicate"),
        ("good", ["-ctk", "nonsense"], "bad_argument", "refuses the value of -ctk"),
        ("good", ["--lora", "/nonexistent/l.gguf"], "missing_file", "/nonexistent/l.gguf is not on this node"),
        ("socket taken", [], "port_taken", "e.sock could not be opened"),
    ],
)
def test_its_failures_are_understood(
    llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path, kind: str, args: list[str], category: str, words: str
) -> None:
    model = short_dir / "model.gguf"
    if kind.startswith("cut"):
        cut(model, tiny_gguf, 300_000 if kind.endswith("weights") else 200)
    elif kind in ("empty", "text"):
        model.write_bytes(b"" if kind == "empty" else b"hello, I am not a model\n")
    elif kind == "other architecture":
        write_tiny_gguf(model, architecture="frobnicator")
    elif kind != "missing":
        model = tiny_gguf
    if kind == "socket taken":
        (short_dir / "e.sock").write_text("")
    prepared = prepare(llama_server, args, short_dir, model)
    child = run_to_its_end(prepared, short_dir)
    found = get("llama.cpp").classify(child.output(), Ended(child.wait()), args)
    assert (found.category, words in found.reason) == (category, True), found
    assert found.detail
    assert found.detail in child.output()


def test_running_out_of_memory_is_understood(llama_server: LlamaServer, tiny_gguf: Path, short_dir: Path) -> None:
    args = ["-c", "8000000", "-fit", "off", "--no-warmup"]
    prepared = prepare(llama_server, args, short_dir, tiny_gguf)
    limited = ("/bin/sh", "-c", 'ulimit -v 2500000; exec "$@"', "sh", *prepared.command)
    child = run_to_its_end(replace(prepared, command=limited), short_dir)
    found = get("llama.cpp").classify(child.output(), Ended(child.wait()), args)
    assert found.category == "out_of_memory", child.output()
    assert found.reason == "out of main memory: lower -c (now 8000000) or use a smaller model"

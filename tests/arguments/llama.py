"""llama-server's side: it has no parser to ask, but `--version` at the end lets it read everything before and end.

What it takes twice it says ("specified multiple times"), so anything of ours that a preset got through would show.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agent.engines.base import Place, unique_name
from agent.engines.llamacpp import OWNED, LlamaCpp
from controller.cli.demo_parts import LlamaServer, find_llama_server
from tests.arguments.compare import Outcome
from tests.arguments.lists import Drawn, name

ENGINE = LlamaCpp()
FINE = {
    **dict.fromkeys(("-c", "-b", "-ub", "-n", "--keep", "--top-k", "--repeat-last-n", "-cram", "-s"), "64"),
    **dict.fromkeys(("-t", "-tb", "-np", "--threads-http", "-ncmoe", "--cache-reuse"), "1"),
    **dict.fromkeys(("--temp", "--top-p", "--min-p", "--typical", "--repeat-penalty", "--rope-scale"), "0.5"),
    "-ngl": "0",
    "-fa": "auto",
    "-ctk": "q8_0",
    "-ctv": "f16",
    "-sm": "layer",
    "-ts": "1,1",
    "--pooling": "mean",
    "--samplers": "top_k;top_p",
    "--grammar": "root ::= [0-9]+",
    "--chat-template-kwargs": '{"a": true}',
    "-to": "9",
    "--sleep-idle-seconds": "600",
    "--media-path": "/tmp",
    "--cors-origins": "*",
    "-lv": "3",
    **dict.fromkeys(("--mlock", "--no-mmap", "--metrics", "--no-slots", "--jinja", "-fit", "--embedding"), ""),
    **dict.fromkeys(("-kvu", "--no-warmup", "-nkvo", "--swa-full", "-cb", "--check-tensors", "-sp", "--props"), ""),
}
FINE["-fit"] = "off"
HOSTILE = ("/etc/passwd", "0.0.0.0", "9", "--port", "-m", "-1", "a,b", "")
NONSENSE = (
    "--frobnicate",
    "--frob=1",
    "--",
    "-",
    "word",
    "-x",
    "--=",
    "=",
    "--no-",
    "---port",
    "-é",
    "--port9",
    "-m=x",
)
MANY = re.compile(r"argument '([^']+)' specified multiple times")


@dataclass(frozen=True, slots=True)
class Run:
    """What llama-server made of one list."""

    drawn: Drawn
    problem: str | None
    how: str


def compare(count: int, first: int = 0, workers: int = 4) -> Outcome | str:
    """`count` lists through our stripping and the real program; a text where there is none."""
    server = find_llama_server()
    if isinstance(server, str):
        return server
    outcome = Outcome()
    with ThreadPoolExecutor(workers) as pool, tempfile.TemporaryDirectory() as home:
        for run in pool.map(lambda number: _try(server, number, home), range(first, first + count)):
            outcome.add(run.drawn, run.problem, run.how)
    return outcome


def draw(number: int) -> Drawn:
    rng = random.Random(f"llama.cpp {number}")
    clean = rng.random() < 0.6
    args: list[str] = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if not clean and kind < 0.3:
            args.append(rng.choice(NONSENSE))
        elif kind < 0.65:
            args += _ours(rng)
        else:
            args += _fine(rng)
    if not clean and rng.random() < 0.3:
        rng.shuffle(args)
    return Drawn(tuple(args), clean, name(number))


def _fine(rng: random.Random) -> list[str]:
    option = rng.choice(sorted(FINE))
    spelling = _spelled(rng, rng.choice(sorted(s for s, (o, _) in ENGINE.options.items() if o == _first(option))))
    if not FINE[option]:
        return [_spelled(rng, option)]
    way = rng.random()
    one = f"{spelling}={FINE[option]}" if way < 0.2 else f"{spelling} {FINE[option]}" if way < 0.25 else None
    return [one] if one else [spelling, FINE[option]]


def _ours(rng: random.Random) -> list[str]:
    whole = rng.choice(sorted(s for s, (option, _) in ENGINE.options.items() if option in OWNED))
    spelling, value = _spelled(rng, whole), rng.choice(HOSTILE)
    count = ENGINE.options[whole][1]
    return [spelling] if count == 0 else [f"{spelling}={value}"] if rng.random() < 0.4 else [spelling, value]


def _spelled(rng: random.Random, spelling: str) -> str:
    return "--" + spelling[2:].replace("-", "_") if spelling.startswith("--") and rng.random() < 0.3 else spelling


def _first(spelling: str) -> str:
    return ENGINE.options[spelling][0]


def _try(server: LlamaServer, number: int, home: str) -> Run:
    drawn = draw(number)
    names = (drawn.name, unique_name(drawn.name, "1"))
    place = Place(f"/models/{drawn.name}.gguf", names, "key", socket="/run/slotserve/e.sock", home=home, tmpdir=home)
    prepared = ENGINE.prepare(server.command, drawn.args, {}, place, dict(os.environ), server.env)
    done = subprocess.run(
        ENGINE.check_command(prepared), env=prepared.env, capture_output=True, text=True, errors="replace", timeout=60
    )
    said = done.stdout + done.stderr
    twice = [m for m in MANY.findall(said) if ENGINE.options.get(m, (m,))[0] in OWNED]
    problem, how = None, "taken as ours"
    if twice:
        problem = f"{twice} got through"
    elif done.returncode == 0 and "version" not in said:
        problem = "it printed something else and ended"
    elif done.returncode != 0:
        how = "refused"
        if done.returncode != 1:
            problem = f"exit status {done.returncode}"
        elif drawn.clean and not prepared.unknown:
            problem = "refused, though nothing was wrong with it"
    if problem:
        how, problem = "failed", f"{problem}; {said[-200:]!r} of {prepared.command[len(server.command) :]}"
    return Run(drawn, problem, how)

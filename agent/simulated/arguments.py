"""The simulated engine's arguments, and the settings that a model's file may hold."""

from __future__ import annotations

import os
import re
import sys
from typing import NoReturn

from agent.llamacpp_options import NO_VALUE, ONE_VALUE, SIMULATED_NO_VALUE, SIMULATED_ONE_VALUE, options

MARK = b"simulated"
WHOLE_NUMBERS = ("-c", "--port", "-np", "--sim-exit-code", "--sim-memory-mb", "--sim-tokens", "--sim-status")
Values = dict[str, str]


def parse(tokens: list[str]) -> Values:
    """llama-server's own way with arguments: exact names, `_` as `-` in long ones, the last of a repeated one counts.
    Keys are each option's first spelling. Ends the program, as llama-server does, where it makes no sense of them."""
    table = options(NO_VALUE + SIMULATED_NO_VALUE, ONE_VALUE + SIMULATED_ONE_VALUE)
    names = {"LLAMA_ARG_MODEL": "-m", "LLAMA_ARG_ALIAS": "-a", "LLAMA_ARG_HOST": "--host", "LLAMA_ARG_PORT": "--port"}
    given = {option: os.environ[name] for name, option in names.items() if name in os.environ}
    at = 0
    while at < len(tokens):
        typed = tokens[at].replace("_", "-") if tokens[at].startswith("--") else tokens[at]
        if typed not in table:
            _complain(f"error: invalid argument: {typed}")
        option, count = table[typed]
        values = tokens[at + 1 : at + 1 + count]
        if len(values) < count:
            _complain(f'error while handling argument "{typed}": expected value for argument\n\nusage:\n{typed}')
        if option in WHOLE_NUMBERS:
            number = re.match(r"\s*[+-]?\d+", values[0])  # as C's stoi: a number, whatever comes after it
            if number is None:
                _complain(f'error while handling argument "{typed}": stoi\n\nusage:\n{typed}')
            else:
                values = [number.group().strip()]
        if option in ("-h", "--version", "-cl", "--list-devices", "--completion-bash"):
            print(
                "llama-server's options, and --sim-…: see agent/simulated_engine.py"
                if option == "-h"
                else "version: 0 (simulated)"
            )
            sys.exit(0)
        given[option] = " ".join(values)
        at += 1 + count
    return given


def behaviour(model: str) -> Values:
    """The settings that a model's file holds: at its beginning, or appended to a GGUF file."""
    try:
        with open(model, "rb") as file:
            start = file.read(4096)
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            end = file.read(4096)
    except OSError:
        return {}
    text = (
        start
        if start.startswith(MARK)
        else end.rpartition(b"\n" + MARK + b"\n")[2]
        if b"\n" + MARK + b"\n" in end
        else b""
    )
    found: Values = {}
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() and key.strip() != MARK.decode():
            found[key.strip().removeprefix("--sim-")] = value.strip()
    return found


def _complain(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(1)

"""vLLM's and SGLang's command lines as an argparse over their real option lists, for machines without the engines.

Python's own argparse does what both rest on: abbreviations, `=`, values that look like options. Beside it stands what they
add: vLLM takes `_` for `-`, `--key.part value`, `-O3` and the model's place; SGLang's `serve` takes the model's place too.
The real parsers say more (types, values): `make test-arguments`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from agent import sglang_options, vllm_options

MODULES = {"vllm": vllm_options, "sglang": sglang_options}
DOTTED = re.compile(r"(--?[A-Za-z][\w-]*)\.[^=\s]+(?:=(.*))?", re.DOTALL)


class Refused(Exception):
    """As the engine's exit status 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


class ModelParser:
    """As service.RealParser: `options`, `ask`, `close`."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._parser = _Parser(prog=engine, add_help=False)
        self.options: list[dict[str, Any]] = []
        self._elsewhere = ("config", "ssl_keyfile", "nnodes", "grpc_port")
        if engine == "vllm":
            self._parser.add_argument("model_tag", nargs="?")
            self._elsewhere += ("model", "root_path", "headless", "middleware")
        for spellings, how in _options(MODULES[engine]):
            action = self._parser.add_argument(*spellings, **how)
            count = 0 if action.nargs == 0 else 1 if action.nargs is None else action.nargs
            self.options.append(
                {"spellings": action.option_strings, "count": count, "examples": [] if count == 0 else ["1"]}
            )

    def ask(self, arguments: Sequence[str]) -> dict[str, Any]:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                read = self._parser.parse_args(list(self._prepared(list(arguments))))
        except Refused as err:
            return {"taken": False, "code": 2, "why": str(err)}
        if read.help:
            return {"taken": False, "code": 0}
        names = read.served_model_name
        return {
            "taken": True,
            "model": read.model_path if self._engine == "sglang" else read.model_tag or read.model,
            "names": names if isinstance(names, list) else [names],
            "host": read.host,
            "port": read.port and int(read.port),
            "socket": getattr(read, "uds", None),
            "key": read.api_key,
            "elsewhere": sorted(n for n in self._elsewhere if getattr(read, n, None)),
        }

    def close(self) -> None:
        """Nothing runs."""

    def _prepared(self, tokens: list[str]) -> Iterator[str]:
        """What reaches argparse, behind `serve`."""
        if tokens.pop(0) != "serve":
            raise Refused("no subcommand")
        if self._engine == "sglang":
            if tokens and not tokens[0].startswith("-"):
                tokens[:1] = ["--model-path", tokens[0]]
            yield from tokens
            return
        for token in tokens:
            if re.fullmatch(r"-O\d.*", token):
                continue  # a level of optimisation, glued
            if token.startswith("--") and len(token) > 2:
                key, sign, value = token.partition("=")
                token = key.replace("_", "-") + sign + value
            if (dotted := DOTTED.fullmatch(token)) is not None:
                yield dotted[1]
                if dotted[2] is not None:
                    yield dotted[2]
                continue
            yield token


def _options(module: ModuleType) -> Iterator[tuple[list[str], dict[str, Any]]]:
    kinds: list[tuple[str, dict[str, Any]]] = [
        (module.NEGATABLE, {"action": argparse.BooleanOptionalAction}),
        (module.NO_VALUE, {"action": "store_true"}),
        (module.ONE_VALUE, {}),
        (module.OPTIONAL_VALUE, {"nargs": "?"}),
        (module.MANY_VALUES, {"nargs": "+"}),
        (module.ANY_VALUES, {"nargs": "*"}),
    ]
    for block, how in kinds:
        for option in block.split():
            yield option.split("|"), dict(how)

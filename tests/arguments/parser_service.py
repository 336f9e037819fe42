"""What the two real parsers' programs share. No import of ours and nothing but the standard library: it runs elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

# Tried in turn; the first that an option's own parser takes is its example.
EXAMPLES = ("1", "0.5", "auto", "word", "{}", "[]", '{"a": 1}', "a=b", "64")
Parse = Callable[[list[str]], dict[str, Any]]


def run(options: argparse.ArgumentParser, parse: Parse) -> None:
    """Answers on the real standard output until its input ends; whatever the engine prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    options.print_help = lambda *_args, **_kwargs: None  # type: ignore[method-assign]
    print(json.dumps(_describe(options)), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(parse, json.loads(line))), file=out, flush=True)


def _answer(parse: Parse, arguments: list[str]) -> dict[str, Any]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return {"taken": True, **parse(arguments)}
    except SystemExit as err:
        return {"taken": False, "code": err.code, "why": said.getvalue()[-300:]}
    except Exception as err:  # noqa: BLE001 (whatever a parser raises ends the engine's start)
        return {"taken": False, "code": 1, "why": f"{type(err).__name__}: {err}"[-300:]}


def _describe(options: argparse.ArgumentParser) -> dict[str, Any]:
    """Every option: its spellings, how many values it takes (0, 1, "?", "*", "+"), and values that it takes gladly."""
    return {
        "python": sys.version.split()[0],
        "options": [
            {
                "spellings": action.option_strings,
                "count": 1 if action.nargs is None else action.nargs,
                "examples": [v for v in EXAMPLES if _takes(options, action, v)][:1] or _choices(action),
            }
            for action in options._actions
            if action.option_strings
        ],
    }


def _choices(action: argparse.Action) -> list[str]:
    return [str(c) for c in action.choices or () if c is not None][:1]


def _takes(options: argparse.ArgumentParser, action: argparse.Action, value: str) -> bool:
    if action.nargs == 0:
        return False
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            made = options._get_value(action, value)
            options._check_value(action, made)
            action(options, argparse.Namespace(), [made] if action.nargs in ("+", "*") else made, None)
    except (Exception, SystemExit):  # noqa: BLE001 (any refusal at all)
        return False
    return True

"""Writes agent/vllm_options.py and agent/sglang_options.py from the real parsers: `python -m tests.arguments.tables`."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import Any

from tests.arguments.service import ROOT, SGLANG, VLLM, RealParser

BLOCKS = {
    "negatable": ("NEGATABLE", "no value; `--no-…` takes it back"),
    "0": ("NO_VALUE", "no value"),
    "1": ("ONE_VALUE", "one value"),
    "?": ("OPTIONAL_VALUE", "one value, or none"),
    "+": ("MANY_VALUES", "one value or more"),
    "*": ("ANY_VALUES", "any number of values"),
}


def table(options: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Block -> its options, an option's spellings joined by `|`."""
    blocks: dict[str, list[str]] = defaultdict(list)
    for option in options:
        spellings = option["spellings"]
        negations = [s for s in spellings if s.startswith("--no-") and f"--{s[5:]}" in spellings]
        kind = "negatable" if negations else str(option["count"])
        names = sorted((s for s in spellings if s not in negations), key=lambda s: not s.startswith("--"))
        blocks[kind].append("|".join(names))
    return blocks


def write(engine: str, title: str, version: str, options: list[dict[str, Any]]) -> None:
    blocks = table(options)
    lines = [
        f'"""{title}\'s options, as data: every spelling and how many values it takes.',
        "",
        f"From the parser of {title} {version}, written by `python -m tests.arguments.tables`; a test compares the two. An",
        'option\'s spellings are joined by `|`. An option missing here is "unknown": it stays on the command line, and the',
        "engine says what it thinks of it.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        f'VERSION = "{version}"',
        "",
    ]
    for kind, (name, words) in BLOCKS.items():
        body = textwrap.fill(" ".join(blocks.get(kind, ())), 118, break_long_words=False, break_on_hyphens=False)
        lines += [f"# {words[0].upper()}{words[1:]}.", f'{name} = """', *([body] if body else []), '"""', ""]
    (ROOT / "agent" / f"{engine}_options.py").write_text("\n".join(lines).rstrip() + "\n")


def main() -> None:
    for engine, title, version in (("vllm", "vLLM", VLLM), ("sglang", "SGLang", SGLANG)):
        parser = RealParser(engine)
        write(engine, title, version, parser.options)
        print(f"agent/{engine}_options.py: {len(parser.options)} options of {title} {version}")
        parser.close()


if __name__ == "__main__":
    main()

"""Argument lists as people and nobody would write them, for one engine: what is harmless, what is SlotServe's, what is
nonsense. From a seed, so that a list that fails can be made again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.engines import prefixed, sglang, vllm

OPTIONS: Mapping[str, prefixed.Options] = {"vllm": vllm.OPTIONS, "sglang": sglang.OPTIONS}
HOSTILE = ("/etc/passwd", "0.0.0.0", "9", "1", "word", "--port", "--model", "-1", "a=b", "{}", "")
NONSENSE = (
    *("--frobnicate", "--frob=1", "--", "-", "", " ", "-1", "-0.5", "-.5", "--=", "--=x", "--.x", "-x", "word", "@/etc/x"),
    *("- a.b", "--a b", "-n 2", "--port 9", "--model /x", "--é", "-O", "-O3", "-Ofast", "-O.x", "--no-", "--no-port", "serve"),
)  # fmt: skip
# What a file or a folder may be called: the catalogue name, and part of the path.
ODD_NAMES = (
    *("-foo", "-1", "-", "--", "--port", "--model", "-O3", "-dp", "-a.b", "-a=b", "--a.b=c", "-foo bar", " -x", "a b", " a "),
    *("'q'", '"q"', "q'", "a=b", "a:b", "a,b", "é", "模型", "😀", "x" * 250, "@/etc/passwd", "a\nb", "$HOME", "%s", "{}", "\\", "*"),
)  # fmt: skip


def name(number: int) -> str:
    """The catalogue name that goes with a list: an odd one in three of ten."""
    rng = random.Random(f"name {number}")
    way = rng.random()
    if way < 0.2:
        return rng.choice(ODD_NAMES)
    if way < 0.3:
        return "".join(rng.choices("-=.:@ '\"\\_~aZé😀", k=rng.randint(1, 6)))
    return "q/w"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A preset's arguments. `clean`: only known harmless ones and SlotServe's own: the engine has to take the result."""

    args: tuple[str, ...]
    clean: bool
    name: str = "q/w"


class Lists:
    """`draw(number)` is always the same list for an engine and its parser's options."""

    def __init__(self, engine: str, described: Sequence[Mapping[str, Any]]) -> None:
        self._engine = engine
        self._options = OPTIONS[engine]
        self._harmless = [d for d in described if not self._is_owned(d["spellings"][0]) and self._usable(d)]
        self._owned = sorted(s for s in self._options.counts if self._is_owned(s))

    def draw(self, number: int) -> Drawn:
        rng = random.Random(f"{self._engine} {number}")
        clean = rng.random() < 0.6
        args: list[str] = []
        for _ in range(rng.randint(1, 8)):
            kind = rng.random()
            if not clean and kind < 0.35:
                args += rng.choices(NONSENSE, k=rng.randint(1, 2))
            elif kind < 0.65:
                args += self._ours(rng, clean)
            else:
                args += self._fine(rng)
        if not clean and rng.random() < 0.3:
            rng.shuffle(args)
        return Drawn(tuple(args), clean, name(number))

    def _fine(self, rng: random.Random) -> list[str]:
        """A harmless option with a value that its own parser takes."""
        described = rng.choice(self._harmless)
        spelling, count = rng.choice(described["spellings"]), described["count"]
        typed = self._spelled(rng, spelling, self._unique(rng, spelling))
        if count == 0:
            return [typed]
        if count == "?" and rng.random() < 0.3:
            return [typed]
        value = described["examples"][0]
        return [f"{typed}={value}"] if rng.random() < 0.3 else [typed, value]

    def _ours(self, rng: random.Random, clean: bool) -> list[str]:
        """One of SlotServe's options: whole, cut short, with `_`, `=`, a dot, several values, none, or glued to it."""
        whole = rng.choice(self._owned)
        typed = whole
        if rng.random() < 0.4 and whole.startswith("--"):
            typed = whole[: rng.randint(4, len(whole))]
        typed = self._spelled(rng, whole, typed)
        way = rng.random()
        values = rng.choices(HOSTILE[:5] if clean else HOSTILE, k=rng.randint(1, 3 if self._takes_many(whole) else 1))
        if self._options.counts[whole] == 0 and typed == whole and clean:
            return [typed]
        if self._options.dotted and way < 0.1:
            return [f"{typed}.x", values[0]]
        if way < 0.35:
            return [f"{typed}={values[0]}"]
        if way < 0.45 and len(whole) == 2:
            return [f"{whole}{values[0]}"]
        if way < 0.5:
            return [f"{typed} {values[0]}"]
        if way < 0.55 and not clean:
            return [typed]
        return [typed, *values]

    def _spelled(self, rng: random.Random, whole: str, typed: str) -> str:
        if self._options.underscores and whole.startswith("--") and rng.random() < 0.3:
            return "--" + typed[2:].replace("-", "_")
        return typed

    def _unique(self, rng: random.Random, spelling: str) -> str:
        """The spelling, or now and then an abbreviation that means it alone."""
        if not spelling.startswith("--") or rng.random() < 0.7:
            return spelling
        short = spelling[: rng.randint(min(5, len(spelling)), len(spelling))]
        same = [s for s in self._options.counts if s.startswith(short)]
        return short if len(same) == 1 else spelling

    def _usable(self, described: Mapping[str, Any]) -> bool:
        return described["count"] == 0 or bool(described["examples"])

    def _takes_many(self, spelling: str) -> bool:
        return self._options.counts[spelling] in ("+", "*")

    def _is_owned(self, spelling: str) -> bool:
        name = self._options.same.get(spelling, spelling)
        return name in self._options.owned or any(name.startswith(start) for start, _ in self._options.families)

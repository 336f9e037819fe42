"""Command lines of the engines that use argparse (vLLM, SGLang): `--key=value`, abbreviations, options with many values.

An abbreviation that could mean an option of ours is taken for it: argparse would either agree or refuse to start.
"""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.engines.base import Dropped
from agent.engines.environment import passable

STRAY = "SlotServe chooses the model; a word that belongs to no option would be taken for one"
NO_VALUE_FOLLOWS = "it needs a value and none follows"
NOT_PASSABLE = "it holds a character that cannot be passed to a program"
_VALUE = re.compile(r"[^-]|-\d|-?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Options:
    """An engine's options. `counts`: every long and short spelling -> 0, 1 or "+" values; `same`: a spelling -> the one
    that `owned` and `permissioned` use; `families`: beginnings that are owned whatever follows."""

    counts: Mapping[str, int | str]
    owned: Mapping[str, str]
    permissioned: frozenset[str]
    same: Mapping[str, str]
    families: tuple[tuple[str, str], ...] = ()
    underscores: bool = False  # `_` counts as `-` in the key
    dotted: bool = False  # `--key.part value` sets a part of a JSON value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as argparse would read it. `option` is None for an unknown one, and for a stray word (`flag` "")."""

    option: str | None
    flag: str
    tokens: tuple[str, ...]
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Sorted:
    """What became of a preset's arguments."""

    kept: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    unknown: tuple[str, ...]
    permissioned: tuple[str, ...]


def sort_out(options: Options, args: Sequence[str]) -> Sorted:
    """Takes out what is SlotServe's; names what is unknown and what needs permission. Total for any tokens."""
    kept: list[str] = []
    dropped: list[Dropped] = []
    unknown: list[str] = []
    permissioned: list[str] = []
    for argument in read(options, args):
        why = argument.why
        if why is None and not all(passable(token) for token in argument.tokens):
            why = NOT_PASSABLE
        if why is not None:
            dropped.append(Dropped(" ".join(argument.tokens), why))
            continue
        if argument.option is None:
            unknown.append(argument.flag)
        elif argument.option in options.permissioned:
            permissioned.append(argument.flag)
        kept.extend(argument.tokens)
    return Sorted(tuple(kept), tuple(dropped), tuple(dict.fromkeys(unknown)), tuple(dict.fromkeys(permissioned)))


def read(options: Options, args: Sequence[str]) -> Iterator[Argument]:
    """The tokens as argparse groups them; everything after a bare `--` is words."""
    rest = deque(args)
    while rest:
        typed = rest.popleft()
        if typed == "--":
            yield Argument(None, "", (typed, *rest), STRAY)
            return
        if _VALUE.match(typed):
            yield Argument(None, "", (typed,), STRAY)
            continue
        flag, sign, _ = typed.partition("=")
        meant = _resolve(options, flag)
        count = options.counts.get(meant[0], 1) if meant else "+"
        values: list[str] = []
        while not sign and rest and _VALUE.match(rest[0]) and (count == "+" or len(values) < int(count)):
            values.append(rest.popleft())
        tokens = (typed, *values)
        if not meant:
            yield Argument(None, flag, tokens)
            continue
        why = next((w for w in (_owned(options, m) for m in meant) if w), None)
        if why is None and count != 0 and not sign and not values:
            why = NO_VALUE_FOLLOWS
        yield Argument(meant[0], flag, tokens, why)


def values(options: Options, args: Sequence[str]) -> dict[str, str]:
    """The options in force by their first spelling; the last of each counts."""
    found = {}
    for argument in read(options, args):
        if argument.option is not None and argument.why is None:
            _flag, sign, value = argument.tokens[0].partition("=")
            found[argument.option] = value if sign else " ".join(argument.tokens[1:])
    return found


def suggest(options: Options, flag: str) -> str | None:
    """The option that an unknown one was probably meant to be."""
    close = difflib.get_close_matches(flag, options.counts, n=1, cutoff=0.75)
    return close[0] if close else None


def _resolve(options: Options, flag: str) -> list[str]:
    """What a flag means by its first spelling: one option, several where the abbreviation is ambiguous, none."""
    key = flag.replace("_", "-") if options.underscores and flag.startswith("--") else flag
    if options.dotted:
        key = key.partition(".")[0]
    if key in options.counts:
        return [options.same.get(key, key)]
    if any(key.startswith(beginning) for beginning, _ in options.families):
        return [key]
    if not key.startswith("--") or len(key) < 3:
        return []
    longer = [options.same.get(name, name) for name in options.counts if name.startswith(key)]
    return list(dict.fromkeys(longer))


def _owned(options: Options, name: str) -> str | None:
    return options.owned.get(name) or next((why for start, why in options.families if name.startswith(start)), None)


def table(no_value: str, one_value: str, many_values: str) -> tuple[dict[str, int | str], dict[str, str]]:
    """`counts` and `same` from text: an option's spellings joined by `|`, options parted by white space."""
    counts: dict[str, int | str] = {}
    same: dict[str, str] = {}
    kinds: tuple[tuple[str, int | str], ...] = ((no_value, 0), (one_value, 1), (many_values, "+"))
    for text, count in kinds:
        for group in text.split():
            spellings = group.split("|")
            for spelling in spellings:
                counts[spelling] = count
                same[spelling] = spellings[0]
    return counts, same

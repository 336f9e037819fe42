"""Command lines of the engines that use argparse (vLLM, SGLang): `--key=value`, abbreviations, options with many values.

An abbreviation that could mean an option of ours is taken for it: argparse would either agree or refuse to start. How a
token is told from a value follows argparse too, of all Python versions that engines run on; where they differ, whatever
could be ours goes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.engines.base import Dropped
from agent.engines.environment import passable

STRAY = "SlotServe chooses the model; a word that belongs to no option would be taken for one"
NO_VALUE_FOLLOWS = "it needs a value and none follows"
NOT_PASSABLE = "it holds a character that cannot be passed to a program"
DOTTED_VALUE = "a value that begins with `-` and holds a dot would be taken for an option; use it with `=`, once"
Count = int | str  # 0, 1, "?" (one or none), "+" (one or more), "*" (any number)
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


@dataclass(frozen=True, slots=True)
class Options:
    """An engine's options. `counts`: every long and short spelling -> how many values; `same`: a spelling -> the one
    that `owned` and `permissioned` use; `families`: beginnings that are owned whatever follows."""

    counts: Mapping[str, Count]
    same: Mapping[str, str]
    owned: Mapping[str, str]
    permissioned: frozenset[str]
    families: tuple[tuple[str, str], ...] = ()
    secret: frozenset[str] = frozenset()
    telling: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # values that need permission
    glued: Mapping[str, str] = field(default_factory=dict)  # `-O3`: a spelling that has its value right behind it
    underscores: bool = False  # `_` counts as `-` in the key
    dotted: bool = False  # `--key.part value` sets a part of a JSON value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as argparse would read it. `meant`: what it may stand for, by the first spelling: nothing for an
    unknown one and for a stray word (`flag` ""), several for an abbreviation that is ambiguous."""

    meant: tuple[str, ...]
    flag: str
    tokens: tuple[str, ...]
    why: str | None = None

    @property
    def option(self) -> str | None:
        return self.meant[0] if len(self.meant) == 1 else None


@dataclass(frozen=True, slots=True)
class Sorted:
    """What became of a preset's arguments."""

    kept: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    unknown: tuple[str, ...]
    permissioned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Flag:
    """A token that is an option: the key as typed, what it may mean, the value in the same token, if any."""

    key: str
    meant: tuple[str, ...]
    value: str | None
    dotted: bool


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
            dropped.append(Dropped(_shown(options, argument), why))
            continue
        if argument.option is None:
            unknown.append(argument.flag)
        if _needs_permission(options, argument):
            permissioned.append(argument.flag)
        kept.extend(argument.tokens)
    return Sorted(tuple(kept), tuple(dropped), tuple(dict.fromkeys(unknown)), tuple(dict.fromkeys(permissioned)))


def read(options: Options, args: Sequence[str]) -> Iterator[Argument]:
    """The tokens as argparse groups them; everything after a bare `--` is words."""
    rest = deque(args)
    while rest:
        typed = rest.popleft()
        if typed == "--":
            yield Argument((), "", (typed, *rest), STRAY)
            return
        found = _flag(options, typed)
        if found is None:
            apart = _in_one_piece(options, typed)
            if apart is None:
                yield Argument((), "", (typed,), STRAY)
            else:
                rest.extendleft(reversed(apart))
            continue
        count = 1 if found.dotted else options.counts.get(found.meant[0], 1) if found.meant else "*"
        most = count if isinstance(count, int) else 1 if count == "?" else len(rest)
        values: list[str] = []
        while found.value is None and rest and len(values) < most and _is_value(options, rest[0]):
            values.append(rest.popleft())
        yield _argument(options, typed, found, count, values)


def values(options: Options, args: Sequence[str]) -> dict[str, str]:
    """The options in force by their first spelling; the last of each counts."""
    found = {}
    for argument in read(options, args):
        if argument.option is not None and argument.why is None:
            _key, sign, value = argument.tokens[0].partition("=")
            found[argument.option] = value if sign else " ".join(argument.tokens[1:])
    return found


def served(name: str) -> str:
    """A name as argparse can take it: of `--name=--` it makes an empty list."""
    return "--~" if name == "--" else name


def suggest(options: Options, flag: str) -> str | None:
    """The option that an unknown one was probably meant to be; none of SlotServe's own, for it would be dropped."""
    known = [spelling for spelling in options.counts if _owned(options, options.same[spelling]) is None]
    close = difflib.get_close_matches(_normal(options, flag.partition("=")[0]), known, n=1, cutoff=0.75)
    return close[0] if close else None


def table(*blocks: tuple[str, Count], negatable: str) -> tuple[dict[str, Count], dict[str, str]]:
    """`counts` and `same` from text: an option's spellings joined by `|`, options parted by white space; a negatable
    one also has a long spelling that begins with `--no-`."""
    counts: dict[str, Count] = {}
    same: dict[str, str] = {}
    for text, count in (*blocks, (negatable, 0)):
        for group in text.split():
            spellings = group.split("|")
            longer = [f"--no-{s[2:]}" for s in spellings if s.startswith("--")] if text is negatable else []
            for spelling in (*spellings, *longer):
                counts[spelling] = count
                same[spelling] = spellings[0]
    return counts, same


def _argument(options: Options, typed: str, found: _Flag, count: Count, values: list[str]) -> Argument:
    tokens = (typed, *values)
    why = next((w for w in (_owned(options, m) for m in found.meant) if w), None)
    if why is None and found.value is None and not values and (found.dotted or (count in (1, "+") and found.meant)):
        why = NO_VALUE_FOLLOWS
    if why is None and options.dotted and any(v.startswith("-") and "." in v.partition("=")[0] for v in values):
        if len(values) == 1:
            tokens = (f"{typed}={values[0]}",)
        else:
            why = DOTTED_VALUE
    return Argument(found.meant, found.key, tokens, why)


def _flag(options: Options, token: str) -> _Flag | None:
    """What argparse takes for an option; None for a value."""
    if len(token) < 2 or token[0] != "-":
        return None
    key, sign, value = token.partition("=")
    inline = value if sign else None
    for beginning, name in options.glued.items():
        if key.startswith(beginning):
            return _Flag(beginning, (name,), token[len(beginning) :] or None, False)
    name = _normal(options, key)
    dotted = options.dotted and "." in key
    if name in options.counts:
        return _Flag(key, (options.same[name],), inline, dotted)
    if any(name.startswith(beginning) for beginning, _why in options.families):
        return _Flag(key, (name,), inline, dotted)
    meant = [options.same[longer] for longer in options.counts if longer.startswith(name) and _alike(longer, name)]
    short = token[:2]
    if not token.startswith("--") and short in options.counts:
        meant.append(options.same[short])
        inline = token[2:]
    if meant:
        return _Flag(key, tuple(dict.fromkeys(meant)), inline, dotted)
    if _NEGATIVE.fullmatch(token) or " " in token:
        return None
    return _Flag(key, (), inline, dotted)


def _alike(longer: str, name: str) -> bool:
    """`-d` abbreviates `-dp`, not `--dtype`."""
    return longer.startswith("--") == name.startswith("--")


def _is_value(options: Options, token: str) -> bool:
    return token != "--" and _flag(options, token) is None and _in_one_piece(options, token) is None


def _in_one_piece(options: Options, typed: str) -> tuple[str, ...] | None:
    """`--max-model-len 8192` as one token: nobody means a word by that."""
    key, *value = typed.split(None, 1) or ("",)
    found = _flag(options, key) if value and key != "--" else None
    if found is None or not found.meant or found.value is not None:
        return None
    count = options.counts.get(found.meant[0], 1)
    return (f"{key}={value[0].strip()}",) if count in (1, "?") else (key, *value[0].split())


def _normal(options: Options, key: str) -> str:
    """The key as it stands in the table: without what follows a dot, `_` mapped, where the engine does so."""
    if options.dotted:
        key = key.partition(".")[0]
    return key.replace("_", "-") if options.underscores and key.startswith("--") else key


def _owned(options: Options, name: str) -> str | None:
    return options.owned.get(name) or next((why for start, why in options.families if name.startswith(start)), None)


def _needs_permission(options: Options, argument: Argument) -> bool:
    if argument.flag.startswith("--no-"):
        return False
    text = " ".join(_plain(token) for token in argument.tokens)
    return any(
        name in options.permissioned or (name in options.telling and options.telling[name].search(text))
        for name in argument.meant
    )


def _plain(token: str) -> str:
    """JSON without its escapes, in which a word could hide."""
    head, sign, value = token.partition("=") if token.startswith("-") else ("", "", token)
    try:
        return head + sign + json.dumps(json.loads(value), ensure_ascii=True)
    except (ValueError, RecursionError):
        return token


def _shown(options: Options, argument: Argument) -> str:
    """As it was typed; a key's value is not repeated."""
    if not options.secret.isdisjoint(argument.meant):
        return f"{argument.flag} …"
    return " ".join(argument.tokens)

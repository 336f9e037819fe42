"""Whatever a preset says, an engine's own parser ends with our model, name, address and key, or takes nothing at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.engines import get
from agent.engines.base import Place, unique_name
from tests.arguments.lists import Drawn
from tests.arguments.model_parser import ModelParser
from tests.arguments.service import RealParser

PLACES = {
    "vllm": Place("", (), "-key", socket="/run/slotserve/a.sock"),
    "sglang": Place("", (), "-key", port=4001),
}
EXPECTED = {
    "vllm": {"socket": "/run/slotserve/a.sock", "key": None, "elsewhere": []},
    "sglang": {"host": "127.0.0.1", "port": 4001, "key": "-key", "elsewhere": []},
}


@dataclass
class Outcome:
    """What became of many lists."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, drawn: Drawn, problem: str | None, how: str) -> None:
        self.counts["clean" if drawn.clean else "wild"] += 1
        self.counts[how] += 1
        if problem:
            self.failures.append(f"{problem}: {drawn.name!r} {list(drawn.args)}")


def compare(engine: str, parser: RealParser | ModelParser, lists: Iterable[Drawn]) -> Outcome:
    """Every list through our stripping and then through the parser."""
    outcome = Outcome()
    for drawn in lists:
        names = (drawn.name, unique_name(drawn.name, "1"))
        place = replace(PLACES[engine], model_path=f"/models/{drawn.name}", served_names=names)
        prepared = get(engine).prepare((engine,), drawn.args, {}, place, {})
        made = parser.ask(prepared.command[1:])
        expected = {
            **EXPECTED[engine],
            "model": place.model_path,
            "names": list(get(engine).served_names(place)),
        }
        problem, how = judge(expected, drawn, prepared.unknown, made)
        outcome.add(drawn, f"{problem}; the parser made {made} of {prepared.command}" if problem else None, how)
    return outcome


def judge(
    expected: dict[str, Any], drawn: Drawn, unknown: tuple[str, ...], made: dict[str, Any]
) -> tuple[str | None, str]:
    """What is wrong, if anything, and a word for the statistics."""
    if made.get("other_program"):
        return "handed over to another program", "failed"
    if made.get("taken"):
        wrong = {name: made[name] for name, value in expected.items() if made[name] != value}
        if made["names"][0] != drawn.name and drawn.name != "--" and ":" not in drawn.name:
            return f"it shows another name: {made['names']}", "failed"
        return (f"not ours: {wrong}", "failed") if wrong else (None, "taken as ours")
    if made["code"] == 0:
        return "it would print something and end", "failed"
    if drawn.clean and not unknown:
        return "refused, though nothing was wrong with it", "failed"
    return None, "refused"

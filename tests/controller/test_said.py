"""Sentences that know what they are made of; and that every refusal is one, so that none stays English for a reader of
another language (tests of the catalogue see to it that each has its translation)."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.said import Said, fault, joined, say, told, told_in, words_of

ROOT = Path(__file__).parents[2] / "controller"
REFUSALS = {
    "Conflict": 0, "NotFound": 0, "Forbidden": 0, "BadRequest": 0, "Unauthorized": 0, "TooMany": 0, "Unavailable": 0,
    "Verdict": 1, "field": 1, "unfit": 2, "RepeatError": 1, "PolicyError": 1,
}  # fmt: skip
GERMAN = {
    "%(field)s: %(problem)s": "%(field)s – %(problem)s",
    "start": "Beginn",
    "there is no channel %(channel)s": "einen Kanal %(channel)s gibt es nicht",
    "is in the past": "ist vorbei",
}


def german(text: str) -> str:
    return GERMAN.get(text, text)


def test_it_is_the_english_sentence_wherever_a_string_is_wanted() -> None:
    said = say("there is no channel %(channel)s", channel="a/b")
    assert said == "there is no channel a/b"
    assert json.dumps({"message": said}) == '{"message": "there is no channel a/b"}'
    assert say("100 % of it") == "100 % of it"


def test_a_reader_gets_it_by_the_own_catalogue_with_what_it_holds() -> None:
    said = fault("starts_at", say("is in the past"))
    assert said == "starts_at: is in the past"
    assert told(said, german) == "Beginn – ist vorbei"
    assert told("made of nothing", german) == "made of nothing"
    answer = {"error": {"message": said, "details": {"starts_at": [said.values["problem"], 3]}}}
    assert told_in(answer, german) == {
        "error": {"message": "Beginn – ist vorbei", "details": {"starts_at": ["ist vorbei", 3]}}
    }


def test_several_are_joined_and_stay_what_they_are() -> None:
    several = joined([say("is in the past"), say("there is no channel %(channel)s", channel="x"), "as typed"], ", ")
    assert several == "is in the past, there is no channel x, as typed"
    assert told(several, german) == "ist vorbei, einen Kanal x gibt es nicht, as typed"
    assert joined([]) == ""


def test_an_exception_keeps_it() -> None:
    assert isinstance(words_of(ValueError(say("is in the past"))), Said)
    assert words_of(KeyError(3)) == "3"
    assert words_of(ValueError()) == ""


def written(path: Path) -> Iterator[str]:
    """Refusals whose words stand there as a plain text: (line, text)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        place = REFUSALS.get(name)
        if place is None or len(node.args) <= place:
            continue
        for words in (
            (node.args[place].body, node.args[place].orelse)
            if isinstance(node.args[place], ast.IfExp)
            else (node.args[place],)
        ):
            if isinstance(words, ast.JoinedStr) or (isinstance(words, ast.Constant) and isinstance(words.value, str)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(words)}"


@pytest.mark.parametrize("room", ["api", "booking", "store", "console", "scheduling", "."])
def test_every_refusal_is_such_a_sentence(room: str) -> None:
    found = [line for path in sorted((ROOT / room).glob("*.py")) for line in written(path)]
    assert not found, "say(...) these, and add them to the catalogue:\n" + "\n".join(found)

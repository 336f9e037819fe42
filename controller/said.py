"""Sentences that remember what they are made of: English to everybody, and any language to who asks for it.

`say("there is no channel %(channel)s", channel="a/b")` is a string, the English sentence; so whoever logs it, compares
it or sends it as JSON needs to know nothing. It also carries its message id and its values, so that the console can say
the same to a reader of another language (`told`). Values may be such sentences themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from controller.words import field_words

Value = str | int | float


class Said(str):
    """The English sentence. `text` is its message id, with %(name)s places."""

    text: str
    values: Mapping[str, Value]

    def __new__(cls, text: str, values: Mapping[str, Value]) -> Self:
        made = super().__new__(cls, text % values if values else text)
        made.text, made.values = text, values
        return made


def say(text: str, /, **values: Value) -> Said:
    """A sentence; its first argument is what translators translate, so it has to be a literal."""
    return Said(text, values)


def fault(field: str, problem: str) -> Said:
    """What is wrong with a field, as a sentence that names it: by its name in English, for who writes programs, and in the
    reader's words elsewhere."""
    name = str.__new__(Said, field)
    name.text, name.values = field_words(field), {}
    return say("%(field)s: %(problem)s", field=name, problem=problem)


def words_of(err: BaseException) -> str:
    """What an exception was raised with, still as the sentence that it was."""
    first = err.args[0] if err.args else ""
    return first if isinstance(first, str) else str(err)


def joined(sentences: Sequence[str], between: str = "; ") -> str:
    """Several as one, in their order."""
    whole: str = ""
    for each in sentences:
        whole = Said(f"%(first)s{between}%(then)s", {"first": whole, "then": each}) if whole else each
    return whole


def told(words: str, translate: Callable[[str], str]) -> str:
    """The sentence by the reader's catalogue; a text that is none of ours is passed on as it is."""
    if not isinstance(words, Said):
        return words
    text = translate(words.text)
    values = {name: told(v, translate) if isinstance(v, str) else v for name, v in words.values.items()}
    return text % values if values else text


def told_in(data: Any, translate: Callable[[str], str]) -> Any:
    """The same for every sentence within an answer."""
    if isinstance(data, Said):
        return told(data, translate)
    if isinstance(data, Mapping):
        return {name: told_in(each, translate) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return [told_in(each, translate) for each in data]
    return data

"""The table of failures that people are shown has every category, and each of its sentences says what to do or look at."""

from __future__ import annotations

import re
from typing import get_args

from agent.core.types import Category
from tests.agent.engines.failures_table import markdown, rows

ADVICE = re.compile(
    r"\b(lower|raise|use|install|correct|copy|put|set|give|see|look|add|choose|try|tried|starts? as soon|must end first|"
    r"started anew|a newer one may|the next try|update)\b"
)
# Somebody ended it by hand: there is nothing to do about it.
PLAIN = re.compile(r"somebody ended it|could not be opened")


def test_every_category_is_in_it() -> None:
    assert {row.category for row in rows()} == set(get_args(Category))


def test_every_sentence_says_what_to_do_or_where_to_look() -> None:
    assert [r.reason for r in rows() if not ADVICE.search(r.reason) and not PLAIN.search(r.reason)] == []


def test_it_is_a_table() -> None:
    lines = markdown().splitlines()
    assert len(lines) == len(rows()) + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}

"""Output as people read it: progress bars folded, colours gone, whatever the pieces it comes in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.terminal_text import Folder, readable


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        ("plain\nlines\n", "plain\nlines\n"),
        ("no end", "no end"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("load:  1%\rload: 50%\rload: 100%\ndone\n", "load: 100%\ndone\n"),
        ("load:  1%\rload: 50%\r", "load: 50%"),
        ("load: 100%\r          \r\nnext\n", "load: 100%\nnext\n"),
        ("\x1b[32mINFO\x1b[0m ready \x1b[1;38;5;208mgo\x1b[m\n", "INFO ready go\n"),
        ("\x1b[2K\x1b[1A\rload 3\x1b[K\n", "load 3\n"),
        ("\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "textlink\n"),
        ("bell\x07 back\x08 null\x00 c1\x9b31m tab\tkept\n", "bell back null c131m tab\tkept\n"),
        ("世界\r世界!\n", "世界!\n"),
        ("", ""),
        ("\n\n", "\n\n"),
    ],
)
def test_as_a_terminal_shows_it_at_last(came: str, shown: str) -> None:
    assert readable(came) == shown


def test_a_line_that_goes_on_after_it_was_shown() -> None:
    folder = Folder()
    assert folder.feed("load 1%\rload 2%") == ""
    assert folder.flush() == "load 2%"
    assert folder.flush() == ""
    assert folder.feed("\rload 9%\n") == "\nload 9%\n"
    assert folder.feed("half ") == ""
    assert folder.flush() == "half "
    assert folder.feed("a line\nnext\n") == "a line\nnext\n"
    assert folder.feed("colour \x1b[3") == ""
    assert folder.flush() == "colour "
    assert folder.feed("2mgreen\x1b[0m\n") == "green\n"


@given(st.text(alphabet="ab \r\n\t\x1b[0m;]\x07\x9b\x08", max_size=80), st.lists(st.integers(0, 80), max_size=6))
def test_nothing_steers_the_terminal_and_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    whole = readable(text)
    assert not set(whole) & set("\r\x1b\x07\x08\x9b")
    folder, places = Folder(), sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = "".join(folder.feed(text[a:b]) for a, b in itertools.pairwise(places))
    assert pieces + folder.flush() == whole

"""The controller's copy of engine output: offsets that stay true, a cap, and names that cannot leave the folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fleet.logs import Launch, LogStore, _unfinished

ONE = Launch("l1", 1000, "model", None, "")


def test_pieces_become_one_text(tmp_path: Path) -> None:
    store = LogStore(tmp_path, segment=4)
    assert store.append("n", "main", ONE, 0, b"") == 0
    assert store.append("n", "main", ONE, 0, b"hello ") == 6
    assert store.append("n", "main", ONE, 6, b"world") == 11
    assert store.append("n", "main", ONE, 3, b"lo world") == 11, "what is there already is passed over"
    assert store.append("n", "main", ONE, 9, b"ld!\n") == 13
    assert store.read("n", "main", 0, 100) == {
        "file": "main-l1.log",
        "offset": 0,
        "next_offset": 13,
        "text": "hello world!\n",
        "ended": False,
    }
    assert store.read("n", "main", 6, 3)["text"] == "wor"
    assert store.read("n", "main", -7, 100)["text"] == "world!\n"
    assert store.read("n", "main", 99, 10) == {
        "file": "main-l1.log",
        "offset": 13,
        "next_offset": 13,
        "text": "",
        "ended": False,
    }
    assert store.read("n", "other", 0, 10) is None


def test_the_current_and_the_failed_one_before(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    store.append("n", "main", replace(ONE, id="a", ended=True, failed=True), 0, b"out of memory")
    store.append("n", "main", replace(ONE, id="b", launched_at=2000, ended=True), 0, b"fine")
    store.append("n", "main", replace(ONE, id="c", launched_at=3000), 0, b"now")
    assert store.read("n", "main", 0, 100)["text"] == "now"
    assert store.read("n", "main", 0, 100, "previous")["text"] == "out of memory"
    assert store.read("n", "main", 0, 100, "b")["text"] == "fine"
    assert store.read("n", "main", 0, 100, "x") is None
    assert [(x["id"], x["size"], x["failed"]) for x in store.launches("n", "main")] == [
        ("c", 3, False),
        ("b", 4, False),
        ("a", 13, True),
    ]


def test_the_cap_takes_the_oldest_first_and_keeps_offsets(tmp_path: Path) -> None:
    store = LogStore(tmp_path, cap=1000, segment=100)
    store.append("n", "main", replace(ONE, id="bad", ended=True, failed=True), 0, b"why it failed")
    store.append("n", "main", replace(ONE, id="old", launched_at=1500, ended=True), 0, b"o" * 500)
    new = replace(ONE, id="new", launched_at=2000)
    for i in range(30):
        store.append("n", "main", new, i * 100, bytes(str(i % 10), "ascii") * 100)
    sizes = {x["id"]: x["size"] for x in store.launches("n", "main")}
    assert sum(sizes.values()) <= 1000
    assert "old" not in sizes
    assert store.read("n", "main", 0, 100, "previous")["text"] == "why it failed"
    got = store.read("n", "main", 0, 2000)
    assert got["next_offset"] == 3000
    said, _, rest = got["text"].partition("\n")
    first = 3000 - len(rest)
    assert said == f"[slotserve: {first} bytes of output came before this and are no longer kept]"
    assert rest == "".join(str(i % 10) * 100 for i in range(first // 100, 30))
    assert store.read("n", "main", first, 100)["text"] == str(first // 100 % 10) * 100


def test_a_character_is_not_cut_in_two(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    data = "größe 🦙".encode()
    store.append("n", "main", ONE, 0, data[:-2])
    assert store.read("n", "main", 0, 100)["text"] == "größe "
    store.append("n", "main", ONE, len(data) - 2, data[-2:])
    offset, text = 0, ""
    while part := store.read("n", "main", offset, 4)["text"]:
        text += part
        offset += len(part.encode())
    assert text == "größe 🦙"
    store.append("n", "main", replace(ONE, ended=True), len(data), b"\xf0\x9f")
    assert store.read("n", "main", 0, 100)["text"].endswith("\ufffd"), "of an ended launch all is shown"


@given(st.text(max_size=20), st.integers(0, 40))
def test_unfinished_counts_only_a_cut_character(text: str, cut: int) -> None:
    data = text.encode()[:cut]
    data[: len(data) - _unfinished(data)].decode()


@pytest.mark.parametrize("name", ["..", "a/b", "", "/etc", ".hidden", "a\0b"])
def test_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    store = LogStore(tmp_path)
    with pytest.raises(ValueError, match="not a name"):
        store.append("n", name, ONE, 0, b"x")
    with pytest.raises(ValueError, match="not a name"):
        store.append("n", "main", replace(ONE, id=name), 0, b"x")
    with pytest.raises(ValueError, match="not a name"):
        store.read(name, "main", 0, 1)


def test_lines_are_numbered_and_found_across_segments(tmp_path: Path) -> None:
    store = LogStore(tmp_path, segment=50)
    text = "".join(f"line {n} {'Boom' if n in (3, 17, 18) else 'ok'}\n" for n in range(1, 31)).encode()
    for at in range(0, len(text), 20):
        store.append("n", "main", ONE, at, text[at : at + 20])
    found, count = store.find("n", "main", ONE.id, "bOOM", 2)
    assert (count, [line for _, line in found]) == (3, [3, 17])
    for offset, line in found:
        assert store.line_at("n", "main", ONE.id, offset) == line
        assert store.read("n", "main", offset, 60)["text"].startswith(f"line {line} Boom")
    assert store.find("n", "main", ONE.id, "nowhere", 9) == ([], 0)
    assert store.find("n", "main", "other", "line", 9) == ([], 0)


def test_ten_megabytes_are_searched(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    line = b"x" * 99 + b"\n"
    for at in range(0, 9_000_000, 1_000_000):
        store.append("n", "main", ONE, at, line * 10_000)
    store.append("n", "main", ONE, 9_000_000, "the needle: Größe\n".encode())
    assert store.find("n", "main", ONE.id, "größe", 5)[1] == 1
    assert store.line_at("n", "main", ONE.id, 9_000_000) == 90_001


def test_what_is_missing_is_said_where_it_is(tmp_path: Path) -> None:
    """In the place of lost bytes, so that offsets stay those of the engine's own output."""
    store = LogStore(tmp_path)
    assert store.append("n1", "main", ONE, 0, b"one\n") == 4
    assert store.append("n1", "main", ONE, 10_000, b"two\n") == 10_004
    assert store.append("n1", "main", ONE, 10_010, b"three\n") == 10_016  # too short a gap for words
    text, at = "", 0
    while (piece := store.read("n1", "main", at, 1000)) and piece["text"]:
        text, at = text + piece["text"], piece["next_offset"]
    note = "\n[slotserve: 9996 bytes of output are missing here, more was printed than could be kept]\n"
    assert text == f"one\n{note}two\nthree\n"
    assert at == 10_016
    assert store.read("n1", "main", 10_000, 4)["text"] == "two\n"  # type: ignore[index]
    assert store.append("n1", "other", replace(ONE, id="l2"), 5000, b"late\n") == 5005
    assert store.read("n1", "other", 0, 1000)["text"].startswith("\n[slotserve: 5000 bytes")  # type: ignore[index]

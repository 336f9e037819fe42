"""The figures that workers have in common: whole and never less than before, whenever they are looked at."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from agent.gateway import board as module
from agent.gateway.board import HALF_BYTES, Board


@pytest.fixture
def boards() -> Iterator[tuple[Board, Board]]:
    fd = Board.create(2)
    yield Board(fd, 2, 0), Board(fd, 2, 1)
    os.close(fd)


def test_each_says_its_own_and_a_successor_goes_on_from_there(boards: tuple[Board, Board]) -> None:
    first, second = boards
    assert second.others() == [{}]
    assert (second.alive(), second.written()) == (1, [0.0, 0.0])
    for number in range(3):
        first.write({"requests": number, "pad": "x" * (100 - 40 * number)})
        second.write({"requests": 10 * number})
        assert second.others() == [first.read(0)]
        assert first.read(0)["requests"] == number
        assert first.others() == [{"requests": 10 * number}]
    assert (first.alive(), second.alive()) == (2, 2)


def test_one_that_has_not_written_for_long_is_not_alive(
    boards: tuple[Board, Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = boards
    first.write({})
    late = time.monotonic() + module.ALIVE_SECONDS
    monkeypatch.setattr(module.time, "monotonic", lambda: late)
    assert (second.alive(), second.others()) == (1, [{}])


def test_what_is_too_long_leaves_what_was_said_before(
    boards: tuple[Board, Board], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = boards
    first.write({"requests": 1})
    first.write({"requests": "1" * HALF_BYTES})
    assert second.others() == [{"requests": 1}]
    assert "figures too long" in caplog.text


def test_one_that_dies_while_it_writes_has_said_what_it_said_before(
    boards: tuple[Board, Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = boards
    first.write({"requests": 1})
    first.write({"requests": 2})
    for data in ({"requests": 3}, {"requests": "4" * 1000}):
        with monkeypatch.context() as patch:
            patch.setattr(module.time, "monotonic", lambda: 1 / 0)  # the last thing that a write does
            with pytest.raises(ZeroDivisionError):
                first.write(data)
        assert (second.others(), second.alive()) == ([{"requests": 2}], 2)
    first.write({"requests": 5})
    assert second.others() == [{"requests": 5}]


def test_a_reader_sees_whole_figures_of_a_worker_that_lives_however_often_it_writes(
    boards: tuple[Board, Board],
) -> None:
    first, second = boards
    first.write({"number": 0, "pad": ""})
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            first.write({"number": number, "pad": "x" * (number % 7 * 100)})

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that a look falls between any two steps of a write
    writer = threading.Thread(target=write)
    writer.start()
    try:
        last = 0
        for _ in range(5000):
            assert second.alive() == 2
            said = second.read(0)
            assert len(said["pad"]) == said["number"] % 7 * 100
            assert said["number"] >= last
            last = said["number"]
    finally:
        done.set()
        writer.join()
        sys.setswitchinterval(interval)
    assert last > 0

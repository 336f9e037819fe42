"""Logs by launch: offsets over segments, what is kept, files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.runtime import logs
from agent.runtime.logs import LAST_WORDS, LaunchLog, LogFolder


def begun(folder: LogFolder, n: int, preset: str | None = None) -> str:
    launch = f"{n:013d}-0000cafe"
    folder.begin(LaunchLog(launch, "m", preset, "id", f"r{n}", n))
    return launch


def segment(folder: LogFolder, launch: str, offset: int, data: bytes) -> Path:
    path = folder.path / f"{launch}.{offset:015d}.log"
    path.write_bytes(data)
    return path


def test_what_was_started_and_how_it_ended(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "logs")
    assert folder.launches() == []
    launch = begun(folder, 5, "long")
    segment(folder, launch, 0, b"hello")
    assert folder.get(launch) == LaunchLog(launch, "m", "long", "id", "r5", 5, None, False, 5, 0)
    folder.end(launch, 9, failed=True)
    folder.end(launch, 10, failed=False)
    found = folder.launches()
    assert found == [LaunchLog(launch, "m", "long", "id", "r5", 5, 9, True, 5, 0)]
    assert found[0].ended


def test_the_last_launches_stay_and_the_last_failed_one(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, keep=3)
    names = [begun(folder, n) for n in range(8)]
    for n, launch in enumerate(names):
        segment(folder, launch, 0, b"x")
        if n != 0:  # the first has never ended, as far as anybody knows
            folder.end(launch, n, failed=n in (1, 2))
    assert [x.launch_id for x in folder.launches()] == [names[0], names[2], *names[5:]]
    assert not list(tmp_path.glob(f"{names[1]}*"))


def test_read_by_offset_over_segments_and_from_the_end(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    launch = begun(folder, 1)
    segment(folder, launch, 4, b"4567")
    segment(folder, launch, 8, b"89\r\xe4")
    assert (folder.get(launch).first_offset, folder.get(launch).size) == (4, 12)
    assert folder.read(launch, 0, 100).data == b"456789\r\xe4"
    assert folder.read(launch, 0, 100).offset == 4
    assert folder.read(launch, 6, 3).data == b"678"
    assert folder.read(launch, -2, 10).data == b"\r\xe4"
    assert folder.read(launch, 99).data == b""
    assert folder.read("nobody", 7).next_offset == 7
    assert folder.tail(launch, 5) == "789\r\N{REPLACEMENT CHARACTER}"


@given(st.binary(max_size=200), st.lists(st.integers(1, 40), min_size=1), st.integers(0, 220), st.integers(1, 60))
def test_any_cutting_reads_the_same(data: bytes, cuts: list[int], offset: int, limit: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder, at, n = LogFolder(Path(name)), 0, 0
        launch = begun(folder, 1)
        while at < len(data):
            size = cuts[n % len(cuts)]
            segment(folder, launch, at, data[at : at + size])
            at, n = at + size, n + 1
        assert folder.read(launch, offset, limit).data == data[offset : offset + limit]


def test_damaged_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    launch = begun(folder, 1)
    for name in ("0.json", f"{launch}.x.log", f"{launch}.log", "other.000.log"):
        (tmp_path / name).write_text("{")
    (tmp_path / "2.json").write_text('{"unknown": 1}')
    (tmp_path / "3.json").write_text("[]")
    assert [x.launch_id for x in folder.launches()] == [launch]
    assert folder.get(launch).size == 0


def test_a_full_disk_keeps_the_last_words_of_the_newest_and_the_last_failed_launch(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    names = [begun(folder, n) for n in range(4)]
    for n, launch in enumerate(names):
        segment(folder, launch, 0, b"a" * LAST_WORDS)
        segment(folder, launch, LAST_WORDS, b"b" * 1000)
        if n < 3:
            folder.end(launch, n, failed=n == 0)
    assert folder.make_room()
    found = {x.launch_id: (x.first_offset, x.size) for x in folder.launches()}
    cut, whole = (1000, LAST_WORDS + 1000), (0, LAST_WORDS + 1000)
    assert found == {names[0]: cut, names[2]: cut, names[3]: whole}, "what still runs is not touched"
    assert folder.read(names[0], 0, LAST_WORDS).data == b"a" * (LAST_WORDS - 1000) + b"b" * 1000
    assert not folder.make_room()


def test_an_end_that_could_not_be_written_counts_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = LogFolder(tmp_path)
    launch = begun(folder, 1)
    with monkeypatch.context() as patch:
        patch.setattr(logs, "write_json", full)
        folder.end(launch, 2, failed=True)
    assert [(x.ended_at, x.failed) for x in folder.launches()] == [(2, True)]
    begun(folder, 3)
    assert [(x.ended_at, x.failed) for x in LogFolder(tmp_path).launches()] == [(2, True), (None, False)]

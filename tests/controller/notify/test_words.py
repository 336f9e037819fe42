"""Every message in both languages, complete; times as a person reads them; what people type stays what it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from babel.messages.extract import extract_from_file
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.notify import kinds, texts, texts_participants, wording
from controller.notify.language import Clock, language_of, translated, zone_of
from controller.words import CATEGORIES

NOTIFY = Path(wording.__file__).parent
HOUR = 3_600_000
START = 1_800_000_000_000
FACTS: dict[str, Any] = {
    "channel": "gpu-a01/main", "node": "gpu-a01", "reservation_id": "r1", "model": "Qwen3-32B", "preset": "long",
    "starts_at": START, "ends_at": START + 2 * HOUR, "holder": "maya", "by": "lin", "left_by": "tomas", "reason": "moved",
    "default": "Qwen3-8B", "category": "out_of_memory", "detail": "CUDA out of memory", "since": START, "text": "Gone.",
    "processes": [{"pid": 4711, "user": "tomas", "command": "python", "memory_bytes": 12_300_000_000}],
    "others": [{"channel": "b/c", "starts_at": START, "ends_at": START + HOUR}], "target": "email, maya", "attempts": 12,
    "one_ran": True, "unsought": True,
    "bookings": [{"holder": "maya", "channel": "a/b", "starts_at": START, "ends_at": START + HOUR}], "error": "550",
}  # fmt: skip


def marked() -> set[str]:
    files = [*NOTIFY.glob("*.py"), NOTIFY.parent / "calendars.py"]
    found = {m[1] for path in files for m in extract_from_file("python", path, {"N_": None})}
    return {str(m) for m in found} | set(CATEGORIES.values())


def test_everything_is_translated_with_the_same_places() -> None:
    same = {"Webhook", "Base URL", "%(text)s"}
    places = re.compile(r"%\(\w+\)s")
    for text in marked():
        chinese = translated(text, "zh_Hans")
        assert chinese != text or text in same, text
        assert sorted(places.findall(chinese)) == sorted(places.findall(text)), text


@pytest.mark.parametrize("message", texts.MESSAGES)
@pytest.mark.parametrize("participant", [False, True], ids=["holder", "participant"])
@pytest.mark.parametrize("language", ["en", "zh_Hans"])
@pytest.mark.parametrize("facts", [FACTS, {}], ids=["all", "none"])
def test_every_message_is_whole(message: str, language: str, participant: bool, facts: dict[str, Any]) -> None:
    kind = next((k for k in (*kinds.KINDS, "test") if message.startswith(k)), "changed")
    for zone in (ZoneInfo("Asia/Shanghai"), None):
        said = wording.render(kind, {**facts, "message": message, "participant": participant}, language, zone)
        whole = " ".join([said.title, said.sentence()])
        assert said.title
        assert "%(" not in whole
        assert "None" not in whole
        assert "\n" not in said.title + said.lead
        if facts and zone and language == "en" and said.rows:
            assert "2027-" not in whole
    if facts:
        assert said.link or message in ("plain",)


@pytest.mark.parametrize("message", texts_participants.MESSAGES)
@pytest.mark.parametrize("language", ["en", "zh_Hans"])
def test_who_shares_a_booking_is_not_taken_for_its_holder(message: str, language: str) -> None:
    """Nothing of theirs is called "your booking", and nothing that only its holder can do is offered to them."""
    facts = {**FACTS, "message": message, "participant": True, "about_holder": True, "pending": True}
    said = wording.render("changed", facts, language, ZoneInfo("UTC"))
    whole = f"{said.title} {said.sentence()}"
    assert "%(" not in whole
    for theirs in ("our booking", "our request", "move it", "you can extend", "cancel it:", "你的预约"):
        assert theirs not in whole, whole
    assert FACTS["holder"] in whole


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_kind_has_its_words(kind: str) -> None:
    assert any(message.startswith(kind) for message in (*texts.MESSAGES, *texts_participants.MESSAGES))
    assert wording.kind_title(kind, "zh_Hans") != wording.kind_title(kind, "en")
    assert kinds.KINDS[kind].group in kinds.GROUPS


def test_a_message_that_this_version_does_not_know_is_shown_as_it_is() -> None:
    said = wording.render("new_kind", {"message": "new", "text": "something\nnew"})
    assert said.title == said.lead == "something new"


@pytest.mark.parametrize(
    ("language", "zone", "start", "end", "text"),
    [
        ("en", "Asia/Shanghai", "2026-11-30T06:30", "2026-11-30T08:30", "Mon 30 Nov, 14:30–16:30"),
        ("zh_Hans", "Asia/Shanghai", "2026-11-30T06:30", "2026-11-30T08:30", "11月30日 周一 14:30–16:30"),
        ("en", "Asia/Shanghai", "2026-11-30T06:30", "2026-11-30T16:00", "Mon 30 Nov, 14:30–24:00"),
        ("en", "Asia/Shanghai", "2026-11-30T06:30", "2026-11-30T18:00", "Mon 30 Nov, 14:30 – Tue 1 Dec, 02:00"),
        ("en", "UTC", "2026-11-30T06:30:05", "2026-11-30T08:30", "Mon 30 Nov, 06:30:05–08:30"),
        # the clock is put back at 01:00 UTC: 02:30 comes twice
        ("en", "Europe/Berlin", "2026-10-25T00:30", "2026-10-25T01:30", "Sun 25 Oct, 02:30 (UTC+2) – Sun 25 Oct, 02:30 (UTC+1)"),
        # and forward: 02:30 never comes
        ("en", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T01:30", "Sun 29 Mar, 01:30 (UTC+1) – Sun 29 Mar, 03:30 (UTC+2)"),
    ],
)  # fmt: skip
def test_windows(language: str, zone: str, start: str, end: str, text: str) -> None:
    first, last = (round(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp() * 1000) for t in (start, end))
    assert Clock(language, ZoneInfo(zone)).window(first, last) == text


def test_zones_and_languages_that_nobody_knows() -> None:
    assert str(zone_of("Mars/North", "Asia/Shanghai")) == "Asia/Shanghai"
    assert str(zone_of(None, "../etc/passwd", "")) == "UTC"
    assert [language_of(w) for w in ("zh-CN", "zh_Hans", "en-GB", "fr", None)] == [
        "zh_Hans",
        "zh_Hans",
        "en",
        "en",
        "en",
    ]
    assert Clock("en", ZoneInfo("America/St_Johns")).named(START) == "America/St_Johns, UTC-3:30"


@settings(max_examples=40)
@given(st.text(max_size=60), st.sampled_from(["en", "zh_Hans"]))
def test_what_people_type_is_one_line_and_breaks_nothing(text: str, language: str) -> None:
    facts = {**FACTS, "reason": text, "model": text or "m", "holder": text, "channel": text, "by": text}
    for kind in ("cancelled", "requested", "failed"):
        said = wording.render(kind, facts, language, ZoneInfo("UTC"))
        for line in (said.title, said.lead, *said.advice, *(v for _, v in said.rows if "\n" not in v)):
            assert line.isprintable() or not line


def test_choices() -> None:
    assert kinds.ways({}, "ready") == kinds.QUIET
    assert kinds.ways({"ready": ["email"]}, "ready") == ("email",)
    assert kinds.ways({"ready": []}, "ready") == ()
    assert kinds.ways({"ready": "nonsense"}, "ready") == kinds.QUIET
    assert kinds.chosen({}, {"ready": ["email", "in_app"]}) == {"ready": ["in_app", "email"]}
    assert kinds.chosen({"ready": ["email"]}, {"ready": None}) == {}
    assert kinds.chosen({}, {"ready": list(kinds.QUIET)}) == {}
    for bad in ({"nothing": []}, {"ready": ["pigeon"]}):
        with pytest.raises(ValueError, match="there is no"):
            kinds.chosen({}, bad)


@pytest.mark.parametrize("language", ["en", "zh_Hans"])
def test_several_dates_are_told_one_a_line(language: str) -> None:
    """A place and a model stand beside a date only where they are not the same for all."""
    days = [{"starts_at": START + n * 24 * HOUR, "ends_at": START + (n * 24 + 2) * HOUR} for n in range(3)]
    facts = {**FACTS, "message": "cancelled", "dates": days}
    said = wording.render("cancelled", facts, language, ZoneInfo("UTC"))
    rows = dict(zip(said.names, (value for _, value in said.rows), strict=True))
    assert "2" in said.title.rpartition("及" if language == "zh_Hans" else "and")[2]
    assert "when" not in rows
    assert len(rows["dates"].splitlines()) == 3
    assert "gpu-a01/main" not in rows["dates"]
    elsewhere = [days[0], {**days[1], "channel": "gpu-b07/left", "model": "Phi-4"}]
    said = wording.render("cancelled", {**facts, "dates": elsewhere}, language, ZoneInfo("UTC"))
    first, second = dict(zip(said.names, (value for _, value in said.rows), strict=True))["dates"].splitlines()
    assert "gpu" not in first
    assert "gpu-b07/left" in second
    assert "Phi-4" in second

"""Words and times in a person's language and zone, outside of any request (messages are made by a thread of their own).

The catalogue is a .po file of its own, read once a process; words that the console has as well come from its one.
"""

from __future__ import annotations

import io
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.dates import format_date
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.support import Translations

from controller.times import text_of

_HERE = Path(__file__).parent
CATALOGUES = (
    (_HERE / "translations", "notices.po"),
    (_HERE.parent / "console" / "translations", "messages.po"),
)
LANGUAGES = ("en", "zh_Hans")
DAYS = {"en": "EEE d MMM", "zh_Hans": "M月d日 EEE"}
DAYS_WITH_YEAR = {"en": "EEE d MMM y", "zh_Hans": "y年M月d日 EEE"}


@cache
def _catalogue(language: str) -> Translations | None:
    found = [_read(folder / language / "LC_MESSAGES" / name) for folder, name in CATALOGUES]
    there = [catalogue for catalogue in found if catalogue is not None]
    for first, second in pairwise(there):
        first.add_fallback(second)
    return there[0] if there else None


def _read(source: Path) -> Translations | None:
    if not source.exists():
        return None
    compiled = io.BytesIO()
    with source.open("rb") as file:
        write_mo(compiled, read_po(file, abort_invalid=True))
    compiled.seek(0)
    return Translations(compiled)


def translated(text: str, language: str) -> str:
    """`text` in the language; as it is where there is no translation."""
    catalogue = _catalogue(language)
    return str(catalogue.ugettext(text)) if catalogue and text else text


def language_of(*wishes: str | None) -> str:
    """The first of these that we speak (a locale such as zh-CN counts as zh_Hans), else English."""
    for wish in wishes:
        low = (wish or "").lower().replace("_", "-")
        if low.startswith("zh"):
            return "zh_Hans"
        if low.startswith("en"):
            return "en"
    return "en"


def zone_of(*wishes: str | None) -> ZoneInfo:
    """The first of these that is a zone, else UTC."""
    for wish in wishes:
        if wish and len(wish) <= 64:
            try:
                return ZoneInfo(wish)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
    return ZoneInfo("UTC")


class Clock:
    """Instants as a person reads them; without a zone as RFC 3339 in UTC, for whoever reads them to make local."""

    def __init__(self, language: str, zone: ZoneInfo | None) -> None:
        self.language, self.zone = language, zone

    def at(self, instant: int) -> str:
        """Mon 30 Nov, 14:30."""
        if self.zone is None:
            return text_of(instant) or ""
        return f"{self._day(instant)}, {self.time(instant)}" if self.language == "en" else self._spaced(instant)

    def time(self, instant: int) -> str:
        """14:30 (14:30:05 where there are seconds)."""
        if self.zone is None:
            return text_of(instant) or ""
        return self._local(instant).strftime("%H:%M:%S" if instant // 1000 % 60 else "%H:%M")

    def window(self, start: int, end: int) -> str:
        """Mon 30 Nov, 14:30–16:30; with both days where they differ, with both offsets where the clock is put."""
        if self.zone is None:
            return f"{text_of(start)}–{text_of(end)}"
        first, last = self._local(start), self._local(end)
        if first.utcoffset() != last.utcoffset():
            return f"{self.at(start)} ({self.offset(start)}) – {self.at(end)} ({self.offset(end)})"
        if first.date() == last.date():
            return f"{self.at(start)}–{self.time(end)}"
        if self._local(end - 1).date() == first.date():
            return f"{self.at(start)}–24:00"
        return f"{self.at(start)} – {self.at(end)}"

    def named(self, instant: int) -> str:
        """Asia/Shanghai, UTC+8."""
        if self.zone is None:
            return "UTC"
        offset = self.offset(instant)
        return str(self.zone) if str(self.zone) == offset else f"{self.zone}, {offset}"

    def year(self, instant: int) -> str:
        """Mon 30 Nov 2026."""
        return format_date(self._local(instant), DAYS_WITH_YEAR[self.language], locale=self.language)

    def offset(self, instant: int) -> str:
        """UTC+8, UTC-3:30, UTC."""
        said = self._local(instant).utcoffset()
        minutes = round(said.total_seconds() / 60) if said else 0
        if not minutes:
            return "UTC"
        hours, rest = divmod(abs(minutes), 60)
        return f"UTC{'+' if minutes > 0 else '-'}{hours}{f':{rest:02d}' if rest else ''}"

    def _spaced(self, instant: int) -> str:
        return f"{self._day(instant)} {self.time(instant)}"

    def _day(self, instant: int) -> str:
        return format_date(self._local(instant), DAYS[self.language], locale=self.language)

    def _local(self, instant: int) -> datetime:
        return datetime.fromtimestamp(instant / 1000, self.zone)

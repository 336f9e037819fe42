"""Instants in and out: RFC 3339 with a zone at the door, milliseconds inside, `Z` on the way out."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from controller.said import say

_SHAPE = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d{1,12})?[ ]?(Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE
)
_QUERY_PLUS = re.compile(r" (\d\d:\d\d)$", re.ASCII)  # a `+` that form decoding has made a space
_EXAMPLE = "2030-01-31T14:00:00Z"


def parse(value: Any) -> int:
    """Milliseconds of an RFC 3339 time. Raises ValueError in words; a time without a zone is refused."""
    if not isinstance(value, str):
        raise ValueError(say("must be a time such as %(example)s", example=_EXAMPLE))
    text = value.strip()
    if not _zone(text) and len(text) > 16:
        text = _QUERY_PLUS.sub(r"+\1", text)
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(say("must be a time such as %(example)s or 2030-01-31T22:00:00+08:00", example=_EXAMPLE))
    day, minute, second, fraction, zone = match.groups()
    if zone is None:
        raise ValueError(say("has no time zone; end it with Z or an offset, such as %(example)s", example=_EXAMPLE))
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}{'+00:00' if zone in 'zZ' else zone}")
    except ValueError as err:
        raise ValueError(say("is no such time: %(err)s", err=str(err))) from None
    if not 1970 < moment.year < 9999:
        raise ValueError(say("must lie between the years 1971 and 9998"))
    return int(moment.timestamp()) * 1000 + int(((fraction or ".0")[1:] + "000")[:3])


@lru_cache(maxsize=16384)
def text_of(instant: int | None) -> str | None:
    """`2030-01-31T14:00:00Z`, with milliseconds where there are any; None stays None. A timeline that is asked for again
    and again has the same thousands of instants."""
    if instant is None:
        return None
    day, rest = divmod(instant, 86_400_000)
    minutes, milliseconds = divmod(rest, 60_000)
    hour, minute = divmod(minutes, 60)
    second, milliseconds = divmod(milliseconds, 1000)
    whole = f"{_day(day)}T{hour:02d}:{minute:02d}:{second:02d}"
    return f"{whole}.{milliseconds:03d}Z" if milliseconds else f"{whole}Z"


@lru_cache(maxsize=1024)
def _day(number: int) -> str:
    """A list of bookings has thousands of instants, and few days."""
    return (date(1970, 1, 1) + timedelta(number)).isoformat()


def _zone(text: str) -> bool:
    return bool(re.search(r"(Z|[+-]\d\d:\d\d)$", text, re.IGNORECASE))


def _now_or(value: Any) -> int | None:
    return None if value is None or value == "now" else parse(value)


_SCHEMA = {"type": "string", "format": "date-time", "examples": [_EXAMPLE]}
Instant = Annotated[int, BeforeValidator(parse), WithJsonSchema(_SCHEMA)]
# "now" (and null) are None: the moment the request is looked at.
Start = Annotated[
    int | None,
    BeforeValidator(_now_or),
    WithJsonSchema({"anyOf": [_SCHEMA, {"const": "now"}, {"type": "null"}]}),
]

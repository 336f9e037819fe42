"""What is sent to make, change, decide and list bookings."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from controller.api.route import Body, Page
from controller.booking.series import Repeat
from controller.errors import Invalid
from controller.said import say
from controller.scheduling.booking_rules import Booking, effective_start
from controller.scheduling.repeats import MOST, WEEKDAYS, Rule
from controller.times import Instant, Start, parse

Kind = Literal["model", "exclusive"]
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)


def _filled(text: str | None) -> str | None:
    return text or None


Name = Annotated[str | None, Field(max_length=512), AfterValidator(_filled)]
Preset = Annotated[str | None, Field(max_length=200), AfterValidator(_filled)]
Note = Annotated[str, Field(max_length=4000)]
Reason = Annotated[str, Field(max_length=2000)]
People = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Repetition(Body):
    """Repeats by wall clock in `zone`, through changes of the clocks. Either `until` or `count`."""

    every: Literal["day", "week"]
    days: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]] | None = Field(
        None, max_length=7, description="Missing: every day, or the weekday of starts_at"
    )
    until: str | None = Field(
        None, max_length=64, description="The last day (2030-03-31, in `zone`), or an instant: the last start"
    )
    count: int | None = Field(None, ge=1, le=MOST, description="How many bookings")
    zone: str = Field(max_length=64, description="Such as Europe/Berlin")
    on_conflict: Literal["refuse", "skip"] = Field(
        "refuse", description="refuse: all or nothing; skip: all but those that clash with other bookings"
    )

    def repeat(self) -> Repeat:
        """The rule. Raises Invalid."""
        last_day, until = _until(self.until)
        days = frozenset(WEEKDAYS.index(d) for d in self.days or ())
        rule = Rule(self.every, _zone(self.zone), days, self.count, last_day, until)
        if (self.until is None) == (self.count is None):
            raise Invalid.field("repeat.until", say("say either until or count"))
        return Repeat(rule, self.model_dump(exclude_none=True), self.on_conflict == "skip")


class NewReservation(Body):
    channel: str = Field(max_length=200, description="node/channel")
    kind: Kind = "model"
    model: Name = None
    preset: Preset = None
    starts_at: Start = Field(None, description='Missing or "now": at once')
    ends_at: Instant
    note: Note | None = None
    participants: People | None = Field(None, description="Ids or names of people who may call as well")
    holder: str | None = Field(None, max_length=200, description="For somebody else (administrators): id or name")
    repeat: Repetition | None = Field(None, description="The same times of day again and again")
    maintenance: bool = Field(False, description="Administrators: the card is taken for maintenance; kind exclusive")
    clear_conflicts: bool = Field(
        False, description="Maintenance: what is in the way is shortened, ended or cancelled, its holders told `reason`"
    )
    reason: Reason = ""

    def booking(self, now: int) -> tuple[Booking, bool]:
        """As the rules see it, and whether a start that was named counts as now."""
        start, counted = effective_start(self.starts_at, now)
        kind: Kind = "exclusive" if self.maintenance and "kind" not in self.model_fields_set else self.kind
        booking = Booking(kind, self.model, self.preset, start, self.ends_at, self.maintenance)
        if self.clear_conflicts and not self.maintenance:
            raise Invalid.field("clear_conflicts", say("is for maintenance only"))
        return booking, counted and self.starts_at is not None


class Check(NewReservation):
    replaces: str | None = Field(None, max_length=40, description="A booking that would be changed to this")


class ReservationChange(Body):
    version: Version
    channel: str | None = Field(None, max_length=200)
    kind: Kind | None = None
    model: Name = None
    preset: Preset = None
    starts_at: Start = None
    ends_at: Instant | None = None
    note: Note | None = None
    participants: People | None = None
    holder: str | None = Field(None, max_length=200)
    reason: Reason = ""


class Act(Body):
    reason: Reason = Field("", description="Needed to reject, and for somebody else's booking")


class Ending(Act):
    scope: Literal["this", "following", "all"] = Field(
        "this", description="Of a repeated booking: this one, this and those after it, or all that are still to come"
    )


class Extension(Act):
    ends_at: Instant | None = None
    minutes: float | None = Field(None, gt=0, le=527_040, allow_inf_nan=False)
    version: Version | None = None


class Move(Act):
    channel: str | None = Field(None, max_length=200, description="node/channel; missing: the best that fits")
    version: Version | None = None


class Decision(Act):
    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=40)]], Field(min_length=1, max_length=100)]
    approve: bool = Field(description="true: approve them, false: reject them")


class Listing(Page):
    start: Instant | None = Field(None, alias="from")
    end: Instant | None = Field(None, alias="to")
    channel: str | None = Field(None, max_length=200)
    holder: str | None = Field(None, max_length=200, description="Id or name; `me`")
    status: (
        Literal["pending", "approved", "rejected", "expired", "cancelled", "ended_early", "finished", "running"] | None
    ) = None
    series: str | None = Field(None, max_length=40, description="The bookings of one repeated booking")


def _until(text: str | None) -> tuple[date | None, int | None]:
    if text is None:
        return None, None
    try:
        if _DAY.fullmatch(text.strip()):
            return date.fromisoformat(text.strip()), None
        return None, parse(text)
    except ValueError as err:
        raise Invalid.field("repeat.until", say("%(err)s; or a day such as 2030-03-31", err=str(err))) from None


def _zone(name: str) -> ZoneInfo:
    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise Invalid.field(
        "repeat.zone", say("%(name)s is no time zone; name one such as Europe/Berlin or UTC", name=repr(name))
    )


def problem(field: str, code: str, message: str) -> dict[str, Any]:
    """A problem that no rule function knows of, in the same shape."""
    return {"field": field, "code": code, "message": message, "overridable": False, "requestable": False}

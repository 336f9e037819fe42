"""Answers about engines' output."""

from __future__ import annotations

from controller.api.contract.base import Shape, Time


class Launch(Shape):
    """A run of an engine."""

    id: str
    launched_at: Time | None
    model: str | None
    preset: str | None
    reservation: str | None
    ended: bool
    failed: bool
    size: int


class LogPart(Shape):
    file: str
    offset: int
    next_offset: int
    text: str
    ended: bool
    """Nothing will follow"""
    launch: Launch
    line: int | None = None
    """Number of the first line, with `lines=1`"""


class LogLine(Shape):
    offset: int
    line: int


class LogMatches(Shape):
    matches: list[LogLine]
    count: int
    launch: Launch

"""Answers about usage."""

from __future__ import annotations

from pydantic import Field

from controller.api.contract.base import Items, Shape, Time


class Requests(Shape):
    requests: int
    failed: int
    seconds: float
    bytes_in: int
    bytes_out: int
    prompt_tokens: int | None
    """null: no engine has said any"""
    completion_tokens: int | None
    first_byte_seconds: float | None


class UsageRow(Requests):
    user_id: str | None
    user: str | None
    channel: str
    model: str
    key_id: str | None = None
    """With `by=key`, as `key`"""
    key: str | None = None


class Usage(Items[UsageRow]):
    from_: Time = Field(alias="from")
    to: Time


class ChannelHours(Shape):
    """Hours by what channels did; `fallback` is a part of the others."""

    reserved: float
    loading: float
    served: float
    failed: float
    idle: float
    unknown: float
    fallback: float


class DayHours(ChannelHours):
    channel: str
    day: str


class PersonSums(Requests):
    user_id: str
    user: str | None
    reserved: float
    """Hours"""


class ModelSums(Requests):
    model: str


class Sums(ChannelHours):
    """Hours and requests; `failed` are hours."""

    requests: int
    failed_requests: int
    seconds: float
    bytes_in: int
    bytes_out: int
    prompt_tokens: int | None
    completion_tokens: int | None
    first_byte_seconds: float | None


class ChannelSums(Sums):
    channel: str


class UsageSummary(Shape):
    from_: Time = Field(alias="from")
    to: Time
    zone: str
    hours: list[DayHours]
    people: list[PersonSums]
    models: list[ModelSums]
    channels: list[ChannelSums]
    totals: Sums

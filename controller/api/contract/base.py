"""What all answers are made of. A member with a default may be missing; every other one is always there."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

Item = TypeVar("Item")
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Object = dict[str, Any]


class Shape(BaseModel):
    """A part of an answer. Answers may gain members; none is taken away or changes its type."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class Items(Shape, Generic[Item]):
    """A page of a list."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # a parametrised class has no source to read them from
    items: list[Item]
    next: str | None = Field(description="`cursor` of the next page; null: this was the last one")


def list_of(item: type[Shape]) -> type[Items[Any]]:
    """A page of these, under a name of its own."""
    made: type[Items[Any]] = create_model(f"{item.__name__}List", __base__=Items[item])  # type: ignore[valid-type]
    return made


class Target(Shape):
    """A model as it is loaded."""

    model: str
    preset: str | None
    """null: the model with the engine's defaults"""


class Hint(Shape):
    """Good to know; no reason for a refusal."""

    code: str
    message: str


class Problem(Shape):
    """A rule that is broken."""

    field: str
    """Of the body"""
    code: str
    message: str
    overridable: bool
    """The caller may do it all the same"""
    requestable: bool
    """An approver could allow it"""


class Slot(Shape):
    """A free window, and why it is where it stands in the list."""

    channel: str
    starts_at: Time
    ends_at: Time
    free_until: Time | None
    """null: no booking after it"""
    reload: bool
    """Whether something has to be loaded for it"""
    load_seconds: float | None
    exceeds_gpu_memory: bool
    incomplete: bool
    """Whether files of the model are missing there"""
    online: bool
    why: str


class Fault(Shape):
    """`details` names the fields that are wrong, and what is wrong with each."""

    code: str
    message: str
    details: Object

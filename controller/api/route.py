"""The shape of a call: a table of routes that the web server, the checks of input and the OpenAPI document share.

A handler gets a `Call` (who, when, the checked body and query) and returns plain data; `Answer` says another status.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.api import faults
from controller.context import Context
from controller.errors import BadRequest, Forbidden, Invalid
from controller.rights import Actor, may
from controller.said import fault, say

MAX_LIMIT = 1000
Model = TypeVar("Model", bound=BaseModel)


class Body(BaseModel):
    """A JSON body: what is not known is refused, nothing is guessed (no "3" for 3)."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    """A query string; parameters that nobody knows are passed over, empty ones count as not given."""

    model_config = ConfigDict(extra="ignore")


class Page(Query):
    """What every list takes."""

    limit: int = Field(100, ge=1, le=MAX_LIMIT, description="Items a page")
    cursor: str | None = Field(None, max_length=2000, description="`next` of the page before")


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer with another status than the route's."""

    data: Any
    status: int


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer as it goes out, with its ETag: made once, sent to many."""

    body: bytes
    etag: str


def ready(data: Any) -> Ready:
    """`data` as JSON and its tag."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return Ready(body, hashlib.sha1(body, usedforsecurity=False).hexdigest())


@dataclass(slots=True)
class Call:
    """One request, already authenticated and checked. `now` is the same instant throughout."""

    ctx: Context
    actor: Actor
    now: int
    args: Mapping[str, str]
    _body: BaseModel | None = None
    _query: BaseModel | None = None

    def body(self, model: type[Model]) -> Model:
        assert isinstance(self._body, model)
        return self._body

    def query(self, model: type[Model]) -> Model:
        assert isinstance(self._query, model)
        return self._query

    def need(self, action: str, subject: Any = None) -> None:
        """Raises Forbidden with the reason unless the actor may."""
        verdict = may(self.actor, action, subject)
        if not verdict:
            raise Forbidden(verdict.why)

    def may(self, action: str, subject: Any = None) -> bool:
        return bool(may(self.actor, action, subject))


Handler = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is below /api/v1 in Flask's notation. `answers` describes other statuses that the call knows."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    status: int = 200
    public: bool = False
    action: str | None = None  # needed before anything else is looked at (rights without a subject)
    answers: Mapping[int, str] = field(default_factory=dict)
    media: tuple[str, ...] = ("application/json",)  # what a good answer may be


def parse_body(model: type[BaseModel], raw: bytes) -> BaseModel:
    """The checked body. Raises BadRequest (not JSON), Invalid (names the fields)."""
    if not raw.strip():
        data: Any = {}
    else:
        try:
            data = json.loads(raw, parse_constant=_no_constant)
        except (ValueError, RecursionError) as err:
            raise BadRequest(say("the body is not JSON: %(what)s", what=str(err)[:200])) from None
    if not isinstance(data, dict):
        raise BadRequest(say("the body must be a JSON object"))
    _refuse_odd(data, "")
    return _validated(model, data)


def parse_query(model: type[BaseModel], values: Iterable[tuple[str, str]]) -> BaseModel:
    """The checked query string. Raises Invalid."""
    data: dict[str, str] = {}
    for name, value in values:
        if value != "" and name in _names(model):
            data.setdefault(name, value)
    _refuse_odd(data, "")
    return _validated(model, data)


def cursor(*parts: Any) -> str:
    """An opaque place in a list."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def place(text: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """What `cursor` was made of; None stays None. Raises Invalid when it is not one of ours."""
    if text is None:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if _fits(parts, kinds):
            _refuse_odd(parts, "cursor")
            return tuple(parts)
    except (ValueError, binascii.Error, RecursionError):
        pass
    raise Invalid.field("cursor", say("is not a place in this list; take `next` of the page before"))


def _fits(parts: Any, kinds: tuple[type, ...]) -> bool:
    if not isinstance(parts, list) or len(parts) != len(kinds):
        return False
    typed = all(type(p) is k for p, k in zip(parts, kinds, strict=True))
    return typed and all(not isinstance(p, int) or abs(p) < 2**63 for p in parts)


def listed(rows: list[Any], limit: int, item: Callable[[Any], Any], at: Callable[[Any], str]) -> dict[str, Any]:
    """`{items, next}` of rows that were asked for with one more than `limit`; `at` makes a row's cursor."""
    more = len(rows) > limit
    shown = rows[:limit]
    return {"items": [item(row) for row in shown], "next": at(shown[-1]) if more else None}


def _validated(model: type[BaseModel], data: dict[str, Any]) -> BaseModel:
    try:
        return model.model_validate(data)
    except ValidationError as err:
        details: dict[str, str] = {}
        for found in err.errors(include_url=False, include_input=False):
            details.setdefault(_path(found["loc"]), faults.words(cast("dict[str, Any]", found)))
        first = next(iter(details))
        raise Invalid(fault(first, details[first]), details=details) from None


def _names(model: type[BaseModel]) -> set[str]:
    return {f.alias or name for name, f in model.model_fields.items()}


def _path(loc: tuple[int | str, ...]) -> str:
    """`args.0` of a place in the body; pydantic's own words for the arms of a union are left out."""
    parts = [str(p) for p in loc if isinstance(p, int) or _written(p)]
    return ".".join(parts)[:200] or "body"


def _written(part: str) -> bool:
    """Whether a part of a place is a name somebody wrote (a union's arm is `list[str]`, `function-after[…]`)."""
    return not any(c in part for c in "[]()") and part not in ("str", "int", "float", "bool", "constrained-str")


def _refuse_odd(value: Any, where: str) -> None:
    """NUL and half surrogates are no text: databases and JSON readers disagree about them."""
    if isinstance(value, str):
        if "\x00" in value:
            raise Invalid.field(where or "body", say("must not hold NUL characters"))
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise Invalid.field(where or "body", say("is not valid Unicode (half of a surrogate pair)"))
    elif isinstance(value, dict):
        for name, inner in value.items():
            _refuse_odd(name, "body")
            _refuse_odd(inner, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_odd(inner, f"{where}.{index}" if where else str(index))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")

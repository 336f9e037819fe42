"""The OpenAPI document, made from the same table of routes that the server answers by (`slotserve openapi` prints it).

Bodies and query strings are described by the classes that check them, answers by controller/api/contract, which the
tests hold every answer against.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from controller.api.contract import ANSWERS
from controller.api.contract.base import Fault, Problem, Shape, Slot
from controller.api.contract.bodies import BODIES
from controller.api.contract.bookings import BookingInTheWay
from controller.api.contract.example import example
from controller.api.openapi_words import ABOUT, ALWAYS, COMMON, FAULTS, PLACE_EXAMPLES, PLACES, SECURITY, TAG_OF, TAGS
from controller.api.route import Call, Route

REFERENCE = "#/components/schemas/{model}"
_PART = re.compile(r"<(?:(\w+):)?(\w+)>")
_SAFE = ("GET", "HEAD")


class Error(Shape):
    """What every refusal looks like; bookings add what is in the way, where they would fit and which rules they break."""

    error: Fault
    conflicts: list[BookingInTheWay] | None = None
    suggestions: list[Slot] | None = None
    problems: list[Problem] | None = None


class Health(Shape):
    status: str
    problems: list[str] | None = None
    warnings: list[str] | None = None


def routes(table: Iterable[Route]) -> tuple[Route, ...]:
    """The route of the document itself."""
    known = tuple(table)

    @cache
    def made() -> dict[str, Any]:
        return document(known)

    def serve(_call: Call) -> dict[str, Any]:
        return made()

    return (Route("GET", "/openapi.json", serve, "This document", public=True),)


def document(table: Iterable[Route], *, closed: bool = False) -> dict[str, Any]:
    """OpenAPI 3.1. `closed`: answers may not have members that are not described (for tests)."""
    known = tuple(table)
    schemas = _answer_schemas(closed)
    paths: dict[str, Any] = {}
    for route in (*known, *_OWN):
        path = _PART.sub(r"{\2}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, schemas)
    _link(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SlotServe", "version": "1", "description": ABOUT},
        "servers": [{"url": "/api/v1"}],
        "security": [{"key": []}, {"session": [], "csrf": []}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "components": {"securitySchemes": SECURITY, "schemas": dict(sorted(schemas.items()))},
        "paths": paths,
    }


def _operation(route: Route, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    tag = path.split("/")[1].split(".")[0]
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', path)}".rstrip("_"),
        "summary": route.summary,
        "tags": [TAG_OF.get(tag, tag)],
        "parameters": [*_places(route), *(_query(route.query, schemas) if route.query is not None else ())],
        "responses": _responses(route, schemas),
    }
    if route.public:
        operation["security"] = []
    elif route.method in _SAFE:
        operation["security"] = [{"key": []}, {"session": []}]
    if route.body is not None:
        needed = any(f.is_required() for f in route.body.model_fields.values())
        content = {"schema": {"$ref": REFERENCE.format(model=_body_schema(route.body, schemas))}}
        if route.body.__name__ in BODIES:
            content["example"] = BODIES[route.body.__name__]
        operation["requestBody"] = {"required": needed, "content": {"application/json": content}}
    return operation


def _link(paths: dict[str, Any]) -> None:
    """Where the id of what was made or listed leads: `/keys` to `/keys/{id}` and below."""
    for path, methods in paths.items():
        below = {
            operation["operationId"]: operation["operationId"]
            for place, others in paths.items()
            if re.fullmatch(re.escape(path) + r"/\{id\}(/\w+)?", place)
            for operation in others.values()
        }
        for method, status, where in (("post", "201", "/id"), ("get", "200", "/items/0/id")):
            if below and status in methods.get(method, {}).get("responses", {}):
                methods[method]["responses"][status]["links"] = {
                    name: {"operationId": to, "parameters": {"id": f"$response.body#{where}"}}
                    for name, to in below.items()
                }


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    statuses = dict(COMMON) if not route.public else {}
    if route.body is not None:
        statuses |= {413: "Larger than 1 MiB", 415: "Not JSON"}
    if route.path not in _QUIET:
        statuses |= ALWAYS
    statuses.update(route.answers)
    made = {route.status: _good(route, schemas)}
    if route.method in _SAFE and route.path not in _QUIET:
        made[304] = {"description": "As it was (If-None-Match)"}
    for status, words in statuses.items():
        made[status] = {"description": words, "content": {"application/json": _bad(status)}}
    return {str(status): made[status] for status in sorted(made)}


def _good(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.status == 204:
        return {"description": "Done"}
    content: dict[str, Any] = {}
    for media in route.media:
        schema = _answer(route) if media == "application/json" else {"type": "string"}
        content[media] = {"schema": schema}
        if media == "application/json" and route.path != "/openapi.json":
            content[media]["example"] = example(schema, schemas)
    return {"description": route.summary, "content": content}


def _answer(route: Route) -> dict[str, Any]:
    answer = _OWN_ANSWERS.get(route.path) or ANSWERS.get((route.method, route.path), {})
    if not answer or answer is str:
        return {"type": "string"} if answer is str else {"type": "object"}
    references = [{"$ref": REFERENCE.format(model=part.__name__)} for part in _parts(answer)]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _bad(status: int) -> dict[str, Any]:
    code, message, details = FAULTS[status]
    return {
        "schema": {"$ref": REFERENCE.format(model="Error")},
        "example": {"error": {"code": code, "message": message, "details": details}},
    }


def _places(route: Route) -> list[dict[str, Any]]:
    found = []
    for part in _PART.finditer(route.path):
        words = "Its id or name" if route.path.startswith("/users/") else PLACES[part[2]]
        place = {"name": part[2], "in": "path", "required": True, "description": words}
        if (value := PLACE_EXAMPLES.get((route.path.split("/")[1], part[2]))) is not None:
            place["example"] = value
        found.append({**place, "schema": {"type": "string", "minLength": 1}})
    return found


def _query(model: type[BaseModel], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(by_alias=True, ref_template=REFERENCE)
    _add(schemas, schema.pop("$defs", {}))
    found = []
    for name, shape in schema["properties"].items():
        parameter = {"name": name, "in": "query", "required": name in schema.get("required", [])}
        if "description" in shape:
            parameter["description"] = shape.pop("description")
        found.append({**parameter, "schema": _given(_plain(shape))})
    return found


def _given(shape: dict[str, Any]) -> dict[str, Any]:
    """A query string has no null: what is left out is null."""
    some = [one for one in shape.get("anyOf", ()) if one != {"type": "null"}]
    rest = {k: v for k, v in shape.items() if k != "anyOf" and (k, v) != ("default", None)}
    return {**some[0], **rest} if len(some) == 1 else {**rest, "anyOf": some} if some else rest


def _body_schema(model: type[BaseModel], schemas: dict[str, Any]) -> str:
    schema = model.model_json_schema(ref_template=REFERENCE)
    _add(schemas, {name: _plain(part) for name, part in schema.pop("$defs", {}).items()})
    _add(schemas, {model.__name__: _plain(schema)})
    return model.__name__


def _answer_schemas(closed: bool) -> dict[str, Any]:
    answers = [*(a for a in ANSWERS.values() if a is not None and a is not str), *_OWN_ANSWERS.values(), Error]
    models = list(dict.fromkeys(part for answer in answers for part in _parts(answer)))
    _, made = models_json_schema([(m, "validation") for m in models], ref_template=REFERENCE)
    return {name: _told(_plain(schema), closed) for name, schema in made["$defs"].items()}


def _parts(answer: Any) -> tuple[Any, ...]:
    """The arms of a union, or the thing itself."""
    return (answer,) if isinstance(answer, type) else get_args(answer)


def _plain(schema: Any) -> Any:
    """Without pydantic's titles."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
    return {k: v if k in ("default", "examples", "enum", "const") else _plain(v) for k, v in kept.items()}


def _told(schema: dict[str, Any], closed: bool) -> dict[str, Any]:
    """As an answer: no defaults; open to members that come with later versions."""
    if "properties" not in schema:
        return schema
    properties = {n: {k: v for k, v in s.items() if k != "default"} for n, s in schema["properties"].items()}
    kept = {k: v for k, v in schema.items() if k != "additionalProperties" or closed}
    return {**kept, "properties": properties}


def _add(schemas: dict[str, Any], more: dict[str, Any]) -> None:
    for name, schema in more.items():
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"two different things are called {name} in the OpenAPI document; rename one")


def _nobody(_call: Call) -> None:
    """For calls that are answered elsewhere and only described here."""


_QUIET = ("/openapi.json", "/healthz", "/readyz")
_OWN = (
    Route("GET", "/healthz", _nobody, "The process answers", public=True),
    Route("GET", "/readyz", _nobody, "It can do its work: database, migrations, leader, planner", public=True),
    Route("GET", "/openapi.json", _nobody, "This document", public=True),
)
_OWN_ANSWERS: dict[str, Any] = {"/healthz": Health, "/readyz": Health}

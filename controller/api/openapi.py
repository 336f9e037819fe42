"""The OpenAPI document, made from the same table of routes that the server answers by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import BaseModel

from controller.api.route import Call, Route

_PART = re.compile(r"<(?:(\w+):)?(\w+)>")
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
        },
        "conflicts": {"type": "array", "items": {"type": "object"}},
        "suggestions": {"type": "array", "items": {"type": "object"}},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}
_COMMON = {400: "Cannot be read", 401: "Who are you?", 403: "Not allowed", 422: "Bad input; `details` names the field"}


def routes(table: Iterable[Route]) -> tuple[Route, ...]:
    """The route of the document itself."""
    known = tuple(table)

    @cache
    def made() -> dict[str, Any]:
        return document(known)

    def serve(_call: Call) -> dict[str, Any]:
        return made()

    return (Route("GET", "/openapi.json", serve, "This document", public=True),)


def document(table: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for route in table:
        path = _PART.sub(r"{\2}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SlotServe", "version": "1", "description": "Time slots for shared GPU machines"},
        "servers": [{"url": "/api/v1"}],
        "security": [{"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key (sk-ss-…)"}},
            "schemas": schemas,
        },
        "paths": paths,
    }


def _operation(route: Route, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": m[2], "in": "path", "required": True, "schema": {"type": "string"}} for m in _PART.finditer(route.path)
    ]
    if route.query is not None:
        parameters += _query(route.query)
    statuses = dict(_COMMON) if not route.public else {}
    if route.body is not None:
        statuses[415] = "Not JSON"
    statuses.update(route.answers)
    answers: dict[str, Any] = {str(route.status): _good(route)}
    for status, words in sorted(statuses.items()):
        answers[str(status)] = {
            "description": words,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', path)}".rstrip("_"),
        "summary": route.summary,
        "tags": [path.split("/")[1].split(".")[0]],
        "parameters": parameters,
        "responses": answers,
    }
    if route.public:
        operation["security"] = []
    if route.body is not None:
        needed = any(f.is_required() for f in route.body.model_fields.values())
        reference = {"$ref": f"#/components/schemas/{_schema(route.body, schemas)}"}
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": reference}}}
    return operation


def _good(route: Route) -> dict[str, Any]:
    if route.status == 204:
        return {"description": "Done"}
    kinds = {media: {"schema": {"type": "object" if media == "application/json" else "string"}} for media in route.media}
    return {"description": route.summary, "content": kinds}


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(by_alias=True)
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", []), "schema": shape}
        for name, shape in schema["properties"].items()
    ]


def _schema(model: type[BaseModel], schemas: dict[str, Any]) -> str:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema
    return model.__name__

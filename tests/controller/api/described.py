"""Holds answers against the OpenAPI document: an undocumented status, kind of content or member is a failure.

Every answer that the tests of the API get goes through here (`World.call`), so the document cannot tell stories.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema_rs
from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from controller.api import ROUTES, openapi

BASE = "/api/v1"


@cache
def document() -> dict[str, Any]:
    return openapi.document(ROUTES, closed=True)


@cache
def validator(name: str) -> Any:
    """Of a schema by its name; or of what an answer with several shapes may be ("A|B")."""
    arms = [{"$ref": openapi.REFERENCE.format(model=one)} for one in name.split("|")]
    schema = arms[0] if len(arms) == 1 else {"anyOf": arms}
    return jsonschema_rs.Draft202012Validator({**schema, **_components()}, validate_formats=True)


def _components() -> dict[str, Any]:
    return {"components": document()["components"]}


def faults(schema: dict[str, Any], data: Any) -> list[str]:
    """What is wrong with a part of an answer, with the place of each."""
    arms = schema.get("anyOf", [schema])
    if not all("$ref" in arm for arm in arms):
        return [] if schema.get("type") == "object" and isinstance(data, dict) else [f"{schema} is not {data!r:.100}"]
    names = [arm["$ref"].rsplit("/", 1)[1] for arm in arms]
    found = list(validator("|".join(names)).iter_errors(data))
    if len(names) > 1 and found:
        found = min((list(validator(name).iter_errors(data)) for name in names), key=len)
    return [f"{'.'.join(map(str, fault.instance_path))}: {_told(fault)}" for fault in found]


def check(app: Flask, method: str, path: str, answer: TestResponse) -> None:
    """Raises AssertionError where the answer is not one that the document knows."""
    if not path.startswith(BASE) or method == "HEAD":
        return
    operation = _operation(app, method, path.partition("?")[0])
    said = f"{method} {path} answered {answer.status_code}"
    if operation is None:
        assert answer.status_code >= 300, f"{said}, and is not in the document"
        if answer.status_code >= 400:
            assert not faults({"$ref": openapi.REFERENCE.format(model="Error")}, answer.get_json()), said
        return
    known = operation["responses"].get(str(answer.status_code))
    assert known is not None, f"{said}, which the document does not know: {answer.get_data(as_text=True)[:300]}"
    if "content" not in known:
        assert not answer.get_data(), f"{said} with a body"
        return
    content = known["content"].get(answer.mimetype)
    assert content is not None, f"{said} with {answer.mimetype}, which the document does not know"
    if answer.mimetype == "application/json":
        wrong = faults(content["schema"], answer.get_json())
        assert not wrong, f"{said} with another shape than the document tells: {'; '.join(wrong[:5])}"


def _operation(app: Flask, method: str, path: str) -> dict[str, Any] | None:
    try:
        rule, _ = app.url_map.bind("controller").match(path, method, return_rule=True)
    except HTTPException:
        return None
    place = openapi._PART.sub(r"{\2}", rule.rule.removeprefix(BASE))
    operation: dict[str, Any] | None = document()["paths"].get(place, {}).get(method.lower())
    return operation


def _told(fault: Any) -> str:
    return str(fault.message)[:300]

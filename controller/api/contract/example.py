"""A good example of a schema, made of the names of its members: so that every answer in the document has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.api.contract.bodies import BY_TYPE, WORDS

_TIME = "2030-01-31T14:00:00Z"
_PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": False, "null": None, "object": {}}


def example(schema: Mapping[str, Any], schemas: Mapping[str, Any], owner: str = "", name: str = "") -> Any:
    """A value that `schema` takes. `schemas`: what its references name; `owner`, `name`: whose member it is."""
    for value in (BY_TYPE.get((owner, name), _Nothing), WORDS.get(name, _Nothing)):
        if value is not _Nothing and _fits(value, schema):
            return value
    if "$ref" in schema:
        called = schema["$ref"].rsplit("/", 1)[1]
        return example(schemas[called], schemas, called, name)
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], schemas, owner, name)
    if "properties" in schema:
        called = owner or str(schema.get("title", ""))
        needed = {*schema.get("required", ()), *WORDS}  # what is there in some cases only would tell a wrong story
        return {n: example(s, schemas, called, n) for n, s in schema["properties"].items() if n in needed}
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), schemas, owner, "")] if "items" in schema else []
    return _TIME if schema.get("format") == "date-time" else _PLAIN.get(str(schema.get("type")), {})


class _Nothing:
    """No value of that name (null is one)."""


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value by its name is of the kind that is asked for here."""
    if "anyOf" in schema:
        return any(_fits(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    if schema.get("format") == "date-time":
        return isinstance(value, str) and value.endswith("Z")
    kinds = {"string": str, "integer": int, "boolean": bool, "null": type(None)}
    if schema.get("type") == "array":
        plain = schema.get("items", {}).get("type") == "string" or "enum" in schema.get("items", {})
        return isinstance(value, list) and (plain or not value)
    if schema.get("type") == "number":
        return type(value) in (int, float)
    return type(value) is kinds.get(str(schema.get("type")))

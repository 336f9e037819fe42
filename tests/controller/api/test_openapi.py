"""The document lists every route that the server has, and only those; and tells everything about each."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from controller.api import ROUTES, openapi
from controller.api.contract import ANSWERS
from controller.api.contract.bodies import BODIES
from controller.api.route import parse_body
from tests.controller.api import described
from tests.controller.api.conftest import World

OPERATIONS = [
    pytest.param(operation, id=operation["operationId"])
    for methods in described.document()["paths"].values()
    for operation in methods.values()
]


def test_document_and_routes_agree(w: World) -> None:
    document = w.call("GET", "/openapi.json", who=None).get_json()
    assert document["openapi"].startswith("3.1")
    documented = {(m.upper(), p) for p, methods in document["paths"].items() for m in methods}
    served = {
        (m, re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule).removeprefix("/api/v1"))
        for rule in w.app.url_map.iter_rules()
        if rule.endpoint.startswith("api.")
        for m in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert documented - {("GET", "/healthz"), ("GET", "/readyz")} == served
    body = document["paths"]["/reservations"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]
    assert {"channel", "ends_at"} <= set(schema["required"])
    assert schema["properties"]["ends_at"]["format"] == "date-time"
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references <= document["components"]["schemas"].keys()
    identifiers = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(identifiers) == len(set(identifiers))


def test_every_call_says_what_it_answers() -> None:
    """A new call needs a line in ANSWERS of controller/api/contract, and an example of its body in bodies.py."""
    served = {(r.method, r.path) for r in ROUTES}
    assert served == ANSWERS.keys()
    assert {r.body.__name__ for r in ROUTES if r.body is not None} == BODIES.keys()
    for route in ROUTES:
        assert (ANSWERS[route.method, route.path] is None) == (route.status == 204), (route.method, route.path)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_described_in_full(operation: dict[str, Any]) -> None:
    document = described.document()
    assert operation["summary"]
    assert set(operation["tags"]) <= {tag["name"] for tag in document["tags"]}
    for parameter in operation["parameters"]:
        assert parameter["schema"], parameter["name"]
        assert "null" not in json.dumps(parameter["schema"].get("anyOf", "")), "a query string has no null"
    good = [status for status in operation["responses"] if status.startswith("2")]
    assert len(good) == 1
    for status, answer in operation["responses"].items():
        assert answer["description"]
        for media, content in answer.get("content", {}).items():
            if media != "application/json" or operation["operationId"] == "get_openapi_json":
                continue
            assert content["schema"] != {"type": "object"}, f"{status} says nothing about its body"
            assert not described.faults(content["schema"], content["example"]), status


@pytest.mark.parametrize("route", [r for r in ROUTES if r.body is not None], ids=lambda r: f"{r.method} {r.path}")
def test_examples_of_bodies_are_taken(route: Any) -> None:
    parse_body(route.body, json.dumps(BODIES[route.body.__name__]).encode())


def test_ids_lead_on() -> None:
    made = described.document()["paths"]["/reservations"]["post"]["responses"]["201"]["links"]
    assert {"get_reservations_id", "post_reservations_id_cancel"} <= made.keys()
    assert made["get_reservations_id"]["parameters"] == {"id": "$response.body#/id"}


def test_no_two_things_of_one_name() -> None:
    with pytest.raises(ValueError, match="two different things"):
        openapi._add({"A": {"type": "object"}}, {"A": {"type": "string"}})


def test_no_limit_may_be_said_by_zero(w: World) -> None:
    """Found by schemathesis: 0 is taken where the document did not say so."""
    change = described.document()["components"]["schemas"]["ChannelChange"]["properties"]["policy"]["anyOf"][0]
    for name in ("max_concurrent", "max_concurrent_per_key", "max_hours"):
        assert change["properties"][name]["anyOf"][0]["minimum"] == 0
        assert w.good("PATCH", "/channels/n1/a", {"policy": {name: 0}})["policy"][name] is None

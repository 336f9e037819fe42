"""The document lists every route that the server has, and only those."""

from __future__ import annotations

import re

from tests.controller.api.conftest import World


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
    assert documented | {("GET", "/openapi.json")} == served
    body = document["paths"]["/reservations"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]
    assert {"channel", "ends_at"} <= set(schema["required"])
    assert schema["properties"]["ends_at"]["format"] == "date-time"
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references <= document["components"]["schemas"].keys()
    identifiers = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(identifiers) == len(set(identifiers))

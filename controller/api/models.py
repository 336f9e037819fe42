"""The catalogue of models: where they lie, what they need, how long they take to load, which engines can load them."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from sqlalchemy.orm import Session

from agent.engines import choose
from controller.api.route import Call, Page, Route, cursor, listed, place
from controller.booking.view import speed
from controller.errors import NotFound
from controller.said import say
from controller.store import channels, models
from controller.store.launches import read_catalogue
from controller.store.models import Entry, exceeds
from controller.times import text_of


def list_models(call: Call) -> dict[str, Any]:
    page = call.query(Page)
    after = place(page.cursor, str)
    with call.ctx.store.read() as session:
        rows = models.page(session, page.limit + 1, after[0] if after else None)
        shapes = _shapes(session, call, rows[: page.limit])
    return {"items": shapes, "next": listed(rows, page.limit, lambda r: r, lambda r: cursor(r.name))["next"]}


def one_model(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        entry = models.find(session, call.args["name"])
        if entry is None:
            raise NotFound(say("there is no model %(model)s", model=call.args["name"]))
        return _shapes(session, call, [entry])[0]


def _shapes(session: Session, call: Call, entries: list[Entry]) -> list[dict[str, Any]]:
    node_ids = sorted({node.id for entry in entries for _, node in entry.held})
    catalogue = read_catalogue(session, node_ids, [entry.name for entry in entries])
    rows = channels.of_nodes(session, node_ids)
    shapes = []
    for entry in entries:
        held = {node.id: model for model, node in entry.held}
        there = [(c, n, held[n.id]) for c, n in rows if n.id in held and c.name in held[n.id].channels]
        where = {f"{n.name}/{c.name}": (c, n, m) for c, n, m in there}
        engines: dict[str, list[str]] = {}
        for name, (c, _, m) in where.items():
            engines[name] = [e for e in c.engines if choose([e], m.format) is not None]
        shapes.append(
            {
                "name": entry.name,
                "size_bytes": entry.size_bytes,
                "format": entry.held[0][0].format,
                "architecture": _known(entry, "architecture"),
                "context_length": _known(entry, "context_length"),
                "quantisation": _known(entry, "quantisation"),
                "parameters": _known(entry, "parameters"),
                "projector": PurePath(path).name if (path := _known(entry, "projector")) else None,
                "incomplete": all(m.incomplete for m, _ in entry.held),
                "detail": next((m.detail for m, _ in entry.held if m.detail), None),
                "nodes": [node.name for _, node in entry.held],
                "channels": list(where),
                "exceeds_gpu_memory": {name: exceeds(m.size_bytes, c) for name, (c, _, m) in where.items()},
                "load_seconds": {
                    name: catalogue.load_seconds(n.id, entry.name, None, speed(call.ctx.settings, n))
                    for name, (_, n, _) in where.items()
                },
                "engines": list(dict.fromkeys(e for several in engines.values() for e in several)),
                "engines_by_channel": engines,
                "copies": [
                    {
                        "node": node.name,
                        "size_bytes": m.size_bytes,
                        "format": m.format,
                        "incomplete": m.incomplete,
                        "detail": m.detail or None,
                        "seen_at": text_of(m.seen_at),
                        "rotating_disk": m.rotating_disk,
                        **({"path": m.path} if call.may("node.manage") else {}),
                    }
                    for m, node in entry.held
                ],
            }
        )
    return shapes


def _known(entry: Entry, field: str) -> Any:
    """What the first copy that says it says; None where none does."""
    return next((value for m, _ in entry.held if (value := getattr(m, field))), None)


ROUTES = (
    Route("GET", "/models", list_models, "Models, by name", query=Page),
    Route("GET", "/models/<path:name>", one_model, "A model; its name as it is, slashes too",
          answers={404: "No such model"}),
)  # fmt: skip

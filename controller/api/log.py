"""An engine's own output, by offset: of what runs (or ran last), or of the failed run before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Response
from pydantic import Field

from controller.api import channels as channel_routes
from controller.api.route import Call, Query, Route
from controller.context import EngineLogs
from controller.errors import Forbidden, NotFound
from controller.rights import may
from controller.said import say
from controller.store import reservations
from controller.times import text_of

MAX_BYTES = 1 << 20


class Run(Query):
    launch: str = Field(
        "current", max_length=64, pattern=r"^[A-Za-z0-9._-]+$", description="current, previous, or an id"
    )


class Part(Run):
    offset: int = Field(0, ge=-(2**53), le=2**53, description="Below 0: so many bytes before the end")
    limit: int = Field(65_536, ge=1, le=MAX_BYTES, description="Bytes")
    lines: bool = Field(False, description="Also `line`: the number of the first line of the answer")


class Search(Run):
    q: str = Field(min_length=1, max_length=200, description="A text that a line holds, whatever its case")
    limit: int = Field(1000, ge=1, le=5000, description="Lines")


def read(call: Call) -> dict[str, Any]:
    part = call.query(Part)
    logs, node, name, chosen = _chosen(call, part.launch)
    found = logs.read(node, name, part.offset, part.limit, chosen["id"])
    if found is None:
        raise NotFound(say("that run's output is no longer kept"))
    line = {"line": logs.line_at(node, name, chosen["id"], found["offset"])} if part.lines else {}
    return {**found, **line, "launch": _shape(chosen)}


def find(call: Call) -> dict[str, Any]:
    query = call.query(Search)
    logs, node, name, chosen = _chosen(call, query.launch)
    places, count = logs.find(node, name, chosen["id"], query.q, query.limit)
    matches = [{"offset": offset, "line": line} for offset, line in places]
    return {"matches": matches, "count": count, "launch": _shape(chosen)}


def download(call: Call) -> Response:
    logs, node, name, chosen = _chosen(call, call.query(Run).launch)

    def pieces() -> Iterator[bytes]:
        at = 0
        while True:
            found = logs.read(node, name, at, MAX_BYTES, chosen["id"])
            if found is None or (found["next_offset"] <= at and not found["text"]):
                return
            yield found["text"].encode()
            at = found["next_offset"]

    answer = Response(pieces(), mimetype="text/plain")
    answer.headers["Content-Disposition"] = f'attachment; filename="{node}-{name}-{chosen["id"]}.log"'
    return answer


def launches(call: Call) -> dict[str, Any]:
    logs = call.ctx.logs
    node, name = _names(call)
    return {"items": [_shape(one) for one in (logs.launches(node, name) if logs else [])], "next": None}


def _names(call: Call) -> tuple[str, str]:
    with call.ctx.store.read() as session:
        channel, node = channel_routes.found(session, call)
        return node.name, channel.name


def _chosen(call: Call, wanted: str) -> tuple[EngineLogs, str, str, dict[str, Any]]:
    """The run that is asked for, if the caller may read it. Raises NotFound, Forbidden."""
    logs = call.ctx.logs
    node, name = _names(call)
    chosen = _choose(logs.launches(node, name), wanted) if logs is not None else None
    if logs is None or chosen is None:
        raise NotFound(
            say("there is no output of the failed run before yet")
            if wanted == "previous"
            else say("there is no output of that run yet")
        )
    _allowed(call, chosen)
    return logs, node, name, chosen


def _choose(launches: list[dict[str, Any]], wanted: str) -> dict[str, Any] | None:
    if wanted == "current":
        return launches[0] if launches else None
    if wanted == "previous":
        return next((one for one in launches[1:] if one["failed"]), None)
    return next((one for one in launches if one["id"] == wanted), None)


def _allowed(call: Call, launch: dict[str, Any]) -> None:
    if not launch.get("reservation_id"):
        call.need("channel.log", None)
        return
    with call.ctx.store.read() as session:
        booking = reservations.get(session, launch["reservation_id"])
    if booking is None:
        verdict = may(call.actor, "node.manage")
        if not verdict:
            raise Forbidden(say("this output belongs to a reservation that is not known any more"))
        return
    call.need("channel.log", booking)


def _shape(launch: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": launch["id"],
        "launched_at": text_of(launch["launched_at"]),
        "model": launch["model"],
        "preset": launch["preset"],
        "reservation": launch["reservation_id"] or None,
        "ended": launch["ended"],
        "failed": launch["failed"],
        "size": launch["size"],
    }


_PATH = "/channels/<node>/<name>/log"
ROUTES = (
    Route("GET", _PATH, read, "The engine's output from an offset", query=Part,
          answers={404: "No such channel, or no output"}),
    Route("GET", f"{_PATH}/find", find, "The lines of a run that hold a text", query=Search,
          answers={404: "No such channel, or no output"}),
    Route("GET", f"{_PATH}/file", download, "A run's whole output as a file", query=Run, media=("text/plain",),
          answers={404: "No such channel, or no output"}),
    Route("GET", f"{_PATH}/launches", launches, "The runs whose output is kept, newest first",
          answers={404: "No such channel"}),
)  # fmt: skip

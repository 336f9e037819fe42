"""An engine's own output, by offset: of what runs (or ran last), or of the failed run before."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller.api import channels as channel_routes
from controller.api.route import Call, Query, Route
from controller.errors import Forbidden, NotFound
from controller.rights import may
from controller.store import reservations
from controller.times import text_of

MAX_BYTES = 1 << 20


class Part(Query):
    offset: int = Field(0, ge=-(2**53), le=2**53, description="Below 0: so many bytes before the end")
    limit: int = Field(65_536, ge=1, le=MAX_BYTES, description="Bytes")
    launch: str = Field(
        "current", max_length=64, pattern=r"^[A-Za-z0-9._-]+$", description="current, previous, or an id"
    )


def read(call: Call) -> dict[str, Any]:
    part, logs = call.query(Part), call.ctx.logs
    node, name = _names(call)
    launches = logs.launches(node, name) if logs is not None else []
    chosen = _choose(launches, part.launch)
    if logs is None or chosen is None:
        raise NotFound(
            f"there is no output of {'the failed run before' if part.launch == 'previous' else 'that run'} yet"
        )
    _allowed(call, chosen)
    found = logs.read(node, name, part.offset, part.limit, chosen["id"])
    if found is None:
        raise NotFound("that run's output is no longer kept")
    return {**found, "launch": _shape(chosen)}


def launches(call: Call) -> dict[str, Any]:
    logs = call.ctx.logs
    node, name = _names(call)
    return {"items": [_shape(one) for one in (logs.launches(node, name) if logs else [])], "next": None}


def _names(call: Call) -> tuple[str, str]:
    with call.ctx.store.read() as session:
        channel, node = channel_routes.found(session, call)
        return node.name, channel.name


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
            raise Forbidden("this output belongs to a reservation that is not known any more")
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
    Route("GET", f"{_PATH}/launches", launches, "The runs whose output is kept, newest first",
          answers={404: "No such channel"}),
)  # fmt: skip

"""A channel's timetable, as the planner makes it from the same input."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from controller.api import channels as channel_routes
from controller.api.route import Call, Query, Route
from controller.channel_view import channel_states, target_shape
from controller.fleet.deciding import holds_since
from controller.scheduling.plan import HOUR, timetable
from controller.times import text_of


class Hours(Query):
    hours: float = Field(24, gt=0, le=49, allow_inf_nan=False)


def plan(call: Call) -> dict[str, Any]:
    hours = call.query(Hours).hours
    with call.ctx.store.read() as session:
        channel, node = channel_routes.found(session, call)
        state = channel_states(session, call.ctx, call.now, {node.id}).get(channel.id)
    steps = timetable(state.input, call.now) if state is not None else ()
    end = call.now + round(hours * HOUR)
    since = holds_since(state, steps[0], call.now) if state is not None else None
    shapes = [
        {
            "at": text_of(since if step is steps[0] else step.at),
            "target": target_shape(step.target),
            "why": step.why,
            "reservation": step.reservation.id if step.reservation else None,
            "fallback": target_shape(step.fallback),
        }
        for step in steps
        if step.at <= end
    ]
    return {"steps": shapes, "step_since": text_of(since), "to": text_of(end)}


ROUTES = (
    Route("GET", "/channels/<node>/<name>/plan", plan, "What will run when", query=Hours,
          answers={404: "No such channel"}),
)  # fmt: skip

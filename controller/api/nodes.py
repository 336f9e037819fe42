"""Nodes: what they say of themselves, and how one joins, rests (cordon) and leaves."""

from __future__ import annotations

import base64
import json
from typing import Any

from pydantic import Field

from controller import shapes
from controller.api.route import Body, Call, Page, Query, Route, cursor, listed, place
from controller.booking import draining
from controller.booking.offers import Offer
from controller.errors import Invalid, NotFound, Unavailable
from controller.fleet.live import LiveGpu, LiveNode
from controller.notify import inbox
from controller.said import say
from controller.store import audit, channels, nodes, users
from controller.store.session import Write
from controller.store.tables import Node
from controller.times import Instant, text_of
from protos.shared import clocks


class NewNode(Body):
    name: str = Field(min_length=1, max_length=63)


class NodeChange(Body):
    cordoned: bool | None = Field(None, description="true: takes no new bookings; what runs and what is booked goes on")
    drain_until: Instant | None = Field(
        None,
        description="Maintenance: no booking begins before then, holders of those that would are told; ends by itself",
    )
    reason: str = Field("", max_length=2000, description="Why it takes no bookings; told to those holders")
    disabled: bool | None = None


class Until(Query):
    until: Instant


def list_nodes(call: Call) -> dict[str, Any]:
    page = call.query(Page)
    after = place(page.cursor, str)
    with call.ctx.store.read() as session:
        rows = nodes.page(session, page.limit + 1, after[0] if after else None)
        names = channels.names_of_nodes(session, [n.id for n in rows])
    return listed(rows, page.limit, lambda n: shape(call, n, names.get(n.id, [])), lambda n: cursor(n.name))


def one_node(call: Call) -> dict[str, Any]:
    with call.ctx.store.read() as session:
        node = _found(session, call)
        names = channels.names_of_nodes(session, [node.id])
    return shape(call, node, names.get(node.id, []))


def add_node(call: Call) -> dict[str, Any]:
    ctx, name = call.ctx, call.body(NewNode).name
    if ctx.ca is None or not ctx.enrol_address:
        raise Unavailable(say("this controller has no enrolment port; start it with `slotserve serve`"))
    with ctx.store.write() as session:
        node, token, ends = nodes.invite(session, name, call.actor.id, call.now)
        audit.add(session, call.actor.id, "node.invite", node.name, call.now)
    parts = {"address": ctx.enrol_address, "node": name, "token": token, "ca": ctx.ca.certificate_pem()}
    join = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    return {"name": name, "join": join, "expires_at": text_of(ends)}


def change_node(call: Call) -> dict[str, Any]:
    asked = call.body(NodeChange)
    if asked.drain_until is not None and asked.drain_until > call.now:
        with call.ctx.store.read() as session:
            node = _found(session, call)
            seen = draining.preview(session, call.ctx, call.actor, node, call.now, asked.drain_until)
            offers = draining.offered(seen)
    else:
        offers = {}
    with call.ctx.store.write() as session:
        node = _found(session, call)
        if asked.cordoned is None and asked.disabled is None and asked.drain_until is None:
            raise Invalid.field("cordoned", say("say what is to change: cordoned or disabled, true or false"))
        if asked.drain_until is not None and asked.cordoned is False:
            raise Invalid.field("drain_until", say("a node that takes bookings is not drained; leave cordoned out"))
        if asked.drain_until is not None and asked.drain_until <= call.now:
            raise Invalid.field("drain_until", say("must be later than now"))
        if asked.disabled is not None and asked.disabled != (node.disabled_at is not None):
            node.disabled_at = call.now if asked.disabled else None
            audit.add(session, call.actor.id, f"node.{'disable' if asked.disabled else 'enable'}", node.name, call.now)
        if asked.cordoned is not None or asked.drain_until is not None:
            _cordon(session, call, node, asked, offers)
        rows = channels.of_nodes(session, [node.id])
        session.touch(*(c.id for c, _ in rows))
    call.ctx.keys_changed()  # a node that is disabled is cut off at once
    return shape(call, node, [f"{node.name}/{c.name}" for c, _ in rows])


def _cordon(session: Write, call: Call, node: Node, asked: NodeChange, offers: dict[str, list[Offer]]) -> None:
    before = _rest(node)
    if asked.drain_until is not None:
        draining.drain(session, node, call.now, asked.drain_until, asked.reason.strip(), offers)
    else:
        draining.lift(session, node, call.now)
        node.cordoned = bool(asked.cordoned)
        node.cordon_reason = asked.reason.strip() if node.cordoned else ""
    audit.add(
        session, call.actor.id, "node.cordon" if node.cordoned else "node.uncordon", node.name, call.now,
        before=before, after=_rest(node), reason=asked.reason.strip(),
    )  # fmt: skip


def _rest(node: Node) -> dict[str, Any]:
    return {"cordoned": node.cordoned, "drain_until": text_of(node.drain_until)}


def drain_preview(call: Call) -> dict[str, Any]:
    until = call.query(Until).until
    if until <= call.now:
        raise Invalid.field("until", say("must be later than now"))
    with call.ctx.store.read() as session:
        node = _found(session, call)
        found = draining.preview(session, call.ctx, call.actor, node, call.now, until)
        rows = [*found.running, *(row for row, _ in found.touched)]
        names = users.names(session, shapes.people_of(rows))
        where = channels.full_names(session, {r.channel_id for r in rows})

    def brief(row: Any) -> dict[str, Any]:
        shape = shapes.brief(row, names, call.actor, call.ctx.settings.show_holders, call.now)
        return {**shape, "channel": where[row.channel_id]}

    return {
        "node": node.name,
        "until": text_of(until),
        "idle_at": text_of(max((r.ends_at for r in found.running), default=call.now)),
        "running": [brief(r) for r in found.running],
        "touched": [{**brief(r), "offers": [o.shape() for o in others or ()]} for r, others in found.touched],
    }


def remove_node(call: Call) -> None:
    with call.ctx.store.write() as session:
        node = _found(session, call)
        rows = channels.of_nodes(session, [node.id])
        nodes.remove(session, node, call.now)
        for channel, _ in rows:
            why = f"Node {node.name} was removed."
            inbox.place_lost(session, channel, f"{node.name}/{channel.name}", why, call.now)
        session.touch(*(c.id for c, _ in rows))
        audit.add(session, call.actor.id, "node.remove", node.name, call.now)
    call.ctx.keys_changed()


def shape(call: Call, node: Node, channel_names: list[str]) -> dict[str, Any]:
    live: LiveNode = call.ctx.live.node(node.name)
    gpus = [
        {
            "index": g.index,
            "uuid": g.uuid,
            "name": g.name,
            "memory_total_bytes": g.memory_total_bytes,
            "memory_used_bytes": g.memory_used_bytes,
            "utilisation_percent": g.utilisation_percent,
            "temperature_c": g.temperature_c,
            "power_watts": g.power_watts,
            "problem": g.problem or None,
            "processes": _processes(g, node.name, call.may("node.manage")),
        }
        for g in live.gpus
    ]
    return {
        "id": node.id,
        "name": node.name,
        "online": live.online,
        "since": text_of(live.since or None),
        "last_seen_at": text_of(call.now if live.online else node.last_seen_at),
        "version": live.version or node.version,
        "clock_skew_seconds": live.clock_skew_seconds,
        "clock_skew_limit_seconds": clocks.LIMIT_SECONDS,
        **_rest(node),
        "cordon_reason": node.cordon_reason or None,
        "enrolled": node.certificate_serial is not None,
        "disabled": node.disabled_at is not None,
        "turned_away": live.turned_away or None,
        "certificate_until": text_of((node.certificate or {}).get("ends_at")),
        "gpus": gpus or node.gpus,
        "gpu_problem": live.gpu_problem or None,
        "channels": channel_names,
        "gateway_urls": list(live.gateway_urls) or list(node.gateway_urls),
        "own_settings": node.own_settings,
        "plan": {
            "epoch": live.plan_epoch,
            "generation": live.plan_generation,
            "newest_generation": node.generation,
            "accepted": live.plan_generation > 0 and not live.refusal and live.plan_generation == node.generation,
            "refusal": live.refusal or None,
        },
        "created_at": text_of(node.created_at),
    }


def _processes(gpu: LiveGpu, node: str, all_of_it: bool) -> list[dict[str, Any]]:
    """Whose they are; command lines of others' are for administrators."""
    return [
        {
            "pid": p.pid,
            "channel": f"{node}/{p.channel}" if p.channel else None,
            "memory_bytes": p.memory_bytes,
            **({"user": p.user, "command": p.command} if all_of_it else {}),
        }
        for p in gpu.processes
    ]


def _found(session: Any, call: Call) -> Node:
    node = nodes.find(session, call.args["name"])
    if node is None:
        raise NotFound(say("there is no node %(name)s", name=call.args["name"]))
    return node


ROUTES = (
    Route("GET", "/nodes", list_nodes, "Nodes, by name", query=Page),
    Route("GET", "/nodes/<name>", one_node, "A node", answers={404: "No such node"}),
    Route("POST", "/nodes", add_node, "A join string for a new node (or an old one that lost its key)", body=NewNode,
          status=201, action="node.manage", answers={503: "No enrolment port here"}),
    Route("PATCH", "/nodes/<name>", change_node,
          "Cordons (no new bookings), drains for maintenance or disables (may not connect), or lifts that",
          body=NodeChange, action="node.manage", answers={404: "No such node"}),
    Route("GET", "/nodes/<name>/drain-preview", drain_preview, "The bookings that maintenance until then would touch",
          query=Until, action="node.manage", answers={404: "No such node"}),
    Route("DELETE", "/nodes/<name>", remove_node, "Removes a node: it may not connect any more", status=204,
          action="node.manage", answers={404: "No such node"}),
)  # fmt: skip

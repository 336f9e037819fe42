"""Administration: the nodes, what each says of itself, what its maintenance touches and how far it has come."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from controller.api import nodes as nodes_api
from controller.api.route import Page
from controller.console import admin
from controller.console.asking import ask, everything, page
from controller.context import Context
from controller.fleet.service import VERSION
from controller.rights import Actor
from controller.store.tables import Channel, Node, Reservation, holding
from controller.times import parse

SOON_MS = 30 * 86_400_000  # a certificate that ends within it is worth a word: agents renew long before


def register(app: Flask, ctx: Context) -> None:
    """/admin/nodes"""

    @page(app, ctx, "/admin/nodes", action="node.manage")
    def nodes(actor: Actor) -> ResponseReturnValue:
        rows = everything(ctx, actor, nodes_api.list_nodes, Page)
        return admin.show(
            "admin_nodes",
            "nodes",
            nodes=rows,
            drains={n["name"]: _drain(ctx, actor, n) for n in rows if _drained(n, ctx.clock())},
            relays={n["name"]: ctx.live.node(n["name"]).relay_address for n in rows},
            coming=_coming(ctx),
            can_invite=ctx.ca is not None and bool(ctx.enrol_address),
            version=VERSION,
            ends_soon=lambda at: at - ctx.clock() < SOON_MS,
        )


def _drained(node: dict[str, Any], now: int) -> bool:
    return bool(node["drain_until"]) and parse(node["drain_until"]) > now


def _drain(ctx: Context, actor: Actor, node: dict[str, Any]) -> dict[str, Any]:
    """What still runs there, and whose bookings would begin before its maintenance ends."""
    wanted = nodes_api.Until.model_validate({"until": node["drain_until"]})
    found: dict[str, Any] = ask(ctx, actor, nodes_api.drain_preview, wanted, name=node["name"])
    return found


def _coming(ctx: Context) -> dict[str, int]:
    """Node name -> bookings that have not ended: what removing it would leave without a place."""
    query = (
        select(Node.name, func.count())
        .select_from(Reservation)
        .join(Channel, Channel.id == Reservation.channel_id)
        .join(Node, Node.id == Channel.node_id)
        .where(holding(Reservation.status), Reservation.ends_at > ctx.clock(), Node.removed_at.is_(None))
        .group_by(Node.name)
    )
    with ctx.store.read() as db:
        return {row[0]: row[1] for row in db.execute(query)}

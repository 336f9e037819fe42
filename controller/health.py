"""Whether this process answers, whether it can do its work, and its figures for Prometheus (outside /api/v1)."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from controller.api import auth
from controller.context import Context
from controller.errors import Forbidden
from controller.notify import trouble
from controller.rights import may
from controller.store import migrate, outbox
from controller.store.tables import Channel, Leader, Node, Reservation

PHASES = ["off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked", "unknown"]


def register(app: Flask, ctx: Context) -> None:
    """/healthz, /readyz, /metrics; the first two below /api/v1 as well."""
    registry = CollectorRegistry()
    registry.register(_Figures(ctx))

    @app.get("/healthz")
    @app.get("/api/v1/healthz", endpoint="api_healthz")
    def healthz() -> ResponseReturnValue:
        return jsonify({"status": "ok"})

    @app.get("/readyz")
    @app.get("/api/v1/readyz", endpoint="api_readyz")
    def readyz() -> ResponseReturnValue:
        problems = not_ready(ctx)
        body = {"status": "not ready" if problems else "ready", "problems": problems}
        body["warnings"] = [] if problems else warnings(ctx)
        return jsonify(body), 503 if problems else 200

    @app.get("/metrics")
    def metrics() -> ResponseReturnValue:
        if not _from_here():
            actor = auth.authenticate(ctx, request, ctx.clock())
            verdict = may(actor, "metrics.see")
            if not verdict:
                raise Forbidden(verdict.why)
        return Response(generate_latest(registry), content_type="text/plain; version=0.0.4; charset=utf-8")


def not_ready(ctx: Context) -> list[str]:
    """What keeps this controller from its work, in words; empty when nothing does."""
    problems = migrate.check(ctx.store)
    if problems:
        return problems
    try:
        with ctx.store.read() as session:
            epoch = session.scalar(select(Leader.epoch).where(Leader.id == 1))
    except SQLAlchemyError as err:
        return [f"the database cannot be read: {str(err).splitlines()[0]}"]
    if not epoch:
        return ["no planner has started yet"]
    if not (ctx.leads() or ctx.leader()):
        return ["no controller leads at the moment: bookings are kept, plans are not made"]
    looked = ctx.plan_looked_at()
    oldest = 3 * ctx.settings.tick_seconds
    if looked is None:
        return ["the planner has not looked yet"]
    if ctx.clock() - looked > oldest * 1000:
        return [f"the planner's last look is older than {oldest:g} s"]
    return []


def warnings(ctx: Context) -> list[str]:
    """What does not keep the controller from its work, and should be looked at; without names or addresses."""
    failing: dict[str, int] = {}
    for problem in trouble.state(ctx, ctx.clock())["problems"]:
        failing[problem["way"]] = failing.get(problem["way"], 0) + problem["messages"]
    return [
        f"{count} messages by {way} do not get through; slotserve notifications delivery tells administrators why"
        for way, count in failing.items()
    ]


def _from_here() -> bool:
    """On loopback, and not passed on by a proxy that stands there."""
    proxied = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    return (request.remote_addr or "localhost") in ("127.0.0.1", "::1", "localhost") and not proxied


class _Figures(Collector):
    """Read at each scrape; nothing is counted in between."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def collect(self) -> Iterator[Metric]:
        ctx = self._ctx
        with ctx.store.read() as session:
            nodes = list(session.scalars(select(Node.name).where(Node.removed_at.is_(None))))
            channels = session.execute(
                select(Node.name, Channel.name).join(Node).where(Node.removed_at.is_(None), Channel.gone_at.is_(None))
            ).all()
            statuses = session.execute(select(Reservation.status, func.count()).group_by(Reservation.status)).all()
            messages, oldest = outbox.counts(session), outbox.oldest_waiting(session)
        online = GaugeMetricFamily("slotserve_node_online", "1 while the node is connected", labels=["node"])
        for name in nodes:
            online.add_metric([name], float(ctx.live.node(name).online))
        yield online
        phase = GaugeMetricFamily(
            "slotserve_channel_phase", "1 for the phase the channel is in", labels=["channel", "phase"]
        )
        flight = GaugeMetricFamily("slotserve_channel_in_flight", "Requests running now", labels=["channel"])
        failures = GaugeMetricFamily(
            "slotserve_channel_failures", "Failures of the present episode", labels=["channel"]
        )
        for node, name in channels:
            live, both = ctx.live.channel(node, name), f"{node}/{name}"
            for known in PHASES:
                phase.add_metric([both, known], float(live.phase == known))
            flight.add_metric([both], live.in_flight)
            failures.add_metric([both], live.failure.count if live.failure else 0)
        yield from (phase, flight, failures)
        kept = GaugeMetricFamily("slotserve_reservations", "Reservations by status", labels=["status"])
        for status, count in statuses:
            kept.add_metric([status], count)
        yield kept
        outside = GaugeMetricFamily(
            "slotserve_messages", "Messages outside that wait or were given up", labels=["state"]
        )
        for state, count in messages.items():
            outside.add_metric([state], count)
        yield outside
        age = 0.0 if oldest is None else max(0, ctx.clock() - oldest) / 1000
        yield GaugeMetricFamily("slotserve_messages_oldest_seconds", "Age of the oldest message that waits", value=age)
        yield GaugeMetricFamily("slotserve_leader", "1 while this controller plans", value=float(ctx.leads()))
        looked = ctx.plan_looked_at()
        if looked is not None:
            age = (ctx.clock() - looked) / 1000
            yield GaugeMetricFamily("slotserve_planner_last_look_seconds", "Age of the planner's last look", value=age)
        yield from _planner(*ctx.planner_figures())


def _planner(looks: int, lateness: list[float]) -> Iterator[Metric]:
    yield CounterMetricFamily("slotserve_planner_looks", "Channels looked at", value=looks)
    late = GaugeMetricFamily(
        "slotserve_planner_lateness_seconds",
        "By how much the newest due times (1000 at most) were met late",
        labels=["quantile"],
    )
    ordered = sorted(lateness)
    for quantile in ("0.5", "0.99", "1"):
        if ordered:
            late.add_metric([quantile], ordered[min(len(ordered) - 1, int(float(quantile) * len(ordered)))])
    yield late

"""Whether this process answers, whether it can do its work, and its figures for Prometheus (outside /api/v1)."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator

from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError

from controller import requests_seen
from controller.api import auth
from controller.context import Context, Counted
from controller.errors import Forbidden
from controller.fleet import shared_secrets
from controller.notify import trouble
from controller.rights import may
from controller.store import migrate, outbox
from controller.store.session import answers_not
from controller.store.tables import Channel, Leader, Node, Reservation
from protos.shared import clocks

STEP_SECONDS = 2.0
LEAST_FREE_BYTES = 1_000_000_000
PHASES = ["off", "draining", "stopping", "freeing", "loading", "ready", "retry_wait", "blocked", "unknown"]


def register(app: Flask, ctx: Context) -> None:
    """/healthz, /readyz, /metrics; the first two below /api/v1 as well."""
    registry = CollectorRegistry()
    registry.register(_Figures(ctx))
    requests_seen.register(app, registry)

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
    if not ctx.leads() and (differ := shared_secrets.files_that_differ(ctx.store, ctx.settings)):
        return [differ]
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
    said = [
        f"{count} messages by {way} do not get through; slotserve notifications delivery tells administrators why"
        for way, count in failing.items()
    ]
    if differ := shared_secrets.files_that_differ(ctx.store, ctx.settings):
        said.append(differ)
    if abs(stepped := ctx.clock_stepped()) > STEP_SECONDS:
        said.append(
            f"this machine's clock was set {abs(stepped):.0f} s {'forward' if stepped > 0 else 'back'} since the "
            "controller's start; bookings follow the new time: see that NTP runs"
        )
    nodes = ctx.live.snapshot().values()
    if wrong := sum(n.online and clocks.wrong(n.clock_skew_seconds) for n in nodes):
        said.append(f"{wrong} of the nodes' clocks differ by more than {clocks.LIMIT_SECONDS:g} s from this one's")
    if refusing := sum(n.online and bool(n.refusal) for n in nodes):
        said.append(f"{refusing} nodes refuse their plan")
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(ctx.settings.state_dir).free
        if free < LEAST_FREE_BYTES:
            said.append(f"only {free / 1e9:.1f} GB are free where the controller keeps its state")
    return said


def _from_here() -> bool:
    """On loopback, and not passed on by a proxy that stands there."""
    proxied = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    return (request.remote_addr or "localhost") in ("127.0.0.1", "::1", "localhost") and not proxied


class _Figures(Collector):
    """Read at each scrape; nothing is counted in between."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._started = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """Also while the database is away: then without what only it knows."""
        up = 1.0
        try:
            yield from list(self._stored())
        except (DBAPIError, TimeoutError) as err:
            if not answers_not(err):
                raise
            up = 0.0
        yield GaugeMetricFamily("slotserve_database_up", "1 while the database answers", value=up)
        yield from self._own()

    def _stored(self) -> Iterator[Metric]:
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

    def _own(self) -> Iterator[Metric]:
        ctx = self._ctx
        age = time.monotonic() - self._started
        yield GaugeMetricFamily("slotserve_started_seconds", "Since this controller's start", value=age)
        stepped = ctx.clock_stepped()
        yield GaugeMetricFamily(
            "slotserve_clock_stepped_seconds", "By how much this machine's clock was set since the start", value=stepped
        )
        skew = GaugeMetricFamily("slotserve_node_clock_skew_seconds", "The node's clock less ours", labels=["node"])
        refused = GaugeMetricFamily("slotserve_node_plan_refused", "1 while it refuses its plan", labels=["node"])
        connected = 0
        for name, node in ctx.live.snapshot().items():
            connected += node.online
            refused.add_metric([name], float(bool(node.refusal)))
            if node.clock_skew_seconds is not None:
                skew.add_metric([name], node.clock_skew_seconds)
        yield from (skew, refused)
        yield GaugeMetricFamily("slotserve_links", "Agents connected", value=connected)
        counted = ctx.fleet_figures()
        if counted is not None:
            yield from _counted(counted)
        yield GaugeMetricFamily("slotserve_leader", "1 while this controller plans", value=float(ctx.leads()))
        looked = ctx.plan_looked_at()
        if looked is not None:
            age = (ctx.clock() - looked) / 1000
            yield GaugeMetricFamily("slotserve_planner_last_look_seconds", "Age of the planner's last look", value=age)


def _counted(counted: Counted) -> Iterator[Metric]:
    """Since the start of this process."""
    streams = counted.streams
    for name, text, value in (
        ("slotserve_planner_looks", "Channels looked at", counted.looks),
        ("slotserve_planner_changes", "Decisions that became others", counted.changes),
        ("slotserve_link_connects", "Streams of agents that began", streams.connects),
        ("slotserve_plan_pushes", "Plans sent", streams.pushes),
        ("slotserve_leader_terms", "Times that this controller has begun to lead", streams.terms),
    ):
        yield CounterMetricFamily(name, text, value=value)
    ended = CounterMetricFamily("slotserve_link_disconnects", "Streams of agents that ended", labels=["cause"])
    for cause in ("ended", "by_us"):
        ended.add_metric([cause], streams.disconnects[cause])
    answers = CounterMetricFamily("slotserve_plan_answers", "What agents said of plans", labels=["outcome"])
    for outcome in ("accepted", "refused"):
        answers.add_metric([outcome], streams.outcomes[outcome])
    yield from (ended, answers)
    for name, text, histogram in (
        ("slotserve_plan_acknowledged_seconds", "From a plan's push to its acknowledgement", streams.acknowledged),
        ("slotserve_planner_lateness_seconds", "By how much due times were met late", counted.lateness),
    ):
        yield HistogramMetricFamily(name, text, buckets=histogram.buckets(), sum_value=histogram.sum)

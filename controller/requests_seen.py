"""What the web side has answered since this process began, and what it is answering now, for /metrics.

Refusals are counted by the code that their body carries. Probes and scrapes are left out: they would drown the rest.
"""

from __future__ import annotations

from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Counter, Gauge

PROBES = ("/metrics", "/healthz", "/readyz", "/api/v1/healthz", "/api/v1/readyz")


def register(app: Flask, registry: CollectorRegistry) -> None:
    """Counts every request from now on; to be registered before anything that may refuse one."""
    running = Gauge("slotserve_requests_running", "Requests that are being answered", registry=registry)
    answers = Counter("slotserve_requests", "Requests answered", ["status"], registry=registry)
    refusals = Counter("slotserve_refusals", "Requests to the API that were refused", ["code"], registry=registry)

    @app.before_request
    def _begins() -> None:
        if request.path not in PROBES:
            g.counted = True
            running.inc()

    @app.after_request
    def _answered(response: Response) -> Response:
        if g.get("counted"):
            answers.labels(f"{response.status_code // 100}xx").inc()
            if response.status_code >= 400 and request.path.startswith("/api/"):
                said = response.get_json(silent=True)
                error = said.get("error") if isinstance(said, dict) else None
                refusals.labels(str((error or {}).get("code", "none"))).inc()
        return response

    @app.teardown_request
    def _ends(_error: BaseException | None) -> None:
        if g.pop("counted", False):
            running.dec()

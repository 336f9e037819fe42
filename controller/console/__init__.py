"""The console: pages rendered by Jinja, kept live by polling. No page has inline script or style.

`register(app, ctx)` is all the web application calls; the pages read what the REST API's functions read. A page is a
module with a `register(app, ctx)` of its own, listed below, and a line in nav.py.
"""

from __future__ import annotations

import gzip

from flask import Flask, Response, request

from controller.context import Context

PACKED_FROM = 2_000
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def register(app: Flask, ctx: Context) -> None:
    """Adds the pages, the translations and the security headers (of every answer, the API's too)."""
    from controller.console import (
        account,
        admin,
        approvals,
        bookings,
        catalogue,
        channel_page,
        charts,
        language,
        login,
        logout,
        logpage,
        nodes_page,
        oidc_login,
        pages,
        password,
        shell,
        spoken,
        timeline,
        tryit,
        usage_page,
        wall,
    )

    language.register(app, ctx)
    for module in (
        pages,
        shell,
        login,
        logout,
        oidc_login,
        password,
        logpage,
        timeline,
        bookings,
        approvals,
        spoken,
        charts,
        channel_page,
        catalogue,
        admin,
        nodes_page,
        account,
        tryit,
        wall,
        usage_page,
    ):
        module.register(app, ctx)

    @app.after_request
    def _headers(answer: Response) -> Response:
        answer.headers.setdefault("Content-Security-Policy", POLICY)
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        answer.headers.setdefault("Referrer-Policy", "same-origin")
        answer.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        if answer.mimetype == "text/html" and not request.path.startswith("/static/"):
            answer.headers.setdefault("Cache-Control", "no-store")
        return packed(answer)


def packed(answer: Response) -> Response:
    """Pages and their live parts, packed for browsers that take it: a page of 200 channels is a tenth as long."""
    kind = answer.mimetype in ("text/html", "application/json") and not request.path.startswith("/api/")
    if not kind or answer.direct_passthrough or "Content-Encoding" in answer.headers or answer.status_code != 200:
        return answer
    answer.vary.add("Accept-Encoding")
    if "gzip" in request.headers.get("Accept-Encoding", "") and len(body := answer.get_data()) > PACKED_FROM:
        answer.set_data(gzip.compress(body, 5, mtime=0))
        answer.headers["Content-Encoding"] = "gzip"
    return answer

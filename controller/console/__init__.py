"""The console: pages rendered by Jinja, kept live by polling. No page has inline script or style.

`register(app, ctx)` is all the web application calls; the pages read what the REST API's functions read. A page is a
module with a `register(app, ctx)` of its own, listed below, and a line in nav.py.
"""

from __future__ import annotations

from flask import Flask, Response, request

from controller.context import Context

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
        language,
        login,
        logpage,
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
        oidc_login,
        password,
        logpage,
        timeline,
        bookings,
        approvals,
        spoken,
        channel_page,
        catalogue,
        admin,
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
        return answer

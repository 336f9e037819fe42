"""Log-in and log-out. A new session at each log-in, the same answer for a wrong name and a wrong password, and a wait
that grows with every failure of an address or a name."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from flask import Flask, redirect, render_template, request, session
from flask.typing import ResponseReturnValue
from flask_babel import gettext as _
from flask_wtf.csrf import generate_csrf
from werkzeug.wrappers import Response

from controller import sessions
from controller.console.signed_in import person, safe_next
from controller.context import Context
from controller.store import audit, users

log = logging.getLogger(__name__)


class Throttle:
    """Failures by name and by address; after `free` of them each further one must wait, twice as long every time."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, free: int = 5, most: float = 300.0, size: int = 10_000
    ) -> None:
        self._clock, self._free, self._most, self._size = clock, free, most, size
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, *keys: str) -> float:
        """Seconds until the next try is looked at; 0 = now."""
        now = self._clock()
        with self._lock:
            return max([0.0, *(self._until(key) - now for key in keys)])

    def failed(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                count, _ = self._failures.pop(key, (0, 0.0))
                self._failures[key] = (count + 1, self._clock())
                while len(self._failures) > self._size:
                    self._failures.popitem(last=False)

    def succeeded(self, *keys: str) -> None:
        with self._lock:
            for key in keys:
                self._failures.pop(key, None)

    def _until(self, key: str) -> float:
        count, last = self._failures.get(key, (0, 0.0))
        if count < self._free:
            return 0.0
        return last + min(2.0 ** (count - self._free), self._most)


def register(app: Flask, ctx: Context) -> None:
    """/login and /logout."""
    throttle = Throttle()
    app.extensions["slotserve.throttle"] = throttle

    @app.get("/login")
    def login() -> ResponseReturnValue:
        if person() is not None:
            return redirect(safe_next(request.args.get("next")))
        return _page(safe_next(request.args.get("next")))

    @app.post("/login")
    def log_in() -> ResponseReturnValue:
        app.extensions["csrf"].protect()
        name, password = request.form.get("name", "")[:200], request.form.get("password", "")[:1000]
        target = safe_next(request.form.get("next"))
        keys = (f"name {name.strip().casefold()}", f"address {request.remote_addr}")
        if (wait := throttle.wait(*keys)) > 0:
            answer = _page(
                target, name, _("Too many wrong tries. Wait %(seconds)s s, then try again.", seconds=int(wait) + 1), 429
            )
            answer.headers["Retry-After"] = str(int(wait) + 1)
            return answer
        with ctx.store.read() as db:
            who = users.check_password(db, name, password)
        if who is None:
            throttle.failed(*keys)
            log.warning("log-in refused address=%s", request.remote_addr)
            return _page(target, name, _("Name and password do not fit together."), 401)
        throttle.succeeded(keys[0])
        session.clear()  # a session that existed before knows nothing of the one that begins
        session.permanent = True
        sessions.begin(session, who)
        generate_csrf()
        with ctx.store.write() as db:
            audit.add(db, who.id, "session.begin", who.id, ctx.clock())
        return redirect(target)

    @app.post("/logout")
    def log_out() -> ResponseReturnValue:
        app.extensions["csrf"].protect()
        session.clear()
        return redirect("/login")


def _page(target: str, name: str = "", error: str = "", status: int = 200) -> Response:
    return Response(
        render_template("console/login.html", target=target, name=name, error=error), status, mimetype="text/html"
    )

"""Notices that a PostgreSQL does not answer, and that it does again.

A server whose host hangs keeps its connections open, so a statement would wait for ever, and with it, one after the other,
every thread that serves people. A statement that has waited for long is no fault by itself (it may wait for a lock): the
server is asked beside it, over a connection of its own. Where that is not answered, all that waits is broken off (it ends
with a database error), and nothing is asked of the database any more until it answers.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import OperationalError

log = logging.getLogger(__name__)
SUSPECT_SECONDS = 4.0  # a statement that waits for so long has the server asked
LOOK_SECONDS = 1.0
ANSWER_SECONDS = 3


class DatabaseAway(OperationalError):
    """Nothing is asked of a database that does not answer."""

    def __init__(self) -> None:
        super().__init__("", None, ConnectionError("the database does not answer"))

    def __str__(self) -> str:
        return "the database does not answer"


class Liveness:
    """Of one engine. `start` once; `need()` before a statement, from any thread."""

    def __init__(self, engine: Engine, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._waiting: dict[int, tuple[float, weakref.ref[Any]]] = {}  # by the id of the driver's connection
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.away = False

        @event.listens_for(engine, "before_cursor_execute")
        def _asks(connection: Any, *_: Any) -> None:
            self._begin(connection.connection.dbapi_connection)

        @event.listens_for(engine, "after_cursor_execute")
        def _answered(connection: Any, *_: Any) -> None:
            self._done(connection.connection.dbapi_connection)

        @event.listens_for(engine, "commit")
        @event.listens_for(engine, "rollback")
        def _ends(connection: Any) -> None:
            if not (connection.closed or connection.invalidated):
                self._begin(connection.connection.dbapi_connection)

        @event.listens_for(engine, "checkin")
        @event.listens_for(engine, "close")
        def _back(connection: Any, _record: Any) -> None:
            self._done(connection)

    def start(self) -> None:
        threading.Thread(target=self._run, name="database answers", daemon=True).start()

    def stop(self) -> None:
        self._end.set()

    def need(self) -> None:
        """Raises DatabaseAway."""
        if self.away:
            raise DatabaseAway

    def look(self) -> None:
        """One look; `_run` looks every second."""
        if not (self.away or self._suspects()):
            return
        try:
            self._probe()
        except OSError as err:
            if not self.away:
                log.error("the database does not answer: what waits for it is broken off error=%r", str(err).strip())
            self.away = True
            for connection in self._suspects(0.0):
                _break_off(connection)
            return
        if self.away:
            log.warning("the database answers again")
        self.away = False

    def _begin(self, connection: Any) -> None:
        if connection is not None:
            with self._lock:
                self._waiting[id(connection)] = time.monotonic(), weakref.ref(connection)

    def _done(self, connection: Any) -> None:
        with self._lock:
            self._waiting.pop(id(connection), None)

    def _suspects(self, seconds: float = SUSPECT_SECONDS) -> list[Any]:
        now = time.monotonic()
        with self._lock:
            found = [ref() for at, ref in self._waiting.values() if now - at >= seconds]
        return [connection for connection in found if connection is not None]

    def _run(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:  # whatever one look comes upon: without the next nobody would notice that it hangs
                log.exception("whether the database answers could not be looked at")


def probe_of(url: URL) -> Callable[[], None]:
    """Asks the server over a connection of its own, for a few seconds at most."""
    import psycopg

    target = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def probe() -> None:
        try:
            with psycopg.connect(target, connect_timeout=ANSWER_SECONDS, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error as err:
            raise ConnectionError(str(err)) from err

    return probe


def _break_off(connection: Any) -> None:
    """Ends the connection below the driver, whose thread is waiting for it."""
    import psycopg

    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error) as err:  # closed meanwhile
        log.debug("nothing to break off error=%r", err)

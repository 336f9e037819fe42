"""The one way to the database: short read sessions, short write transactions, a word to the listeners after a commit.

Both databases behave as one: writes come one after the other and see everything that was committed before them, a read
session is one consistent view. On SQLite a write begins IMMEDIATE (a deferred one that reads first fails at once with
"database is locked", whatever the time-out) and WAL lets readers go on meanwhile. On PostgreSQL a write begins by
taking an advisory lock, and a read is REPEATABLE READ: what is looked at and then written stays as it was looked at
(names that are taken, hours that are left), and nothing can deadlock (two inserts that meet in an exclusion constraint
do so without it). Only what is written about one channel alone (a new booking) goes on beside the same of other
channels, and beside nothing else. Nobody holds a session over a network call or a plan.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    TimeoutError,
)
from sqlalchemy.orm import Session, sessionmaker

from controller.store.liveness import Liveness, probe_of

log = logging.getLogger(__name__)
Listener = Callable[[frozenset[str]], None]
WRITE_LOCK = 7360810  # any fixed number: who writes to a PostgreSQL database
_ONE_CHANNEL = (
    f"SELECT pg_advisory_xact_lock_shared({WRITE_LOCK}), pg_advisory_xact_lock({WRITE_LOCK}, %(which)s::integer)"
)
LOCK_SECONDS = (
    5.0  # for as long as a person looks at a page that does not come: then 503 in words, and agents come again
)
ASIDE_SECONDS = 0.1  # for notes on the side: whoever asked does not wait for them
_IDLE_SECONDS = 1.0
# A server that is gone without a word is noticed in half a minute.
_PG_ARGS = {
    "application_name": "slotserve",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}


class Write(Session):
    """A write transaction; `touch` says which channels (ids) must be looked at anew once it is committed."""

    def touch(self, *channel_ids: str, all_channels: bool = False) -> None:
        """Adds channels to what the listeners are told; `all_channels` = look at every one."""
        touched: set[str] = self.info.setdefault("touched", set())
        touched.update(channel_ids)
        if all_channels:
            touched.add("*")


class Store:
    """Engine and sessions of one database (SQLAlchemy URL). Thread-safe. A write that waits for another, and a thread that
    waits for a connection, give up after LOCK_SECONDS."""

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = driver_url(url)
        self.sqlite = parsed.get_backend_name() == "sqlite"
        pool = {"pool_size": 10, "max_overflow": 20, "pool_timeout": LOCK_SECONDS}
        self._turn = threading.Lock()  # of SQLite's writers here: SQLite's own way of waiting knows no turns
        if self.sqlite:
            args: dict[str, Any] = {"timeout": LOCK_SECONDS, "check_same_thread": False}
            self.engine: Engine = create_engine(parsed, connect_args=args, **pool)
            self._sqlite_ways()
            self._reads = one = self.engine
        else:
            options = f"-c lock_timeout={LOCK_SECONDS * 1000:.0f} -c idle_in_transaction_session_timeout=60s"
            args = {**_PG_ARGS, "options": f"{options} -c timezone=UTC"}
            args = {name: value for name, value in args.items() if name not in parsed.query}
            self.engine = create_engine(parsed, connect_args=args, **pool)
            self._postgresql_ways()
            self._reads = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            one = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._read = sessionmaker(self._reads, class_=Session, expire_on_commit=False, autoflush=False)
        self._one = sessionmaker(one, class_=Session, expire_on_commit=False, autoflush=False)
        self._write = sessionmaker(self.engine, class_=Write, expire_on_commit=False)
        self._listeners: list[Listener] = []
        self.liveness: Liveness | None = None

    def guard(self) -> None:
        """From now on nobody waits for a PostgreSQL that does not answer; for a process that serves."""
        if not self.sqlite:
            self.liveness = Liveness(self.engine, probe_of(driver_url(self.url)))
            self.liveness.start()

    def _need(self) -> None:
        if self.liveness is not None:
            self.liveness.need()

    def _sqlite_ways(self) -> None:
        @event.listens_for(self.engine, "connect")
        def _connect(connection, _record) -> None:
            connection.isolation_level = None  # SQLAlchemy's own BEGIN below, not the driver's
            cursor = connection.cursor()
            wait = f"busy_timeout={LOCK_SECONDS * 1000:.0f}"
            small = "cache_size=-512"  # KiB, of each connection in the pool: the system keeps the file in memory once
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", wait, small):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        @event.listens_for(self.engine, "begin")
        def _begin(connection) -> None:
            options = connection.get_execution_options()
            if not options.get("aside"):
                connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("write") else "BEGIN")
                return
            connection.exec_driver_sql(f"PRAGMA busy_timeout={ASIDE_SECONDS * 1000:.0f}")
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            finally:
                connection.exec_driver_sql(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000:.0f}")

    def _postgresql_ways(self) -> None:
        @event.listens_for(self.engine, "begin")
        def _begin(connection) -> None:
            options = connection.get_execution_options()
            if options.get("aside"):
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {ASIDE_SECONDS * 1000:.0f}")
            if options.get("only"):
                connection.exec_driver_sql(_ONE_CHANNEL, {"which": crc32(options["only"].encode()) & 0x7FFFFFFF})
            elif options.get("write"):
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")

        @event.listens_for(self.engine, "before_cursor_execute", retval=True)
        def _text(_connection, _cursor, statement, parameters, _context, _many) -> tuple[str, Any]:
            several = isinstance(parameters, list | tuple)
            return statement, [_storable(p) for p in parameters] if several else _storable(parameters)

        @event.listens_for(self.engine, "checkin")
        def _back(_connection, record) -> None:
            record.info["since"] = time.monotonic()

        @event.listens_for(self.engine, "checkout")
        def _out(connection, record, _proxy) -> None:
            """A connection that has lain idle is asked whether it lives (the server may have been started anew)."""
            if time.monotonic() - record.info.get("since", float("inf")) > _IDLE_SECONDS:
                try:
                    self.engine.dialect.do_ping(connection)
                except self.engine.dialect.loaded_dbapi.Error as err:
                    raise DisconnectionError(str(err)) from err  # the pool takes a new one

    def on_commit(self, listener: Listener) -> None:
        """`listener(channel ids)` is called after each committed write, in the writer's thread; "*" = all channels."""
        self._listeners.append(listener)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads: one consistent view."""
        self._need()
        with self._read() as session:
            yield session

    @contextmanager
    def glance(self) -> Iterator[Session]:
        """A session for a single statement that only reads: without a transaction around it, where that costs."""
        self._need()
        with self._one() as session:
            yield session

    @contextmanager
    def write(self, only: str = "", aside: bool = False) -> Iterator[Write]:
        """One write transaction: committed at the end, rolled back on any error; raises revision by one. `only`: the
        channel that it reads and writes about, and no other (see above). `aside`: gives up at once where others write."""
        self._need()
        options = {"write": True, "only": only, "aside": aside}
        seconds = ASIDE_SECONDS if aside else LOCK_SECONDS
        with self._in_turn(seconds), self._write(bind=self.engine.execution_options(**options)) as session:
            with session.begin():
                yield session
                session.flush()
                session.execute(text("UPDATE revision SET number = number + 1 WHERE id = 1"))
            touched = frozenset(session.info.get("touched", ()))
        for listener in self._listeners:
            listener(touched)

    @contextmanager
    def _in_turn(self, seconds: float) -> Iterator[None]:
        """SQLite: one writer of this process after the other. Raises as SQLite does where the turn does not come."""
        if not self.sqlite:
            yield
            return
        if not self._turn.acquire(timeout=seconds):
            raise OperationalError("BEGIN IMMEDIATE", None, sqlite3.OperationalError("database is locked"))
        try:
            yield
        finally:
            self._turn.release()

    def revision(self) -> int:
        """The number that grows with every committed write."""
        with self.glance() as session:
            return int(session.execute(text("SELECT number FROM revision WHERE id = 1")).scalar_one())

    def close(self) -> None:
        if self.liveness is not None:
            self.liveness.stop()
        self.engine.dispose()


@contextmanager
def if_it_can(what: str) -> Iterator[None]:
    """For notes on the side (when a key was last used): a database that takes no writes keeps nobody from reading."""
    try:
        yield
    except (DBAPIError, TimeoutError) as err:
        if not answers_not(err):
            raise
        log.warning("not noted: %s error=%r", what, why_not(err))


def answers_not(err: BaseException) -> bool:
    """Whether it is the database that does not do its work (away, no connection free, disk full, read-only), and neither
    what was asked nor a fault of ours."""
    wrong = isinstance(err, IntegrityError | DataError | ProgrammingError)
    return isinstance(err, DBAPIError | TimeoutError) and not wrong


def why_not(err: BaseException) -> str:
    """Its own words, in one line."""
    said = str(getattr(err, "orig", None) or err).strip()
    return said.splitlines()[0] if said else type(err).__name__


def waits(to: logging.Logger, what: str, err: Exception) -> bool:
    """For work that is tried again by itself: whether it is the database that does not do its own, then said in a line."""
    if answers_not(err):
        to.warning("%s: the database fails error=%r", what, why_not(err))
        return True
    return False


def _storable(values: Any) -> Any:
    """NUL, which an engine's last words may hold, is no text to PostgreSQL: its sign in its place."""
    if not isinstance(values, dict) or not any(isinstance(v, str) and "\0" in v for v in values.values()):
        return values
    return {name: v.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(v, str) else v for name, v in values.items()}


def driver_url(url: str) -> URL:
    """The URL with our driver in it: `postgresql://` and `postgres://` mean psycopg 3. Raises ValueError in words."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as err:
        raise ValueError(f"this is no database URL: {err}") from None
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        return parsed
    raise ValueError(
        f"{parsed.drivername}:// is not known: use sqlite:///path, or postgresql://user:password@host/database"
    )

"""The one way to the database: short read sessions, short write transactions, a word to the listeners after a commit.

On SQLite a write begins IMMEDIATE (a deferred one that reads first fails at once with "database is locked", whatever
the time-out); WAL lets readers go on meanwhile. Nobody holds a session over a network call or a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import Session, sessionmaker

Listener = Callable[[frozenset[str]], None]


class Write(Session):
    """A write transaction; `touch` says which channels (ids) must be looked at anew once it is committed."""

    def touch(self, *channel_ids: str, all_channels: bool = False) -> None:
        """Adds channels to what the listeners are told; `all_channels` = look at every one."""
        touched: set[str] = self.info.setdefault("touched", set())
        touched.update(channel_ids)
        if all_channels:
            touched.add("*")


class Store:
    """Engine and sessions of one database (SQLAlchemy URL). Thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        args = {"timeout": 30, "check_same_thread": False} if self.sqlite else {}
        self.engine: Engine = create_engine(url, connect_args=args, pool_pre_ping=not self.sqlite)
        if self.sqlite:
            self._sqlite_ways()
        self._read = sessionmaker(self.engine, class_=Session, expire_on_commit=False, autoflush=False)
        self._write = sessionmaker(self.engine, class_=Write, expire_on_commit=False)
        self._listeners: list[Listener] = []

    def _sqlite_ways(self) -> None:
        @event.listens_for(self.engine, "connect")
        def _connect(connection, _record) -> None:
            connection.isolation_level = None  # SQLAlchemy's own BEGIN below, not the driver's
            cursor = connection.cursor()
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        @event.listens_for(self.engine, "begin")
        def _begin(connection) -> None:
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN"
            )

    def on_commit(self, listener: Listener) -> None:
        """`listener(channel ids)` is called after each committed write, in the writer's thread; "*" = all channels."""
        self._listeners.append(listener)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads: one consistent view."""
        with self._read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Write]:
        """One write transaction: committed at the end, rolled back on any error; raises revision by one."""
        with self._write(bind=self.engine.execution_options(write=True)) as session:
            with session.begin():
                yield session
                session.flush()
                session.execute(text("UPDATE revision SET number = number + 1 WHERE id = 1"))
            touched = frozenset(session.info.get("touched", ()))
        for listener in self._listeners:
            listener(touched)

    def revision(self) -> int:
        """The number that grows with every committed write."""
        with self.read() as session:
            return int(session.execute(text("SELECT number FROM revision WHERE id = 1")).scalar_one())

    def close(self) -> None:
        self.engine.dispose()

"""A PostgreSQL that hangs with its connections open: what waits is broken off, what comes is refused at once, then it goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from controller.store import liveness
from controller.store.session import Store
from tests import postgres
from tests.parts import wait_until

pytestmark = pytest.mark.slow


@contextmanager
def stopped(server: postgres.PostgreSQL) -> Iterator[None]:
    """The server and its processes, as a host that hangs."""
    pids = [server.pid, *children(server.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, IndexError):
            continue
    return found


def test_nobody_waits_for_a_server_that_hangs(
    postgresql: postgres.PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SUSPECT_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.1)
    binaries = postgres.find_postgresql()
    assert binaries is not None
    own = postgres.start(binaries, tmp_path)
    try:
        with own.database() as url:
            store = Store(url)
            store.guard()
            assert store.liveness is not None
            before = store.revision()
            ended: list[Any] = []

            def write() -> None:
                try:
                    with store.write() as session:
                        session.execute(text("UPDATE leader SET holder = 'nobody' WHERE id = 1"))
                        hangs.set()
                        resumed.wait(60)
                        session.execute(text("SELECT 1"))
                except OperationalError as err:
                    ended.append(err)

            hangs, resumed = threading.Event(), threading.Event()
            thread = threading.Thread(target=write)
            thread.start()
            assert hangs.wait(60)
            with stopped(own):
                resumed.set()
                thread.join(60)
                assert len(ended) == 1, "the statement went on waiting"
                assert store.liveness.away
                began = time.monotonic()
                with pytest.raises(liveness.DatabaseAway):
                    store.revision()
                with pytest.raises(OperationalError), store.write():
                    pass
                print(f"refused in {time.monotonic() - began:.3f} s")
            wait_until(lambda: not store.liveness.away, 60, "it answers again")  # type: ignore[union-attr]
            assert store.revision() == before  # nothing of what was broken off
            with store.write():
                pass
            assert store.revision() == before + 1
            # A statement that waits for a lock is none that is broken off.
            with own_lock(url):
                waits = threading.Thread(target=lambda: write_one(store, ended))
                waits.start()
                time.sleep(1.0)
                assert waits.is_alive()
                assert not store.liveness.away
            waits.join(60)
            assert len(ended) == 1
            assert store.revision() == before + 3
            store.close()
    finally:
        postgres.stop(tmp_path)


@contextmanager
def own_lock(url: str) -> Iterator[None]:
    other = Store(url)
    with other.write() as session:
        session.execute(text("SELECT 1"))
        yield
    other.close()


def write_one(store: Store, ended: list[Any]) -> None:
    try:
        with store.write():
            pass
    except OperationalError as err:
        ended.append(err)

"""A database that is away, locked or full: 503 in words with Retry-After, never a traceback; afterwards as if nothing was."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from controller.store import session as ways
from tests.controller.api.conftest import HOUR, World, make
from tests.parts import BOTH

DATABASES = BOTH


def browser(w: World) -> Any:
    client = w.app.test_client()
    w.good("POST", "/users", {"name": "eve", "role": "user", "password": "a-long-password"})
    token = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/login").text)
    assert token
    answer = client.post("/login", data={"csrf_token": token[1], "name": "eve", "password": "a-long-password"})
    assert answer.status_code == 302, answer.text
    return client


@contextmanager
def away(w: World) -> Iterator[None]:
    """PostgreSQL: nobody gets in, and who was in is thrown out. SQLite: somebody holds the file."""
    if w.store.sqlite:
        w.store.engine.dispose()
        other = sqlite3.connect(str(w.store.engine.url.database), isolation_level=None)
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE revision SET number = number WHERE id = 1")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()
        return
    url = make_url(w.store.url)
    with psycopg.connect(
        host=str(url.query["host"]), user=url.username, dbname="postgres", autocommit=True
    ) as connection:
        name = url.database
        connection.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false'.encode())
        try:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            yield
        finally:
            connection.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true'.encode())


def sorry(answer: Any) -> str:
    text = answer.get_data(as_text=True)
    assert answer.status_code == 503, text
    assert answer.headers["Retry-After"] == "5"
    assert "Traceback" not in text
    return str(text)


def test_away_and_back(tmp_path: Any, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "LOCK_SECONDS", 0.1)
    w = make(tmp_path, database_url)
    why = "somebody else keeps the database locked" if w.store.sqlite else "the database does not answer"
    try:
        page = browser(w)
        made = w.book(HOUR, 2 * HOUR)
        with away(w):
            for method, path, body in (
                ("GET", "/reservations", None),
                ("POST", "/reservations", w.wish(3 * HOUR, 4 * HOUR)),
                ("POST", f"/reservations/{made['id']}/cancel", {}),
            ):
                said = w.bad(503, method, path, body, "maya")
                assert said["error"]["code"] == "unavailable"
                assert said["error"]["message"].startswith(why)
                assert ". Nothing was changed. What runs goes on" in said["error"]["message"]
            sorry(w.call("GET", "/me"))
            for path in ("/", "/bookings", "/login"):
                answer = page.get(path)
                if path != "/login" or answer.status_code != 200:  # a form that needs no database is shown
                    text = sorry(answer)
                    assert "Not possible at the moment" in text
                    assert "What runs goes on by its timetable" in text
            assert w.client.get("/healthz").status_code == 200
            ready = w.client.get("/readyz")
            assert ready.status_code == 503
            assert ready.get_json()["problems"]
        assert [r["id"] for r in w.get("/reservations")["items"]] == [made["id"]]
        assert w.book(3 * HOUR, 4 * HOUR)["status"] == "approved"
        assert page.get("/").status_code == 200
    finally:
        w.store.close()


def test_a_lock_that_somebody_keeps(tmp_path: Any, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads notices nothing; who writes waits for as long as people do, the next in the queue no longer than that."""
    w = make(tmp_path, database_url)
    with w.store.engine.connect() as connection:
        asked = "PRAGMA busy_timeout" if w.store.sqlite else "SHOW lock_timeout"
        assert connection.exec_driver_sql(asked).scalar() in (5000, "5s")
    w.store.close()
    monkeypatch.setattr(ways, "LOCK_SECONDS", 0.2)
    w.ctx.store = w.store = ways.Store(w.store.url)
    with w.store.write() as session:  # as of keys that were used long ago: that they are now is to be noted
        session.execute(ways.text("UPDATE api_keys SET last_used_at = 1"))
    other = ways.Store(w.store.url)
    with other.write() as session:
        session.execute(ways.text("SELECT 1"))
        assert w.get("/reservations")["items"] == []
        with ThreadPoolExecutor(4) as pool:
            wishes = [w.wish(n * HOUR, (n + 1) * HOUR) for n in range(1, 5)]
            answers = list(pool.map(lambda body: w.call("POST", "/reservations", body, "maya"), wishes))
        assert ["keeps the database locked" in sorry(a) for a in answers] == [True] * 4
    assert w.book(HOUR, 2 * HOUR)["status"] == "approved"
    other.close()
    w.store.close()


def test_a_full_disk(tmp_path: Any) -> None:
    w = make(tmp_path)
    with w.store.engine.connect() as connection:  # the one of the pool that this thread gets
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    many = [w.wish(n * HOUR, (n + 1) * HOUR, note="x" * 4000) for n in range(1, 60)]
    answers = [w.call("POST", "/reservations", body, "maya") for body in many]
    full = [a for a in answers if a.status_code != 201]
    assert full, "the file was not full"
    for answer in full:
        assert "the controller's disk is full" in sorry(answer)
    assert len(w.get("/reservations?limit=100", "maya")["items"]) == len(answers) - len(full)  # reading goes on
    with w.store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert w.book(200 * HOUR, 201 * HOUR)["status"] == "approved"
    w.store.close()


def test_a_database_that_may_only_be_read(w: World) -> None:
    name = w.store.engine.url.database
    only, again = (
        ("PRAGMA query_only=1", "PRAGMA query_only=0")
        if w.store.sqlite
        else (
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on',
            f'ALTER DATABASE "{name}" RESET default_transaction_read_only',
        )
    )
    connection = w.store.engine.connect()
    connection.exec_driver_sql(only)
    connection.commit()
    if w.store.sqlite:
        connection.close()  # the one of the pool that this thread gets
    else:
        w.store.engine.dispose()  # all but this one, which stays as it was
    try:
        assert "can only be read" in sorry(w.call("POST", "/reservations", w.wish(HOUR, 2 * HOUR), "maya"))
        assert w.get("/reservations")["items"] == []
    finally:
        if w.store.sqlite:
            connection = w.store.engine.connect()
        connection.exec_driver_sql(again)
        connection.commit()
        connection.close()
    if not w.store.sqlite:
        w.store.engine.dispose()
    assert w.book(HOUR, 2 * HOUR)["status"] == "approved"

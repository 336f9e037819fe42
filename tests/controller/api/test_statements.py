"""How many statements an answer takes: the same for two channels as for forty, for one booking as for hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.context import Context
from controller.fleet.live import Live
from controller.settings import Settings
from controller.store.session import Store
from controller.times import text_of
from controller.web import create_app
from tests.booking_world import HOUR, MODELS, WEEK, Statements, fill, key
from tests.parts import BOTH

DATABASES = BOTH
NOW = 1_800_000_000_000
SECRET = "sk-ss-statements"
# Sign-in is one of them; on SQLite a transaction's BEGIN is not counted.
WEEK_PAGE, CHANNELS, SLOTS, BOOKED, CONFLICT = 4, 11, 9, 9, 16


def book(store: Store, folder: Path, hour: int) -> tuple[int, int]:
    """(status, statements) of a booking of the first channel."""
    body = {"channel": "gpu000/ch0", "model": MODELS[0]}
    times = {"starts_at": text_of(NOW + WEEK + hour * HOUR), "ends_at": text_of(NOW + WEEK + (hour + 1) * HOUR)}
    return call(store, folder, "POST", "/reservations", {**body, **times})


def call(store: Store, folder: Path, method: str, path: str, body: dict[str, str] | None = None) -> tuple[int, int]:
    app = create_app(Context(Settings(state_dir=folder), store, Live(), clock=lambda: NOW))
    with Statements(store) as sent:
        answer = app.test_client().open(
            f"/api/v1{path}", method=method, json=body, headers={"Authorization": f"Bearer {SECRET}"}
        )
    return answer.status_code, sum(text not in ("BEGIN", "BEGIN IMMEDIATE") for text in sent.texts)


@pytest.mark.parametrize(("channels", "bookings"), [(2, 6), (40, 400)])
def test_the_number_of_statements_does_not_grow(
    database_url: str, tmp_path: Path, channels: int, bookings: int
) -> None:
    store = Store(database_url)
    fill(store, NOW, channels, bookings, 2 * bookings)
    key(store, "u000", SECRET, NOW)
    lock = 0 if store.sqlite else 1

    week = f"/reservations?from={text_of(NOW)}&to={text_of(NOW + WEEK)}&limit=1000"
    assert call(store, tmp_path, "GET", week) == (200, WEEK_PAGE)
    assert call(store, tmp_path, "GET", "/channels?limit=1000") == (200, CHANNELS)
    assert call(store, tmp_path, "GET", f"/slots?model={MODELS[1]}&minutes=60") == (200, SLOTS)
    assert book(store, tmp_path, 1) == (201, BOOKED - 1 + lock)
    assert book(store, tmp_path, 1) == (409, CONFLICT - 1 + lock)
    store.close()

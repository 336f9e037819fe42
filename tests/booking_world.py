"""A big world of channels and bookings, made up with a fixed seed: for figures, and for the number of statements."""

from __future__ import annotations

import random
from typing import Any

from sqlalchemy import event, insert

from controller.store.session import Store
from controller.store.tables import ApiKey, Base, Channel, Node, NodeModel, Reservation, User

HOUR, DAY, WEEK = 3_600_000, 86_400_000, 7 * 86_400_000
A_NODE = 10
PEOPLE = 50
MODELS = [f"org/model-{n}" for n in range(20)]


def fill(store: Store, now: int, channels: int, in_week: int, stored: int) -> None:
    """`channels` on nodes of ten, all with every model; `in_week` bookings in the seven days from `now`, the rest of
    `stored` before it, most of them over."""
    rnd = random.Random(5)
    people = [{"id": f"u{n:03}", "name": f"person {n}", "role": "user", "created_at": now} for n in range(PEOPLE)]
    nodes = [{"id": f"n{n:03}", "name": f"gpu{n:03}", "created_at": now} for n in range(-(-channels // A_NODE))]
    places = [
        {
            "id": f"c{n:03}", "node_id": nodes[n // A_NODE]["id"], "name": f"ch{n % A_NODE}", "created_at": now,
            "engines": ["llama.cpp"], "gpu_memory_bytes": 80_000_000_000,
        }
        for n in range(channels)
    ]  # fmt: skip
    names = [p["name"] for p in places[:A_NODE]]
    models = [
        {
            "node_id": n["id"], "name": m, "path": f"/models/{m}.gguf", "size_bytes": 8_000_000_000, "format": "gguf",
            "channels": names, "seen_at": now,
        }
        for n in nodes for m in MODELS
    ]  # fmt: skip
    bookings = [
        *_bookings(rnd, places, now, WEEK, in_week, "w"),
        *_bookings(rnd, places, now - 10 * WEEK, 10 * WEEK, stored - in_week, "o"),
    ]
    for row in bookings:
        over = row["ends_at"] <= now
        row["status"] = rnd.choice(("finished", "ended_early", "cancelled")) if over else "approved"
    with store.write() as session:
        for table, rows in ((User, people), (Node, nodes), (Channel, places), (NodeModel, models)):
            _insert(session, table, rows)
        _insert(session, Reservation, bookings)


def key(store: Store, user: str, secret: str, now: int) -> None:
    """An API key with this secret, used just now."""
    from controller.store.keys import digest

    with store.write() as session:
        session.add(
            ApiKey(
                user_id=user, name="bench", prefix=secret[:12], sha256=digest(secret), created_at=now, last_used_at=now
            )
        )


class Statements:
    """Counts what is sent to the database: `with Statements(store) as sent: …; sent.count`."""

    def __init__(self, store: Store) -> None:
        self._engine, self.texts = store.engine, list[str]()

    @property
    def count(self) -> int:
        return len(self.texts)

    def __enter__(self) -> Statements:
        event.listen(self._engine, "before_cursor_execute", self._sent)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "before_cursor_execute", self._sent)

    def _sent(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.texts.append(statement)


def _bookings(
    rnd: random.Random, places: list[dict[str, Any]], start: int, span: int, count: int, mark: str
) -> list[dict[str, Any]]:
    """So many bookings, spread evenly over the places and the time, with gaps between."""
    if not count:
        return []
    each = -(-count // len(places))
    share = span // each
    rows = []
    for place in places:
        for n in range(each):
            begin = start + n * share + rnd.randrange(share // 4)
            rows.append(
                {
                    "id": f"{mark}{place['id']}{n:04}", "channel_id": place["id"], "kind": "model",
                    "model": rnd.choice(MODELS), "starts_at": begin, "ends_at": begin + rnd.randrange(share // 4, share // 2),
                    "holder_id": (holder := f"u{rnd.randrange(PEOPLE):03}"), "booked_by": holder, "note": "made up",
                    "created_at": start, "approved_at": start, "participants": [f"u{rnd.randrange(PEOPLE):03}"],
                }
            )  # fmt: skip
    return rows[:count]


def _insert(session: Any, table: type[Base], rows: list[dict[str, Any]]) -> None:
    for at in range(0, len(rows), 2000):
        session.execute(insert(table), rows[at : at + 2000])

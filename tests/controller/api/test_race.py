"""Many people book, change, extend, approve, end and bring back at once: never two in one place, nobody beyond their
hours, and every attempt gets an answer.

Eight processes, each with the whole web application on the one database, as eight controllers would have it.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from controller.store import overlap
from controller.store.tables import HOLDING, Audit, Reservation
from controller.times import text_of
from tests.controller.api.conftest import HOUR, MIN, NOW, World, make
from tests.parts import BOTH

DATABASES = BOTH
PROCESSES, ACTIONS, WIDTH = 8, 60, 96
ACTS = ("create", "create", "create", "extend", "approve", "edit", "end", "uncancel", "restore")
HELD = 12  # hours that a person may have
# One interpreter that has imported everything becomes eight; each says its counts in a line.
FORKS = """
import json, os, sys
from tests.controller.api import test_race
which, folder, url, secrets, count = sys.argv[1:]
children = []
for seed in range(int(count)):
    child = os.fork()
    if not child:
        counts = getattr(test_race, which)(folder, url, json.loads(secrets), seed)
        os.write(1, (json.dumps(counts) + "\\n").encode())
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def forked(which: str, w: World, folder: Path, url: str) -> Counter[str]:
    """What eight processes that run the function `which` have counted together."""
    arguments = [which, str(folder), url, json.dumps(w.secrets), str(PROCESSES)]
    done = subprocess.run([sys.executable, "-c", FORKS, *arguments], stdout=subprocess.PIPE, text=True, timeout=220)
    assert done.returncode == 0
    counts: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        counts.update(json.loads(line))
    print(url.partition(":")[0], dict(sorted(counts.items())))
    return counts


def world(folder: str, url: str, secrets: dict[str, str]) -> World:
    from controller.context import Context
    from controller.fleet.live import Live
    from controller.settings import Settings
    from controller.store import session
    from controller.store.session import Store

    session.LOCK_SECONDS = 60.0  # eight on SQLite, which knows no turns: each has its answer, also on a busy machine
    store = Store(url)
    return World(Context(Settings(state_dir=Path(folder)), store, Live(), clock=lambda: NOW), store, secrets=secrets)


def everything(folder: str, url: str, secrets: dict[str, str], seed: int) -> dict[str, int]:
    """Acts on one channel, on everybody's bookings; counts of "act status", and of actions."""
    w = world(folder, url, secrets)
    chance, counts = random.Random(seed), Counter()
    for _ in range(ACTIONS):
        act = chance.choice(ACTS)
        said = _act(w, act, chance)
        counts[act if said is None else f"{act} {said}"] += 1
    w.store.close()
    return counts


def _act(w: World, act: str, chance: random.Random) -> int | None:
    """The status of the answer; None where there was nothing to act on."""
    if act == "create":
        answer = w.call("POST", "/reservations", w.wish(*_window(chance)), chance.choice(("maya", "noor", "tom")))
        if answer.status_code == 409:
            assert answer.get_json()["suggestions"]
        return answer.status_code
    status = {"approve": "pending", "uncancel": "cancelled", "restore": "cancelled"}.get(act, "approved")
    with w.store.read() as session:
        rows = list(session.scalars(select(Reservation).where(Reservation.status == status).order_by(Reservation.id)))
    if not rows:
        return None
    row, body = chance.choice(rows), {"reason": "because"}
    path = f"/reservations/{row.id}"
    if act == "restore":
        return _restore(w, row.id)
    if act == "edit":
        window = _window(chance)
        while (row.starts_at - NOW, row.ends_at - NOW) == window:  # it would be that already: nothing to write
            window = _window(chance)
        start, end = (text_of(NOW + at) for at in window)
        body |= {"starts_at": start, "ends_at": end, "version": row.version}
        return w.call("PATCH", path, body, "root").status_code
    if act == "extend":
        body |= {"minutes": chance.choice((15, 30, 45))}
    return w.call("POST", f"{path}/{act}", body, "root").status_code


def _window(chance: random.Random) -> tuple[int, int]:
    start = chance.randint(1, WIDTH) * 15 * MIN
    return start, start + chance.choice((15, 30, 60, 90)) * MIN


def _restore(w: World, booking: str) -> int:
    """A cancelled booking is approved again, past every rule but the database's own."""
    try:
        with w.store.write() as session:
            row = session.get(Reservation, booking)
            assert row is not None
            if row.status != "cancelled":
                return 409
            row.status, row.version = "approved", row.version + 1
    except IntegrityError as err:
        if not overlap.refused(err):
            raise
        return 409
    return 200


def hours(folder: str, url: str, secrets: dict[str, str], seed: int) -> dict[str, int]:
    """One person books and extends from many places at once, each at times of its own: only the hours are in the way."""
    w = world(folder, url, secrets)
    counts: Counter[str] = Counter()
    mine: list[str] = []
    for turn in range(9):
        start = (seed * 9 + turn) * 2 * HOUR
        if mine and turn % 3 == 2:
            act, answer = "extend", w.call("POST", f"/reservations/{mine[-1]}/extend", {"minutes": 30}, "maya")
        else:
            act, answer = "create", w.call("POST", "/reservations", w.wish(start, start + HOUR), "maya")
            mine += [answer.get_json()["id"]] if answer.status_code == 201 else []
        counts[f"{act} {answer.status_code}"] += 1
    w.store.close()
    return counts


@pytest.mark.timeout(240)  # ten seconds where nothing else runs
def test_processes_that_book_at_once(tmp_path: Path, database_url: str) -> None:
    w = make(tmp_path, database_url)
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "over", "approval_over_hours": 0.5}})
    counts = forked("everything", w, tmp_path, database_url)
    assert sum(counts.values()) == PROCESSES * ACTIONS, "every attempt got its answer"
    statuses = {said.split()[1] for said in counts if " " in said}
    assert statuses <= {"200", "201", "409"}, counts
    wanted = {f"{act} 200" for act in ACTS} - {"create 200"} | {"create 201", "create 409", "extend 409", "edit 409"}
    assert wanted <= counts.keys(), counts
    assert _overlapping(w) == []
    made = {
        "reservation.create": counts["create 201"],
        "reservation.edit": counts["extend 200"] + counts["edit 200"],
        "reservation.approved": counts["approve 200"],
        "reservation.cancelled": counts["end 200"],
        "reservation.uncancel": counts["uncancel 200"],
    }
    with w.store.read() as session:
        audited = session.execute(select(Audit.action, func.count()).group_by(Audit.action)).all()
    assert {a: n for a, n in audited if a.startswith("reservation.")} == made, "what was answered is what was written"
    w.store.close()


@pytest.mark.timeout(240)
def test_nobody_gets_beyond_their_hours_from_many_places_at_once(tmp_path: Path, database_url: str) -> None:
    w = make(tmp_path, database_url)
    w.good("PATCH", "/channels/n1/a", {"policy": {"max_hours_held": HELD, "max_days_ahead": None}})
    counts = forked("hours", w, tmp_path, database_url)
    assert sum(counts.values()) == PROCESSES * 9
    assert {said.split()[1] for said in counts} <= {"200", "201", "422"}, counts
    with w.store.read() as session:
        rows = list(session.scalars(select(Reservation).where(Reservation.status.in_(HOLDING))))
    held = sum(r.ends_at - r.starts_at for r in rows) / HOUR
    assert HELD - 1 < held <= HELD, counts
    assert len(rows) == counts["create 201"]
    w.store.close()


def _overlapping(w: World) -> list[Any]:
    query = select(Reservation).where(Reservation.status.in_(HOLDING)).order_by(Reservation.starts_at)
    with w.store.read() as session:
        rows = list(session.scalars(query))
    assert rows
    return [(a.id, b.id) for a, b in itertools.pairwise(rows) if a.ends_at > b.starts_at]


def test_a_decision_is_made_once(w: World) -> None:
    from concurrent.futures import ThreadPoolExecutor

    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "always"}})
    path = f"/reservations/{w.book(HOUR, 2 * HOUR)['id']}"

    def decide(turn: int) -> int:
        client = w.app.test_client()
        headers = {"Authorization": f"Bearer {w.secrets['ada']}"}
        act = ("approve", "reject")[turn % 2]
        return client.post(f"/api/v1{path}/{act}", json={"reason": "because"}, headers=headers).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(decide, range(6)))
    assert statuses == [200, 409, 409, 409, 409, 409]

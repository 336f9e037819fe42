"""Many people book, extend, approve and end at once: never two in one place, and every attempt gets an answer.

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

from controller.store.tables import HOLDING, Audit, Reservation
from tests.controller.api.conftest import HOUR, MIN, NOW, World, make
from tests.parts import BOTH

DATABASES = BOTH
PROCESSES, ACTIONS, WIDTH = 8, 60, 96
# One interpreter that has imported everything becomes eight; each says its counts in a line.
FORKS = """
import json, os, sys
from tests.controller.api.test_race import worker
folder, url, secrets, count = sys.argv[1:]
children = []
for seed in range(int(count)):
    child = os.fork()
    if not child:
        os.write(1, (json.dumps(worker(folder, url, json.loads(secrets), seed)) + "\\n").encode())
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def worker(folder: str, url: str, secrets: dict[str, str], seed: int) -> dict[str, int]:
    """Acts on one channel, on everybody's bookings; counts of "act status", and of actions."""
    from controller.context import Context
    from controller.fleet.live import Live
    from controller.settings import Settings
    from controller.store.session import Store

    store = Store(url)
    w = World(Context(Settings(state_dir=Path(folder)), store, Live(), clock=lambda: NOW), store, secrets=secrets)
    chance, counts = random.Random(seed), Counter()
    for _ in range(ACTIONS):
        act = chance.choice(("create", "create", "extend", "approve", "end"))
        said = _act(w, act, chance)
        counts[act if said is None else f"{act} {said}"] += 1
    store.close()
    return counts


def _act(w: World, act: str, chance: random.Random) -> int | None:
    """The status of the answer; None where there was nothing to act on."""
    if act == "create":
        start = chance.randint(1, WIDTH) * 15 * MIN
        wish = w.wish(start, start + chance.choice((15, 30, 60, 90)) * MIN)
        answer = w.call("POST", "/reservations", wish, chance.choice(("maya", "noor", "tom")))
        if answer.status_code == 409:
            assert answer.get_json()["suggestions"]
        return answer.status_code
    status = "pending" if act == "approve" else "approved"
    with w.store.read() as session:
        rows = list(session.scalars(select(Reservation).where(Reservation.status == status).order_by(Reservation.id)))
    if not rows:
        return None
    row, body = chance.choice(rows), {"reason": "because"}
    if act == "extend":
        body |= {"minutes": chance.choice((15, 30, 45))}
    return w.call("POST", f"/reservations/{row.id}/{act}", body, "root").status_code


@pytest.mark.timeout(240)  # ten seconds where nothing else runs
def test_processes_that_book_at_once(tmp_path: Path, database_url: str) -> None:
    w = make(tmp_path, database_url)
    w.good("PATCH", "/channels/n1/a", {"policy": {"approval": "over", "approval_over_hours": 0.5}})
    arguments = [str(tmp_path), database_url, json.dumps(w.secrets), str(PROCESSES)]
    done = subprocess.run([sys.executable, "-c", FORKS, *arguments], stdout=subprocess.PIPE, text=True, timeout=220)
    assert done.returncode == 0
    counts: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        counts.update(json.loads(line))
    assert sum(counts.values()) == PROCESSES * ACTIONS, "every attempt got its answer"
    statuses = {said.split()[1] for said in counts if " " in said}
    assert statuses <= {"200", "201", "409"}, counts
    assert {"create 201", "create 409", "extend 200", "extend 409", "approve 200", "end 200"} <= counts.keys(), counts
    assert _overlapping(w) == []
    made = {
        "reservation.create": counts["create 201"],
        "reservation.edit": counts["extend 200"],
        "reservation.approved": counts["approve 200"],
        "reservation.cancelled": counts["end 200"],
    }
    with w.store.read() as session:
        audited = session.execute(select(Audit.action, func.count()).group_by(Audit.action)).all()
    assert {a: n for a, n in audited if a.startswith("reservation.")} == made, "what was answered is what was written"
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

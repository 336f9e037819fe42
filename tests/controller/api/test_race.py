"""Many people book, extend and decide at once: never two in one place, and every attempt gets an answer."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

from sqlalchemy import select

from controller.store.tables import HOLDING, Reservation
from tests.controller.api.conftest import HOUR, MIN, NOW, World, make

PROCESSES, ACTIONS = 4, 20
WORKER = """
import json, sys
from pathlib import Path
from tests.controller.api.test_race import worker
print(json.dumps(worker(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))))
"""


def worker(folder: Path, secrets: dict[str, str], seed: int) -> dict[str, int]:
    """Books random windows of one channel, and extends or ends some; counts of answers by status."""
    from controller.context import Context
    from controller.fleet.live import Live
    from controller.settings import Settings
    from controller.store.session import Store

    store = Store(f"sqlite:///{folder / 'slotserve.db'}")
    w = World(Context(Settings(state_dir=folder), store, Live(), clock=lambda: NOW), store, secrets=secrets)
    chance, counts, mine = random.Random(seed), {}, []
    for turn in range(ACTIONS):
        who = chance.choice(("maya", "noor", "tom"))
        if turn % 4 == 3 and mine:
            name, owner = chance.choice(mine)
            answer = w.call("POST", f"/reservations/{name}/extend", {"minutes": chance.randint(1, 90)}, owner)
        elif turn % 7 == 6 and mine:
            name, owner = mine.pop()
            answer = w.call("POST", f"/reservations/{name}/cancel", {}, owner)
        else:
            start = chance.randint(1, 40) * 15 * MIN
            answer = w.call("POST", "/reservations", w.wish(start, start + chance.choice((15, 30, 60)) * MIN), who)
            if answer.status_code == 201:
                mine.append((answer.get_json()["id"], who))
            elif answer.status_code == 409:
                assert answer.get_json()["suggestions"]
        counts[str(answer.status_code)] = counts.get(str(answer.status_code), 0) + 1
    store.close()
    return counts


def test_processes_that_book_at_once(tmp_path: Path) -> None:
    w = make(tmp_path)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), json.dumps(w.secrets), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(PROCESSES)
    ]
    counts: dict[str, int] = {}
    for process in running:
        out, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        for status, count in json.loads(out).items():
            counts[status] = counts.get(status, 0) + count
    assert sum(counts.values()) == PROCESSES * ACTIONS
    assert counts.keys() <= {"201", "200", "409"}, counts
    assert counts["409"] > 0
    with w.store.read() as session:
        rows = list(
            session.scalars(select(Reservation).where(Reservation.status.in_(HOLDING)).order_by(Reservation.starts_at))
        )
    assert all(a.ends_at <= b.starts_at for a, b in itertools.pairwise(rows))
    made = w.get("/audit?limit=1000&action=reservation.create")["items"]
    assert len(made) == counts["201"]
    w.store.close()


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

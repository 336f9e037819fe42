"""Two controllers on one PostgreSQL: both serve people, one plans; it is killed, and the other goes on where it was."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.parts import free_port
from tests.postgres import PostgreSQL
from tests.system.cluster import BIN, Cluster, Process
from tests.system.conftest import SIMULATED, sim_model

pytestmark = [pytest.mark.system, pytest.mark.slow]


class Two(Cluster):
    """A cluster whose controller has a second beside it: `second`, at `second_url`."""

    def __init__(self, *args: Any, database_url: str, **kwargs: Any) -> None:
        fleet = free_port(), free_port()
        settings = {
            "SLOTSERVE_DATABASE_URL": database_url,
            "SLOTSERVE_LEASE_SECONDS": "3",
            "SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{fleet[0]}",
            "SLOTSERVE_FLEET_PEERS": f"127.0.0.1:{fleet[1]}",
        }
        super().__init__(*args, **kwargs, settings=settings)
        self.second_url = f"http://127.0.0.1:{free_port()}"
        own = {
            "SLOTSERVE_STATE_DIR": str(self.root / "c2"),
            "SLOTSERVE_HTTP_LISTEN": self.second_url[7:],
            "SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{fleet[1]}",
            "SLOTSERVE_FLEET_PEERS": f"127.0.0.1:{fleet[0]}",
        }
        self.second = Process("second", [str(BIN / "slotserve"), "serve"], self.env | own, self.root)

    def start_second(self) -> None:
        shutil.copytree(self.root / "c" / "ca", self.root / "c2" / "ca", dirs_exist_ok=True)
        for key in ("session.key", "secrets.key"):
            shutil.copy(self.root / "c" / key, self.root / "c2" / key)
        self.second.start()
        self.until(lambda: httpx.get(self.second_url + "/readyz").status_code == 200, 30, "the second is ready")

    def at(self, url: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.keys['root']}"}
        return self._good(httpx.get(f"{url}/api/v1{path}", headers=headers, timeout=20))

    def leads(self, url: str) -> bool:
        return "slotserve_leader 1.0" in httpx.get(url + "/metrics", timeout=20).text

    def __exit__(self, *raised: Any) -> None:
        if raised[1] is not None:
            print(self.second.tail(60))
        self.second.stop()
        super().__exit__(*raised)


@pytest.fixture
def two(postgresql: PostgreSQL, tmp_path: Path) -> Iterator[Two]:
    for name in ("alpha", "beta"):
        sim_model(tmp_path, name, load_seconds=0.2, token_ms=20)
    channel = {"folder": tmp_path, "engines": ["simulated"]}
    with postgresql.database() as url, Two(SIMULATED, {"main": channel}, database_url=url) as cluster:
        cluster.set_default("alpha")
        cluster.until_ready("alpha")
        cluster.start_second()
        yield cluster


def test_both_serve_one_leads_and_the_other_takes_over(two: Two) -> None:
    first, second = two.url, two.second_url
    assert two.leads(first)
    assert not two.leads(second)
    seen = two.until(lambda: _ready(two.at(second, "/channels/n1/main")), 20, "the second sees what is live")
    assert seen["running"]["model"] == "alpha"
    text = two.at(second, "/channels/n1/main/log?offset=0")
    assert text["text"] == two.at(first, "/channels/n1/main/log?offset=0")["text"] != ""

    # Booked at the one that does not plan: carried out at once, not at the planner's next tick.
    headers = {"Authorization": f"Bearer {two.keys['maya']}"}
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    body = {"channel": "n1/main", "kind": "model", "model": "beta", "starts_at": "now", "ends_at": ends}
    made = httpx.post(f"{second}/api/v1/reservations", json=body, headers=headers, timeout=20)
    assert made.status_code == 201, made.text
    two.until_ready("beta")

    pids = two.engine_pids()
    plan = two.at(first, "/channels/n1/main/plan")
    killed = time.monotonic()
    two.controller.stop(signal.SIGKILL)
    with two.openai("maya").chat.completions.create(
        model="beta", messages=[{"role": "user", "content": "hello"}], max_tokens=40, stream=True
    ) as stream:
        assert len(list(stream)) > 1  # nobody who calls notices
    two.until(lambda: two.leads(second), 30, "the second leads")
    two.until(lambda: _ready(two.at(second, "/channels/n1/main")), 30, "the agent has found the second")
    print(f"leader killed, the other in charge and heard by the agent after {time.monotonic() - killed:.1f} s")
    now = two.at(second, "/channels/n1/main")
    assert (now["running"]["model"], now["why"]) == ("beta", "reserved")
    assert two.engine_pids() == pids
    assert _bare(two.at(second, "/channels/n1/main/plan")) == _bare(plan)

    two.start_controller()  # comes back, and follows
    assert not two.leads(first)
    two.until(lambda: _ready(two.at(first, "/channels/n1/main")), 20, "the first sees what is live")
    two.second.stop()  # planned, as in a rolling upgrade: the lease is given back, and people notice nothing at the other
    later = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200 + s)) for s in (0, 3600)]
    body |= {"starts_at": later[0], "ends_at": later[1]}
    made = httpx.post(f"{first}/api/v1/reservations", json=body, headers=headers, timeout=20)
    assert made.status_code == 201, made.text
    assert two.chat("maya", "beta").status_code == 200
    two.until(lambda: two.leads(first), 20, "the first leads again")
    assert "Traceback" not in two.second.output.read_text() + two.agent.output.read_text()
    two.until(lambda: _ready(two.at(first, "/channels/n1/main")), 30, "the agent has found the first")
    assert two.engine_pids() == pids


def test_a_controller_with_another_ca_does_not_start(two: Two) -> None:
    env = two.env | {"SLOTSERVE_STATE_DIR": str(two.root / "c3"), "SLOTSERVE_FLEET_LISTEN": "127.0.0.1:0"}
    done = subprocess.run(
        [str(BIN / "slotserve"), "serve"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    said = "ca/ca.crt and session.key and secrets.key are not those of the controllers of this database"
    assert said in " ".join(done.stderr.split())
    assert "copy the folder ca and the files session.key and secrets.key" in " ".join(done.stderr.split())
    assert not (two.root / "c3" / "ca" / "ca.key").exists()


@pytest.mark.timeout(300)
def test_a_controller_that_missed_another_ca_does_not_lead_until_it_has_it(two: Two) -> None:
    """The folder is copied too late: the nodes have renewed, and only then is it there."""
    second = two.second_url

    def waited_for(step: str, env: dict[str, str]) -> None:
        def show(what: str) -> Any:
            done = subprocess.run(
                [str(BIN / "slotserve"), "--json", "ca", what], env=env, capture_output=True, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        show(step)
        two.until(lambda: show("show")["waiting"] == [], 60, f"nobody is waited for after {step}")

    waited_for("prepare", two.env)
    waited_for("switch", two.env)
    said = two.until(lambda: _not_ready(second), 30, "the second says that it is not ready")
    assert said[0].startswith("ca/ca.crt differ from the other controllers'")
    pids = two.engine_pids()
    two.controller.stop(signal.SIGKILL)
    two.until(lambda: "follows and does not lead" in two.second.output.read_text(), 30, "it says why it does not lead")
    time.sleep(4)  # the lease's length and more
    assert not two.leads(second)
    found = subprocess.run(
        [str(BIN / "slotserve"), "doctor"], env=two.second.env, capture_output=True, text=True, timeout=60
    )
    assert "WRONG  files shared with the other controllers" in found.stdout
    assert "copy the folder ca" in " ".join(found.stdout.split())
    shutil.copytree(two.root / "c2", two.root / "c3", ignore=shutil.ignore_patterns("serve.lock", "ports.json"))
    env = two.env | {"SLOTSERVE_STATE_DIR": str(two.root / "c3"), "SLOTSERVE_FLEET_LISTEN": "127.0.0.1:0"}
    done = subprocess.run([str(BIN / "slotserve"), "serve"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "ca/ca.crt differ from the controllers of this database" in done.stderr) == (1, True)

    shutil.copytree(two.root / "c" / "ca", two.root / "c2" / "ca", dirs_exist_ok=True)  # while it runs
    two.until(lambda: two.leads(second), 30, "the second leads")
    two.until(lambda: _ready(two.at(second, "/channels/n1/main")), 60, "the agent has found it")
    waited_for("finish", two.second.env)
    two.start_controller()  # has the old one still, which harms nobody
    two.until(lambda: _ready(two.at(two.url, "/channels/n1/main")), 60, "the first sees what is live")
    assert two.engine_pids() == pids


def _not_ready(url: str) -> list[str]:
    answer = httpx.get(f"{url}/readyz", timeout=20)
    return list(answer.json()["problems"]) if answer.status_code == 503 else []


def _ready(channel: Any) -> Any:
    return channel if channel["phase"] == "ready" else None


def _bare(plan: Any) -> str:
    return json.dumps(plan["steps"][0], sort_keys=True)

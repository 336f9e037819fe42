"""Other fleets than the story's: PostgreSQL beside the controller, an engine from a package, then a second controller.

For who changes the roles (`make test-hosts-more`; root only): another ten minutes, which CI does not spend.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.hosts.engine import offer_package
from tests.hosts.fleet import TINY, Fleet, PlayFailed
from tests.hosts.inventories import with_postgresql
from tests.hosts.lab import NET, Host
from tests.hosts.load import Load
from tests.hosts.looks import runs
from tests.parts import wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.timeout(1800)]
PASSWORD = "by-the-tests"  # of the database's role


@pytest.fixture(scope="module", autouse=True)
def inventory(fleet: Fleet, archive: Path) -> None:
    offer_package(archive, fleet.lab.hosts[2])
    fleet.take(with_postgresql(fleet, 1, slotserve_controller_database="postgresql"))


def test_a_controller_on_postgresql_and_an_engine_from_a_package(fleet: Fleet) -> None:
    fleet.play("site.yml", "--check")
    fleet.play("site.yml")
    assert "tiny on h3/main" in fleet.play_said("try.yml")
    in_force = {s["variable"]: s["value"] for s in fleet.cli("settings", "--local")["items"]}
    assert in_force["SLOTSERVE_DATABASE_URL"].startswith("postgresql")
    assert fleet.lab.hosts[2].run("dpkg-query", "-W", "llama.cpp-tools").stdout.split() == ["llama.cpp-tools", "1"]


def test_once_more_changes_nothing(fleet: Fleet) -> None:
    done = fleet.play("site.yml")
    assert {h: done[h]["changed"] for h in done} == dict.fromkeys(done, 0)


def test_settings_that_are_refused_change_nothing(fleet: Fleet) -> None:
    h1, _, h3 = fleet.lab.hosts
    files = [
        h1.root / "etc/slotserve/controller.env",
        h3.root / "etc/slotserve/agent.env",
        h3.root / "etc/slotserve/node.toml",
    ]
    before = [file.read_text() for file in files]
    for limit, said, words in (
        ("h1", {"slotserve_controller_settings": {"max_booking_hours": -1}}, "SLOTSERVE_MAX_BOOKING_HOURS"),
        ("h3", {"slotserve_agent_settings": {"drain_seconds": "soon"}}, "SLOTSERVE_DRAIN_SECONDS"),
        ("h3", {"slotserve_agent_gateway_address": "nowhere at all"}, "gateway.listen"),
    ):
        with pytest.raises(PlayFailed) as told:
            fleet.play("site.yml", "--limit", limit, "-e", json.dumps(said))
        assert words in told.value.output
    assert [file.read_text() for file in files] == before
    assert answers(h1)
    assert fleet.status(h3)["connected"]


def test_a_backup_of_postgresql_is_put_back(fleet: Fleet) -> None:
    kept = fleet.book("h3", TINY, 600, start_in=86400)
    fleet.controller.run("slotserve-backup", "kept")
    fleet.api("POST", f"/reservations/{kept['id']}/cancel", {"reason": "test"})
    fleet.play("restore.yml", "-e", "slotserve_controller_restore_file=/var/backups/slotserve/kept.slotserve")
    wait_until(lambda: answers(fleet.controller), 60, "the controller is back", every=0.5)
    assert fleet.api("GET", f"/reservations/{kept['id']}")["status"] == "approved"


def answers(host: Host) -> bool:
    try:
        return httpx.get(f"https://{host.address}/readyz", verify=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_second_controller_joins(fleet: Fleet) -> None:
    h1, h2, _ = fleet.lab.hosts
    open_database(h1)
    url = f"postgresql://slotserve:{PASSWORD}@{h1.address}/slotserve"
    fleet.take(
        with_postgresql(
            fleet, 2, slotserve_controller_database="external", slotserve_controller_secrets={"database_url": url}
        )
    )
    fleet.play("site.yml")
    for host in (h1, h2):
        assert answers(host)
        assert [n["name"] for n in fleet.api("GET", "/nodes", at=host)["items"]] == ["h3"]
        assert fleet.api("GET", "/nodes/h3", at=host)["online"]
    done = fleet.play("site.yml")
    assert {h: done[h]["changed"] for h in done} == dict.fromkeys(done, 0)


def open_database(host: Host) -> None:
    """What whoever runs a database for several machines does."""
    host.sh(
        f"runuser -u postgres -- psql -qc \"ALTER ROLE slotserve PASSWORD '{PASSWORD}'\" && "
        "runuser -u postgres -- psql -qc \"ALTER SYSTEM SET listen_addresses = '*'\" && "
        f"echo 'host slotserve slotserve {NET}.0/24 scram-sha-256' >> /etc/postgresql/15/main/pg_hba.conf && "
        "systemctl restart postgresql"
    )


def test_the_second_leads_when_the_first_is_away(fleet: Fleet) -> None:
    h1, h2, h3 = fleet.lab.hosts
    fleet.book("h3", TINY, 3600)
    fleet.ready("h3", TINY)
    with Load(fleet, h3, 8) as load:
        h1.run("systemctl", "stop", "slotserve-controller")
        wait_until(lambda: fleet.api("GET", "/nodes/h3", at=h2)["online"], 60, "h3 is with h2", every=0.5)
        booked = fleet.api("GET", "/reservations?channel=h3/main&status=approved", at=h2)["items"]
        assert booked
        h1.run("systemctl", "start", "slotserve-controller")
        wait_until(lambda: answers(h1), 60, "h1 is back", every=0.5)
    assert load.problems == []


def test_the_certificate_authority_is_changed_on_both(fleet: Fleet) -> None:
    h1, h2, h3 = fleet.lab.hosts
    engine = fleet.engine(h3)
    fleet.play("rotate-ca.yml")
    shown = [host.run("sha256sum", "/var/lib/slotserve/ca/ca.crt").stdout.split()[0] for host in (h1, h2)]
    assert shown[0] == shown[1]
    for host in (h1, h2):
        wait_until(lambda h=host: fleet.api("GET", "/nodes/h3", at=h)["online"], 60, "h3 is there", every=0.5)
    assert fleet.engine(h3) == engine
    # Each can serve with the new one alone.
    h1.run("systemctl", "restart", "slotserve-controller")
    wait_until(lambda: answers(h1), 60, "h1 is back", every=0.5)


def test_both_are_upgraded_under_load_and_go_back(fleet: Fleet) -> None:
    """Ctrl-C between a link's change and the restart that belongs to it leaves the release before running; the next run of the
    play puts that right."""
    h1, h2, h3 = fleet.lab.hosts
    engine, before = fleet.engine(h3), fleet.release(h3)
    with Load(fleet, h3, 8) as load:
        for host, component in ((h1, "controller"), (h3, "agent")):
            fleet.interrupt(
                "upgrade.yml",
                when=lambda host=host, component=component: fleet.release(host, component) != before,
                checkout=fleet.next,
            )
        after = fleet.release(h3)
        assert runs(h3, "agent", "agent") == runs(h3, "agent", "gateway") == before
        fleet.play("upgrade.yml", checkout=fleet.next)
        assert {runs(host, "controller", "controller") for host in (h1, h2)} == {after}
        assert runs(h3, "agent", "agent") == runs(h3, "agent", "gateway") == after
        fleet.play("rollback.yml")
        fleet.play("rollback.yml")  # once more is the same
    assert load.problems == []
    assert fleet.release(h3) == runs(h3, "agent", "agent") == runs(h3, "agent", "gateway") == before
    assert {runs(host, "controller", "controller") for host in (h1, h2)} == {before}
    assert fleet.engine(h3) == engine

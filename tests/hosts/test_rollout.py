"""From bare hosts to a fleet, and what befalls it: real systemd, real sandboxes, real networks, a real llama-server.

One story: each test goes on where the one before has ended (`make test-hosts`; root only).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import grpc
import pytest
import yaml

from agent.enrolment import enrol, read_join
from agent.errors import EnrolmentFailed
from agent.state import State
from controller.fleet.ca import CertificateAuthority
from tests.fleet_parts import join_string
from tests.hosts.certificates import knock, with_expired_certificate
from tests.hosts.fleet import SMALL, TINY, Fleet, PlayFailed, rfc3339
from tests.hosts.inventories import story
from tests.hosts.lab import OUTSIDE
from tests.hosts.load import Load, loaded
from tests.hosts.looks import gateways, online, reached, reported
from tests.parts import ROOT, wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", autouse=True)
def inventory(fleet: Fleet, archive: Path) -> None:
    fleet.take(story(fleet, archive))


def test_check_mode_works_on_bare_hosts_and_changes_nothing(fleet: Fleet) -> None:
    done = fleet.play("site.yml", "--check")
    assert {done[h]["failed"] for h in ("h1", "h2", "h3")} == {0}
    for host in fleet.lab.hosts:
        assert not (host.root / "etc/slotserve").exists()
        assert not (host.root / "opt/slotserve").exists()


def test_what_is_in_the_way_is_told_before_anything_is_changed(fleet: Fleet) -> None:
    with pytest.raises(PlayFailed) as told:
        fleet.play(
            "preflight.yml", "-e", "slotserve_agent_expected_gpus=2", "-e", "slotserve_common_free_megabytes=900000000"
        )
    words = told.value.output
    assert "Nothing has been changed on h2" in words
    assert "the GPU driver does not answer (nvidia-smi" in words
    assert "MB are free in /opt/slotserve; 900000000 are needed" in words
    assert not (fleet.nodes[0].root / "etc/slotserve").exists()


def test_the_readmes_commands_end_with_a_served_completion(fleet: Fleet) -> None:
    text = (ROOT / "ansible/README.md").read_text()
    (commands,) = re.findall(
        r"```sh\n(.*?)```", text.partition("## From nothing to an answer")[2].partition("\n## ")[0], re.S
    )
    said = fleet.script("README", commands)
    for name in ("h2", "h3"):
        (answer,) = re.findall(rf"msg: ['\"]?tiny on {name}/main: (.*)", said)
        assert answer.strip("'\" ")
    nodes = {n["name"]: n for n in fleet.api("GET", "/nodes")["items"]}
    assert {name: n["online"] for name, n in nodes.items()} == {"h2": True, "h3": True}


def test_once_more_changes_nothing(fleet: Fleet) -> None:
    done = fleet.play("site.yml")
    assert {h: done[h]["changed"] for h in done} == dict.fromkeys(done, 0)


def test_the_services_are_as_shut_in_as_the_readme_says(fleet: Fleet) -> None:
    text = (ROOT / "ansible/README.md").read_text()
    told = dict(re.findall(r"^\| `(slotserve-\w+)\.\w+`.* \| ([0-9.]+) \|$", text, re.M))
    found = {}
    for unit in told:
        host = fleet.nodes[0] if unit in ("slotserve-agent", "slotserve-gateway") else fleet.controller
        said = host.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout.splitlines()[-1]
        (found[unit],) = re.findall(r": ([0-9.]+) ", said)
        user = host.run("systemctl", "show", "--property=User", "--value", unit).stdout.strip()
        assert user == ("" if unit == "slotserve-backup" else "slotserve")
    assert found == told
    host = fleet.nodes[0]
    assert host.sh("stat -c %a /var/lib/slotserve-agent/identity.json").stdout.strip() == "600"
    assert host.sh("runuser -u nobody -- cat /etc/slotserve/node.toml", check=False).returncode != 0


def test_a_booking_is_served_by_a_real_model_on_each_node(fleet: Fleet) -> None:
    for host, model in zip(fleet.nodes, (SMALL, TINY), strict=True):
        # Threads that wait for each other by spinning take what everything else here needs.
        fleet.cli("preset", "add", f"{model}:calm", "--engine", "llama.cpp", "--args", "--threads 1")
        booked = fleet.book(host.name, model, 7200, preset="calm")
        fleet.ready(host.name, model)
        answer = fleet.ask(host)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-SlotServe-Model"] == model
        assert answer.json()["choices"][0]["message"]["content"].strip()
        assert booked["status"] == "approved"


def test_a_gateway_passes_on_what_another_node_serves(fleet: Fleet) -> None:
    def passed_on() -> bool:
        answer = fleet.ask(fleet.nodes[0], path="", model=TINY)
        return answer.status_code == 200 and answer.headers["X-SlotServe-Model"] == TINY

    wait_until(passed_on, 30, "h2 passes on to h3", every=0.5)


def test_only_those_inside_reach_the_ports(fleet: Fleet) -> None:
    """SlotServe's ports are for the networks that the inventory names; other ports are none of its business."""
    h1, h2, h3 = (h.address for h in fleet.lab.hosts)
    guarded = [(h1, 443), (h1, 80), (h1, 8701), (h1, 8702), (h2, 8710), (h2, 8712), (h3, 8710), (h3, 8712)]
    assert [place for place in guarded if not reached(place)] == []
    assert [place for place in (*guarded, (h3, 8711)) if reached(place, OUTSIDE, 0.5)] == []
    assert not reached((h3, 8711), seconds=0.5), "figures are for the controller's host alone"
    assert fleet.controller.sh(f"curl -sf http://{h3}:8711/metrics | grep -c slotserve_").stdout.strip() != "0"
    assert reached((h1, 22), OUTSIDE)


def test_what_prometheus_is_to_ask_answers(fleet: Fleet) -> None:
    etc = fleet.controller.root / "etc/prometheus"
    jobs = {j["job_name"]: j for j in yaml.safe_load((etc / "slotserve-scrape.yml").read_text())["scrape_configs"]}
    asked = 0
    for name, job in jobs.items():
        words = ["curl", "-sSf", "--max-time", "10"]
        if "authorization" in job:
            words += ["-H", f"Authorization: Bearer {fleet.key}"]
        for group in job["static_configs"]:
            scheme = group.get("labels", {}).get("__scheme__", job.get("scheme", "http"))
            for target in group["targets"]:
                figures = fleet.controller.run(*words, f"{scheme}://{target}/metrics").stdout
                assert "slotserve_" in figures, f"{name} {target}"
                asked += 1
    assert asked == 3
    assert yaml.safe_load((etc / "rules/slotserve.yml").read_text())["groups"]
    assert json.loads((fleet.controller.root / "var/lib/grafana/dashboards/slotserve.json").read_text())["panels"]


def test_stolen_tokens_and_foreign_certificates_open_nothing(fleet: Fleet, tmp_path: Path) -> None:
    join = fleet.cli("node", "add", "h9")["join"]
    told = read_join(join)
    stolen = join_string(told.address, "h2", told.token, told.ca)
    with pytest.raises(EnrolmentFailed, match="not for a node called 'h2'"):
        enrol(stolen, State(tmp_path / "thief"))
    state = State(tmp_path / "h9")
    enrol(join, state)
    with pytest.raises(EnrolmentFailed, match="has been used"):
        enrol(join, State(tmp_path / "late"))
    foreign = CertificateAuthority(tmp_path / "foreign")
    key, certificate = foreign.controller_pair()
    ours = state.identity()
    assert knock(ours.fleet_address, ours.ca, key, certificate, "h2") is grpc.StatusCode.UNAVAILABLE
    # A good certificate speaks for its own node only.
    assert knock(ours.fleet_address, ours.ca, ours.key, ours.certificate, "h2") is grpc.StatusCode.PERMISSION_DENIED
    fleet.api("DELETE", "/nodes/h9")
    assert knock(ours.fleet_address, ours.ca, ours.key, ours.certificate, "h9") is grpc.StatusCode.PERMISSION_DENIED
    assert fleet.node("h2")["online"]


def test_an_engine_keeps_its_files_while_the_agent_is_restarted(fleet: Fleet) -> None:
    host = fleet.nodes[0]
    engine = fleet.engine(host)
    environment = host.sh(f"tr '\\0' '\\n' < /proc/{engine}/environ").stdout
    (folder,) = re.findall(r"^TMPDIR=(.*)$", environment, re.M)
    assert folder.startswith("/var/lib/slotserve-agent/")
    held = f"{folder}/held"
    host.sh(f"runuser -u slotserve -- sh -c 'echo held > {held}'")
    before = host.run("systemctl", "show", "--property=MainPID", "--value", "slotserve-agent").stdout
    for line in ("systemctl restart slotserve-agent", "systemctl kill --kill-whom=main --signal=KILL slotserve-agent"):
        host.sh(line)
        wait_until(lambda: fleet.status(host)["connected"], 60, "connected again", every=0.3)
        assert fleet.engine(host) == engine
        assert host.run("cat", held).stdout == "held\n"
        assert fleet.ask(host).status_code == 200
    assert host.run("systemctl", "show", "--property=MainPID", "--value", "slotserve-agent").stdout != before


def test_a_node_is_not_upgraded_before_its_controller(fleet: Fleet) -> None:
    with pytest.raises(PlayFailed) as told:
        fleet.play("upgrade.yml", "--limit", "h2", checkout=fleet.next)
    assert "upgrade the controller first, or with the nodes (without --limit)" in " ".join(told.value.output.split())


def test_an_upgrade_drops_no_stream_and_refuses_nobody(fleet: Fleet) -> None:
    engines = {h.name: fleet.engine(h) for h in fleet.nodes}
    releases = {h.name: fleet.release(h) for h in fleet.nodes}
    processes = {h.name: gateways(h) for h in fleet.nodes}
    with loaded(fleet) as load:
        done = fleet.play("upgrade.yml", checkout=fleet.next)
    assert {h: done[h]["failed"] for h in done} == dict.fromkeys(done, 0)
    assert [p for each in load for p in each.problems] == []
    assert all(each.streams for each in load)
    print("streams during the upgrade:", sum(each.streams for each in load))
    assert {h.name: fleet.engine(h) for h in fleet.nodes} == engines
    for host in fleet.nodes:
        assert fleet.release(host) != releases[host.name]
        shown = fleet.node(host.name)
        assert shown["online"]
        assert fleet.release(host).removeprefix("releases/").startswith(shown["version"])
        wait_until(lambda h=host: gateways(h) == processes[h.name], 60, "the old gateway has ended", every=0.5)
    newest = json.loads((fleet.next / "ansible/wheelhouse/release.json").read_text())["version"]
    assert fleet.node("h2")["version"] == newest


def test_a_rollback_goes_back_as_quietly(fleet: Fleet) -> None:
    engines = {h.name: fleet.engine(h) for h in fleet.nodes}
    with loaded(fleet) as load:
        fleet.play("rollback.yml")
    assert [p for each in load for p in each.problems] == []
    assert {h.name: fleet.engine(h) for h in fleet.nodes} == engines
    wanted = json.loads((fleet.checkout / "ansible/wheelhouse/release.json").read_text())["version"]
    wait_until(
        lambda: {fleet.node(h.name)["version"] for h in fleet.nodes} == {wanted}, 30, "both are of the release before"
    )


def test_a_backup_is_put_back_while_the_nodes_go_on(fleet: Fleet) -> None:
    engine = fleet.engine(fleet.nodes[0])
    kept = fleet.book("h2", TINY, 600, start_in=86400)
    fleet.controller.run("systemctl", "start", "slotserve-backup")  # as the timer does it
    fleet.controller.run("slotserve-backup", "kept")
    kept_here = fleet.controller.sh("ls /var/backups/slotserve").stdout.split()
    assert [name for name in kept_here if name.startswith("20")], kept_here
    assert "kept.slotserve" in kept_here
    fleet.api("POST", f"/reservations/{kept['id']}/cancel", {"reason": "test"})
    lost = fleet.book("h3", TINY, 600, start_in=86400)
    with pytest.raises(PlayFailed) as told:
        fleet.play("restore.yml", "-e", "slotserve_controller_restore_file=/var/backups/slotserve/none.slotserve")
    assert "Nothing has been changed: /var/backups/slotserve/none.slotserve is not on h1." in told.value.output
    with Load(fleet, fleet.nodes[0], 8) as load:
        fleet.play("restore.yml", "-e", "slotserve_controller_restore_file=/var/backups/slotserve/kept.slotserve")
        wait_until(lambda: online(fleet, "h2") and online(fleet, "h3"), 60, "both nodes are back", every=0.5)
    assert load.problems == []
    assert fleet.engine(fleet.nodes[0]) == engine
    assert fleet.api("GET", f"/reservations/{kept['id']}")["status"] == "approved"
    assert lost["id"] not in {r["id"] for r in fleet.api("GET", "/reservations?channel=h3/main")["items"]}


def test_a_node_that_is_rebooted_in_a_booking_comes_back_to_it(fleet: Fleet) -> None:
    host = fleet.nodes[0]
    host.reboot()
    fleet.ready("h2", SMALL, 90)
    assert fleet.ask(host).status_code == 200
    assert fleet.status(host)["connected"]


def test_the_controllers_reboot_disturbs_no_node(fleet: Fleet) -> None:
    host = fleet.nodes[0]
    engine = fleet.engine(host)
    with Load(fleet, host, 8) as load:
        fleet.controller.reboot()
        wait_until(lambda: online(fleet, "h2") and online(fleet, "h3"), 60, "both nodes are back", every=0.5)
    assert load.problems == []
    assert load.streams
    assert fleet.engine(host) == engine


def test_a_node_that_is_cut_off_keeps_to_the_timetable(fleet: Fleet) -> None:
    host = fleet.nodes[1]
    for reservation in fleet.api("GET", "/reservations?channel=h3/main&status=approved")["items"]:
        fleet.api("POST", f"/reservations/{reservation['id']}/end", {"reason": "test"})
    wait_until(lambda: fleet.channel("h3")["phase"] == "off", 30, "h3 is empty", every=0.3)
    before = fleet.node("h3")["plan"]["newest_generation"]
    fleet.book("h3", TINY, 20, start_in=15)
    wait_until(
        lambda: before < (p := fleet.node("h3")["plan"])["newest_generation"] == p["generation"],
        10,
        "the plan is there",
    )
    loads = reported(fleet)
    host.unplug()
    try:
        shown = host.root / "var/lib/slotserve-agent/status.json"

        def phase() -> str:
            return json.loads(shown.read_text())["channels"][0]["phase"]

        wait_until(lambda: phase() == "ready", 40, "loaded by itself", every=0.3)
        wait_until(lambda: not fleet.node("h3")["online"], 60, "the controller misses it", every=0.5)
        wait_until(lambda: phase() == "off", 60, "emptied by itself", every=0.3)
    finally:
        host.plug()
    wait_until(lambda: fleet.node("h3")["online"], 60, "back", every=0.5)
    wait_until(lambda: fleet.channel("h3")["phase"] == "off", 20, "and empty", every=0.3)
    wait_until(lambda: reported(fleet) > loads, 30, "what it loaded while it was alone is reported", every=0.5)


def test_a_certificate_that_ran_out_while_the_node_was_off(fleet: Fleet) -> None:
    host = fleet.nodes[1]
    with_expired_certificate(fleet, host, 50 * 60)  # within the hour by which our certificates begin early
    wait_until(lambda: fleet.status(host)["connected"], 60, "connected with a new certificate", every=0.5)
    until = fleet.status(host)["enrolled"]["certificate_until"]
    assert until > rfc3339(time.time() + 80 * 86400)
    wait_until(lambda: fleet.node("h3")["online"], 20)


def test_the_certificate_authority_is_changed_while_all_runs(fleet: Fleet) -> None:
    before = fleet.cli("ca", "show")
    engine = fleet.engine(fleet.nodes[0])
    with Load(fleet, fleet.nodes[0], 8) as load:
        fleet.play("rotate-ca.yml")
    after = fleet.cli("ca", "show")
    assert after["signs"] != before["signs"]
    assert (after["step"], after["old"], after["waiting"]) == ("steady", [], [])
    assert load.problems == []
    assert fleet.engine(fleet.nodes[0]) == engine
    assert all(online(fleet, h.name) for h in fleet.nodes)


def test_a_node_is_decommissioned(fleet: Fleet) -> None:
    host = fleet.nodes[1]
    fleet.free("h3")
    fleet.book("h3", TINY, 3600)
    fleet.ready("h3", TINY)
    engine = fleet.engine(host)
    identity = (host.root / "var/lib/slotserve-agent/identity.json").read_text()
    fleet.play("decommission.yml", "-e", "slotserve_decommission=h3")
    assert [n["name"] for n in fleet.api("GET", "/nodes")["items"]] == ["h2"]
    assert host.sh(f"test -d /proc/{engine}", check=False).returncode != 0
    assert (host.root / "srv/models/tiny.gguf").exists()
    assert host.run("systemctl", "list-unit-files", "slotserve-*", "--no-legend", check=False).stdout.strip() == ""
    said = json.loads(identity)
    code = knock(said["fleet_address"], *(said[n].encode() for n in ("ca", "key", "certificate")), "h3")
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert fleet.ask(fleet.nodes[0]).status_code == 200, "the other one is not touched"

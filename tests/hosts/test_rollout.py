"""From bare hosts to a fleet, and what befalls it: real systemd, real sandboxes, real networks, a real llama-server.

One story: each test goes on where the one before has ended (`make test-hosts`; root only).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from agent.enrolment import enrol, read_join
from agent.errors import EnrolmentFailed
from agent.state import State
from controller.fleet.ca import CertificateAuthority
from protos import fleet_pb2, fleet_pb2_grpc
from tests.fleet_parts import join_string
from tests.hosts.fleet import Fleet, PlayFailed, rfc3339
from tests.hosts.lab import Host
from tests.parts import ROOT, wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.timeout(1800)]
TINY, SMALL = "tiny", "SmolLM2-135M-Instruct.Q4_1"
EXPOSURE = {"slotserve-controller": 1.5, "slotserve-gateway": 1.7, "slotserve-agent": 2.6}


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
    assert "MB are free in /opt; 900000000 are needed" in words
    assert not (fleet.nodes[0].root / "etc/slotserve").exists()


def test_the_readmes_commands_end_with_a_served_completion(fleet: Fleet) -> None:
    text = (ROOT / "ansible/README.md").read_text()
    (commands,) = re.findall(
        r"```sh\n(.*?)```", text.partition("## From nothing to an answer")[2].partition("\n## ")[0], re.S
    )
    said = fleet.script(commands)
    for name in ("h2", "h3"):
        (answer,) = re.findall(rf"msg: ['\"]?tiny on {name}/main: (.*)", said)
        assert answer.strip("'\" ")
    nodes = {n["name"]: n for n in fleet.api("GET", "/nodes")["items"]}
    assert {name: n["online"] for name, n in nodes.items()} == {"h2": True, "h3": True}


def test_once_more_changes_nothing(fleet: Fleet) -> None:
    done = fleet.play("site.yml")
    assert {h: done[h]["changed"] for h in done} == dict.fromkeys(done, 0)


def test_the_services_are_shut_in(fleet: Fleet) -> None:
    for unit, most in EXPOSURE.items():
        host = fleet.controller if unit == "slotserve-controller" else fleet.nodes[0]
        said = host.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout.splitlines()[-1]
        print(said)
        assert float(re.findall(r": ([0-9.]+) ", said)[0]) <= most
        assert host.run("systemctl", "show", "--property=User", "--value", unit).stdout.strip() == "slotserve"
    host = fleet.nodes[0]
    assert host.sh("stat -c %a /var/lib/slotserve-agent/identity.json").stdout.strip() == "600"
    assert host.sh("runuser -u nobody -- cat /etc/slotserve/node.toml", check=False).returncode != 0


def test_a_booking_is_served_by_a_real_model_on_each_node(fleet: Fleet) -> None:
    for host in fleet.nodes:
        booked = fleet.book(host.name, SMALL, 3600)
        fleet.ready(host.name, SMALL)
        answer = fleet.ask(host)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-SlotServe-Model"] == SMALL
        assert answer.json()["choices"][0]["message"]["content"].strip()
        assert booked["status"] == "approved"


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


def knock(address: str, ca: bytes, key: bytes, certificate: bytes, node: str) -> grpc.StatusCode:
    """What the fleet's port says to who comes with this certificate and calls itself `node`."""
    hello = fleet_pb2.Hello(node=node, contract=1, version="0.1.0")
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate)) as channel:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(iter([fleet_pb2.AgentMessage(hello=hello)]), timeout=10)
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
    return refused.value.code()


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


class Load:
    """Steady streams from a node, one after the other, and whatever goes wrong with them."""

    def __init__(self, fleet: Fleet, host: Host, tokens: int) -> None:
        self.fleet, self.host, self.tokens = fleet, host, tokens
        self.streams, self.problems = 0, list[str]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(120)

    def _run(self) -> None:
        body = {"model": "auto", "stream": True, "max_tokens": self.tokens, "ignore_eos": True,
                "messages": [{"role": "user", "content": "Count to a hundred."}]}  # fmt: skip
        url = f"http://{self.host.address}:8710/channels/main/v1/chat/completions"
        while not self._end.is_set():
            try:
                with httpx.stream(
                    "POST", url, json=body, timeout=60, headers={"Authorization": f"Bearer {self.fleet.key}"}
                ) as answer:
                    text = "".join(answer.iter_text())
                if answer.status_code != 200 or "data: [DONE]" not in text or '"error"' in text:
                    self.problems.append(f"{answer.status_code} {text[-300:]}")
            except httpx.HTTPError as err:
                self.problems.append(repr(err))
            self.streams += 1
            self._end.wait(0.5)  # the machine has more to do


@contextlib.contextmanager
def loaded(fleet: Fleet) -> Iterator[list[Load]]:
    """Short streams from every node all the time, and from one of them long ones that span the gateways' change."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Load(fleet, h, tokens))
            for h, tokens in zip((*fleet.nodes, fleet.nodes[0]), (4, 4, 300), strict=True)
        ]


def test_an_upgrade_drops_no_stream_and_refuses_nobody(fleet: Fleet) -> None:
    engines = {h.name: fleet.engine(h) for h in fleet.nodes}
    releases = {h.name: fleet.release(h) for h in fleet.nodes}
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
        wait_until(lambda h=host: gateways(h) == 1, 60, "the old gateway has ended", every=0.5)
    newest = json.loads((fleet.next / "ansible/wheelhouse/release.json").read_text())["version"]
    assert fleet.node("h2")["version"] == newest


def gateways(host: Host) -> int:
    """Processes of the gateway's service, the lingering ones too."""
    said = host.run("systemctl", "show", "--property=ControlGroup", "--value", "slotserve-gateway").stdout.strip()
    return len(host.run("cat", f"/sys/fs/cgroup{said}/cgroup.procs").stdout.split())


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


def online(fleet: Fleet, node: str) -> bool:
    try:
        return bool(fleet.node(node)["online"])
    except (httpx.HTTPError, AssertionError):
        return False


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


def reported(fleet: Fleet) -> int:
    """Loads of the tiny model that the controller has heard of."""
    program = (
        "import sqlite3; db = sqlite3.connect('file:/var/lib/slotserve/slotserve.db?mode=ro', uri=True); "
        f"print(db.execute('SELECT count(*) FROM loads WHERE model = ? AND ok', ['{TINY}']).fetchone()[0])"
    )
    return int(fleet.controller.run("/opt/slotserve/controller/current/venv/bin/python", "-c", program).stdout)


# Run on the controller's host: a certificate for h3's next key that has run out already.
SHORT_LIVED = """
import datetime, json, sys
from pathlib import Path
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography import x509
from controller.fleet.ca import CertificateAuthority
said = json.load(sys.stdin)
ca = CertificateAuthority(Path("/var/lib/slotserve/ca"), client_life=datetime.timedelta(seconds=-said["ago"]))
key = ec.generate_private_key(ec.SECP256R1())
csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
old = x509.load_pem_x509_certificate(said["certificate"].encode())
(enrolment,) = old.subject.get_attributes_for_oid(x509.oid.NameOID.SERIAL_NUMBER)
pem = ca.sign_csr(csr.public_bytes(serialization.Encoding.PEM).decode(), "h3", enrolment.value).pem
private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
end = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp() * 1000
print(json.dumps({**said["identity"], "key": private.decode(), "certificate": pem, "ends_at": round(end), "renew_at": round(end) - 60000}))
"""


def with_expired_certificate(fleet: Fleet, host: Host, ago: int) -> None:
    """Has the node been off while its certificate ran out, `ago` seconds before now."""
    host.run("systemctl", "stop", "slotserve-agent")
    file = host.root / "var/lib/slotserve-agent/identity.json"
    identity = json.loads(file.read_text())
    (fleet.controller.root / "root/short.py").write_text(SHORT_LIVED)
    said = json.dumps({"ago": ago, "identity": identity, "certificate": identity["certificate"]})
    (fleet.controller.root / "root/said.json").write_text(said)
    made = fleet.controller.sh(
        "/opt/slotserve/controller/current/venv/bin/python /root/short.py < /root/said.json && rm /root/short.py /root/said.json"
    ).stdout
    file.write_text(made)  # the file keeps its owner
    host.run("systemctl", "start", "slotserve-agent")


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

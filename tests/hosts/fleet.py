"""A fleet on the lab's hosts as a person rolls it out: two checkouts (this version and the next), an inventory, the plays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.hosts.lab import FOLDER, NET, Host, Lab
from tests.parts import ROOT, wait_until

BIN = Path(sys.executable).parent
PROGRAM = "bin/llama-server"
TINY, SMALL = "tiny", "SmolLM2-135M-Instruct.Q4_1"
INSIDE = f"{NET}.0/25"  # who may reach SlotServe's ports
SHORT = {
    "tick_seconds": 1,
    "switch_buffer_seconds": 1,
    "min_preload_lead_seconds": 2,
    "stop_timeout_seconds": 5,
    "drain_seconds": 5,
    "retry_min_seconds": 1,
    "retry_max_seconds": 4,
    "disk_read_mbps": 5000,
}


class PlayFailed(AssertionError):
    """A play ended with an error; the message has its last words, `output` all of them."""

    def __init__(self, name: str, status: int, output: str) -> None:
        super().__init__(f"{name}: exit status {status}\n{output[-8000:]}")
        self.output = output


class Fleet:
    """h1 is the controller, h2 and h3 are nodes with a channel `main` each."""

    def __init__(self, lab: Lab, folder: Path, archive: Path) -> None:
        self.lab, self.folder = lab, folder
        self.certificate, self.certificate_key = certificate(folder, lab.hosts[-1].address)
        self.controller, *self.nodes = lab.hosts
        self.checkout = checkout(folder / "this")
        self._next = checkout(folder / "next", later=True)
        # Its release is gathered beside everything else.
        self._gathering = subprocess.Popen(
            [sys.executable, self._next / "ansible/wheelhouse.py"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.inventory = folder / "hosts.yml"
        self.inventory.write_text(json.dumps(self._inventory(archive), indent=1))
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SLOTSERVE_", "ANSIBLE_"))},
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCAL_TEMP": str(folder / "ansible-tmp"),
            "EDITOR": str(self._editor()),
        }
        self.seconds: dict[str, float] = {}
        self._key = ""

    def _inventory(self, archive: Path) -> dict[str, Any]:
        address = {h.name: {"ansible_host": h.address} for h in self.lab.hosts}
        channel = {"name": "main", "gpus": [], "model_folders": ["/srv/models"], "engines": ["llama.cpp"]}
        settings = {"scan_seconds": 1, "gateway_relay": True}
        # One node has several gateway processes, the other a certificate, and figures at an address of their own.
        address["h2"] |= {"slotserve_agent_settings": {**settings, "gateway_workers": 2}}
        address["h3"] |= {
            "slotserve_agent_gateway_tls_certificate": str(self.certificate),
            "slotserve_agent_gateway_tls_key": str(self.certificate_key),
            "slotserve_agent_metrics_address": "0.0.0.0:8711",
            "slotserve_agent_metrics_sources": [f"{self.controller.address}/32"],
            "slotserve_try_validate_certs": False,
        }
        return {
            "slotserve_controller": {
                "hosts": {"h1": address["h1"]},
                "vars": {
                    "slotserve_controller_console_sources": [INSIDE],
                    "slotserve_controller_fleet_sources": [INSIDE],
                    "slotserve_controller_prometheus": True,
                    "slotserve_controller_prometheus_key_file": "/etc/slotserve/credentials/admin_api_key",
                    "slotserve_controller_grafana_dashboards": "/var/lib/grafana/dashboards",
                },
            },
            "slotserve_nodes": {
                "hosts": {h.name: address[h.name] for h in self.nodes},
                "vars": {
                    "slotserve_agent_channels": [channel],
                    "slotserve_agent_settings": settings,
                    "slotserve_agent_gateway_sources": [INSIDE],
                    "slotserve_agent_relay_port": 8712,
                    "slotserve_engine_llamacpp_source": "archive",
                    "slotserve_engine_llamacpp_archive": str(archive),
                    "slotserve_engine_llamacpp_program": PROGRAM,
                },
            },
            "all": {
                "vars": {
                    "ansible_user": "root",
                    "ansible_ssh_private_key_file": str(self.lab.key),
                    "ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null -F /dev/null",
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "slotserve_common_require_ntp": False,  # containers have their host's clock
                    "slotserve_common_firewall": True,
                    "slotserve_controller_settings": SHORT,
                }
            },
        }

    def _editor(self) -> Path:
        """What a person does in an editor: puts the machines in."""
        program = self.folder / "editor"
        program.write_text(f'#!/bin/sh\ncp {self.inventory} "$1"\n')
        program.chmod(0o755)
        return program

    @property
    def next(self) -> Path:
        """A checkout of the next version, gathered."""
        assert self._gathering.wait(600) == 0
        return self._next

    def end(self) -> None:
        self._gathering.terminate()
        self._gathering.wait()

    # --- plays ------------------------------------------------------------------------------------------------------

    def play(self, name: str, *words: str, checkout: Path | None = None) -> dict[str, dict[str, int]]:
        """Runs a playbook; {host: {"ok": …, "changed": …}}. Raises PlayFailed."""
        where = (checkout or self.checkout) / "ansible"
        shutil.copy(self.inventory, where / "inventory/hosts.yml")
        began = time.monotonic()
        said = subprocess.run(
            ["ansible-playbook", name, *words],
            cwd=where, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900, check=False,
        )  # fmt: skip
        self.seconds[" ".join((name, *words))] = time.monotonic() - began
        print(f"{name} {' '.join(words)}: {time.monotonic() - began:.0f} s")
        (FOLDER / f"last-{name}.log").write_text(said.stdout + said.stderr)
        if said.returncode:
            raise PlayFailed(name, said.returncode, said.stdout + said.stderr)
        return recap(said.stdout)

    def script(self, lines: str) -> str:
        """Runs a shell script in the checkout, as a person types it; what it printed."""
        began = time.monotonic()
        said = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=self.checkout, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, timeout=900, check=False,
        )  # fmt: skip
        self.seconds["README"] = time.monotonic() - began
        print(f"README's commands: {time.monotonic() - began:.0f} s")
        (FOLDER / "last-README.log").write_text(said.stdout)
        if said.returncode:
            raise PlayFailed("README", said.returncode, said.stdout)
        return said.stdout

    # --- the controller ---------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The first administrator's API key."""
        if not self._key:
            self._key = self.controller.run("cat", "/etc/slotserve/credentials/admin_api_key").stdout.strip()
        return self._key

    def cli(self, *words: str) -> Any:
        """`slotserve` on the controller's host."""
        return json.loads(self.controller.run("slotserve", "--json", *words).stdout or "null")

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """REST through nginx, with TLS."""
        answer = httpx.request(
            method, f"https://{self.controller.address}/api/v1{path}", json=body, verify=False, timeout=30,
            headers={"Authorization": f"Bearer {self.key}"},
        )  # fmt: skip
        assert answer.status_code < 400, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def node(self, name: str) -> dict[str, Any]:
        return self.api("GET", f"/nodes/{name}")

    def channel(self, node: str) -> dict[str, Any]:
        return self.api("GET", f"/channels/{node}/main")

    def book(self, node: str, model: str, seconds: float, *, start_in: float = 0, key: str = "") -> dict[str, Any]:
        now = time.time()
        body = {
            "channel": f"{node}/main", "kind": "model", "model": model, "preset": None,
            "starts_at": rfc3339(now + start_in), "ends_at": rfc3339(now + start_in + seconds),
        }  # fmt: skip
        return self.api("POST", "/reservations", body)

    def ready(self, node: str, model: str, seconds: float = 60) -> dict[str, Any]:
        """Waits until a node serves a model."""

        def is_ready() -> dict[str, Any] | None:
            channel = self.channel(node)
            running = channel["running"] or {}
            return channel if channel["phase"] == "ready" and running.get("model") == model else None

        return wait_until(is_ready, seconds, f"{node} serves {model}", every=0.3)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def status(self, host: Host) -> dict[str, Any]:
        """What the node's agent says of itself."""
        return json.loads(host.run("slotserve-agent", "status", "--json", check=False).stdout)

    def engine(self, host: Host) -> int:
        return self.status(host)["channels"][0]["engine_pid"]

    def release(self, host: Host, component: str = "agent") -> str:
        return os.readlink(host.root / f"opt/slotserve/{component}/current")

    def gateway(self, host: Host) -> tuple[str, ssl.SSLContext]:
        """A gateway's URL, and who is believed that it is the one."""
        scheme = "https" if host.name == "h3" else "http"
        return f"{scheme}://{host.address}:8710", ssl.create_default_context(cafile=str(self.certificate))

    def ask(self, host: Host, tokens: int = 8, path: str = "/channels/main", model: str = "auto") -> httpx.Response:
        """A completion through the node's gateway."""
        url, trust = self.gateway(host)
        body = {"model": model, "max_tokens": tokens, "messages": [{"role": "user", "content": "Say hello."}]}
        return httpx.post(
            f"{url}{path}/v1/chat/completions", json=body, timeout=60, verify=trust,
            headers={"Authorization": f"Bearer {self.key}"},
        )  # fmt: skip


@contextlib.contextmanager
def rolled_out(folder: Path, archive: Path, models: Sequence[Path], hosts: int = 3) -> Iterator[Fleet]:
    """Hosts with models on the nodes, and nothing of SlotServe yet."""
    with Lab(hosts) as lab, contextlib.ExitStack() as ends:
        fleet = Fleet(lab, folder, archive)
        ends.callback(fleet.end)
        for host in fleet.nodes:
            target = host.root / "srv/models"
            target.mkdir(parents=True, exist_ok=True)
            for model in models:
                shutil.copy(model, target / model.name)
        yield fleet


def checkout(folder: Path, *, later: bool = False) -> Path:
    """A copy of this checkout's files; `later`: of the next version."""
    said = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    wanted = ("ansible/", "controller/", "agent/", "protos/", "setup.cfg", "pyproject.toml", "LICENSE", "README.md")
    for name in said.stdout.split("\0"):
        if name.startswith(wanted) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    if later:
        setup = folder / "setup.cfg"
        setup.write_text(
            re.sub(
                r"(?m)^version = (\d+\.\d+)\.(\d+)$", lambda m: f"version = {m[1]}.{int(m[2]) + 1}", setup.read_text()
            )
        )
    # What has been gathered before is kept between runs: wheelhouse.py sees by itself what has changed.
    kept = FOLDER / ("wheelhouse-next" if later else "wheelhouse-this")
    kept.mkdir(parents=True, exist_ok=True)
    (folder / "ansible/wheelhouse").symlink_to(kept)
    return folder


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate for an address, which vouches for itself, and its key."""
    paths = folder / "gateway.crt", folder / "gateway.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{address}", "-out", str(paths[0]),
         "-keyout", str(paths[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


def engine_archive(program: Path, libraries: Sequence[Path]) -> Path:
    """llama-server with its libraries as one archive, bin/…, as its own releases are."""
    target = FOLDER / f"llama-{int(program.stat().st_mtime)}-{program.stat().st_size}.tar.gz"
    if not target.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(".unfinished")
        with tarfile.open(scratch, "w:gz", compresslevel=1, dereference=True) as tar:
            seen: set[str] = set()
            for folder in (*libraries, program.parent):
                for path in sorted(folder.iterdir()):
                    if path.is_file() and path.name not in seen:
                        seen.add(path.name)
                        tar.add(path.resolve(), f"bin/{path.name}")
        scratch.rename(target)
    return target


def recap(output: str) -> dict[str, dict[str, int]]:
    found = {}
    for line in output.rpartition("PLAY RECAP")[2].splitlines():
        if match := re.match(r"(\S+)\s+: (.*)", line):
            found[match[1]] = {k: int(v) for k, v in (pair.split("=") for pair in match[2].split())}
    return found


def rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

"""A fleet on the lab's hosts as a person rolls it out: two checkouts (this version and the next), an inventory, the plays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.hosts.base import FOLDER
from tests.hosts.checkouts import Checkout
from tests.hosts.lab import Host, Lab
from tests.parts import running, wait_until

BIN = Path(sys.executable).parent
TINY, SMALL = "tiny", "SmolLM2-135M-Instruct.Q4_1"


class PlayFailed(AssertionError):
    """A play ended with an error; the message has its last words, `output` all of them."""

    def __init__(self, name: str, status: int, output: str) -> None:
        super().__init__(f"{name}: exit status {status}\n{output[-8000:]}")
        self.output = output


class Fleet:
    """h1 is a controller, `nodes` have a channel `main` each; `take` says what the inventory is."""

    def __init__(self, lab: Lab, folder: Path, this: Checkout, later: Checkout) -> None:
        self.lab, self.folder, self.controller = lab, folder, lab.hosts[0]
        self.certificate, self.certificate_key = certificate(lab.folder, lab.hosts[-1].address)
        self.nodes = list[Host]()
        self._this, self._later = this, later
        self.inventory = folder / "hosts.yml"
        self._with_tls = set[str]()
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

    def take(self, inventory: dict[str, Any]) -> None:
        """An inventory in the place of the one before."""
        self.inventory.write_text(json.dumps(inventory, indent=1))
        nodes = inventory["slotserve_nodes"]["hosts"]
        self.nodes = [host for host in self.lab.hosts if host.name in nodes]
        self._with_tls = {name for name, said in nodes.items() if "slotserve_agent_gateway_tls_key" in said}

    def _editor(self) -> Path:
        """What a person does in an editor: puts the machines in."""
        program = self.folder / "editor"
        program.write_text(f'#!/bin/sh\ncp {self.inventory} "$1"\n')
        program.chmod(0o755)
        return program

    @property
    def checkout(self) -> Path:
        """A checkout of this version, gathered."""
        return self._this.folder

    @property
    def next(self) -> Path:
        """A checkout of the next one, gathered."""
        return self._later.folder

    # --- plays ------------------------------------------------------------------------------------------------------

    def play(self, name: str, *words: str, checkout: Path | None = None) -> dict[str, dict[str, int]]:
        """Runs a playbook; {host: {"ok": …, "changed": …}}. Raises PlayFailed."""
        return recap(self.play_said(name, *words, checkout=checkout))

    def play_said(self, name: str, *words: str, checkout: Path | None = None) -> str:
        """The same; what it printed."""
        where = (checkout or self.checkout) / "ansible"
        shutil.copy(self.inventory, where / "inventory/hosts.yml")
        return self._run(" ".join((name, *words)), ["ansible-playbook", name, *words], where)

    def script(self, name: str, lines: str) -> str:
        """Runs a shell script in the checkout, as a person types it; what it printed."""
        return self._run(name, ["bash", "-euo", "pipefail", "-c", lines], self.checkout)

    def interrupt(self, name: str, *words: str, when: Callable[[], bool], checkout: Path) -> None:
        """Runs a playbook, and presses Ctrl-C once `when` holds."""
        shutil.copy(self.inventory, checkout / "ansible/inventory/hosts.yml")
        log = FOLDER / f"last-interrupted-{name}.log"
        with running(["ansible-playbook", name, *words], log, self.env, checkout / "ansible") as play:
            wait_until(lambda: when() or not play.alive(), 600, f"the moment to interrupt {name}", every=0.05)
            assert play.alive(), play.output()[-8000:]
            os.killpg(play.pid, signal.SIGINT)
            assert play.wait(60), "interrupted, so it did not end well"

    def _run(self, name: str, command: Sequence[str], where: Path) -> str:
        """Its output is kept as last-NAME.log, its time is noted."""
        began = time.monotonic()
        said = subprocess.run(
            command, cwd=where, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, timeout=1500, check=False,
        )  # fmt: skip
        took = self.seconds[name] = time.monotonic() - began
        print(f"{name}: {took:.0f} s")
        (FOLDER / f"last-{name.split()[0]}.log").write_text(said.stdout)
        if said.returncode:
            raise PlayFailed(name, said.returncode, said.stdout)
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

    def api(self, method: str, path: str, body: Any = None, at: Host | None = None) -> Any:
        """REST through nginx, with TLS; `at`: of another controller than h1."""
        answer = httpx.request(
            method, f"https://{(at or self.controller).address}/api/v1{path}", json=body, verify=False, timeout=30,
            headers={"Authorization": f"Bearer {self.key}"},
        )  # fmt: skip
        assert answer.status_code < 400, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def node(self, name: str) -> dict[str, Any]:
        return self.api("GET", f"/nodes/{name}")

    def channel(self, node: str) -> dict[str, Any]:
        return self.api("GET", f"/channels/{node}/main")

    def book(
        self, node: str, model: str, seconds: float, *, start_in: float = 0, preset: str | None = None
    ) -> dict[str, Any]:
        now = time.time()
        body = {
            "channel": f"{node}/main", "kind": "model", "model": model, "preset": preset,
            "starts_at": rfc3339(now + start_in), "ends_at": rfc3339(now + start_in + seconds),
        }  # fmt: skip
        return self.api("POST", "/reservations", body)

    def free(self, node: str, seconds: float = 60) -> None:
        """Waits until nobody's booking runs on a node: the last test's may."""

        def is_free() -> bool:
            running = self.api("GET", "/reservations?status=running")["items"]
            return all(r["channel"] != f"{node}/main" for r in running)

        wait_until(is_free, seconds, f"no booking runs on {node}")

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
        scheme = "https" if host.name in self._with_tls else "http"
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
def bare(folder: Path, models: Sequence[Path], hosts: int = 3) -> Iterator[Fleet]:
    """Hosts with models on them, and nothing of SlotServe yet."""
    with contextlib.ExitStack() as ends:
        this, later = Checkout(folder / "this"), Checkout(folder / "next", later=True)
        ends.callback(this.end)
        ends.callback(later.end)
        lab = ends.enter_context(Lab(hosts))
        for host in lab.hosts[1:]:
            target = host.root / "srv/models"
            target.mkdir(parents=True, exist_ok=True)
            for model in models:
                shutil.copy(model, target / model.name)
        yield Fleet(lab, folder, this, later)


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate for an address, which vouches for itself, and its key; hosts that were kept have it already."""
    paths = folder / "gateway.crt", folder / "gateway.key"
    if all(path.exists() for path in paths):
        return paths
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{address}", "-out", str(paths[0]),
         "-keyout", str(paths[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


def recap(output: str) -> dict[str, dict[str, int]]:
    found = {}
    for line in output.rpartition("PLAY RECAP")[2].splitlines():
        if match := re.match(r"(\S+)\s+: (.*)", line):
            found[match[1]] = {k: int(v) for k, v in (pair.split("=") for pair in match[2].split())}
    return found


def rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

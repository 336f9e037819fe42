"""`slotserve doctor`: what is wrong with this machine's settings and files, and with the controller and its nodes.

A line a check: `ok`, `note` (allowed, perhaps not meant) or `WRONG`, with what to do. Exit status 1 where one is wrong.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from controller import clocks
from controller.cli import sentence, times
from controller.cli.app import App
from controller.cli.options import command
from controller.cli.server import in_force, shown_url

LEAST_FREE_BYTES = 1_000_000_000
NODE_CERTIFICATE_DAYS = 7  # renewed at two thirds of its life, long before
CERTIFICATE_DAYS = 30


@dataclass(frozen=True, slots=True)
class Check:
    """`problem` empty: fine. `note` = nothing is broken by it."""

    what: str
    problem: str = ""
    note: bool = False

    @property
    def ok(self) -> bool:
        return self.note or not self.problem


@click.command()
@command
def doctor(app: App) -> None:
    """Look for what is wrong: settings, database, ports and certificates of this machine, the controller, its nodes."""
    chosen, _ = in_force()
    checks = [Check("settings"), *_timing(chosen), *_this_machine(chosen), *_engines(), *_controller(app)]
    app.out(
        {"items": [{"check": c.what, "ok": c.ok, "note": c.note, "problem": c.problem} for c in checks]},
        lambda: _show(checks),
    )
    if not all(c.ok for c in checks):
        raise click.exceptions.Exit(1)


def _show(checks: list[Check]) -> None:
    for check in checks:
        word = "WRONG" if not check.ok else "note " if check.problem else "ok   "
        click.echo(f"{word}  {check.what}")
        if check.problem:
            click.echo(click.wrap_text(check.problem, 80, " " * 7, " " * 7))


def _timing(chosen: Any) -> Iterator[Check]:
    from controller.main import warnings_about

    for text in warnings_about(chosen):
        yield Check("timing", text, note=True)


def _this_machine(chosen: Any) -> Iterator[Check]:
    """Database, certificates, ports and disk, where a controller lives on this machine."""
    state = chosen.state_dir
    if not chosen.database_url and not state.exists():
        yield Check("no controller on this machine", f"{state} is not there (SLOTSERVE_STATE_DIR)", note=True)
        return
    problem = _database(chosen)
    yield Check(f"database {shown_url(chosen.database)}", problem)
    if not problem:
        yield from _sealed(chosen)
        yield from _shared(chosen)
    yield from _files(chosen)
    running = _runs(state)
    yield Check(f"controller on {state}: {'runs' if running else 'does not run'}")
    if not running:
        for variable, address in (
            ("SLOTSERVE_HTTP_LISTEN", chosen.http_listen),
            ("SLOTSERVE_FLEET_LISTEN", chosen.fleet_listen),
            ("SLOTSERVE_ENROL_LISTEN", chosen.enrol_listen),
        ):
            yield Check(f"{variable} {address}", _port(variable, address))
    yield from _certificates(state / "ca")
    free = shutil.disk_usage(state if state.exists() else "/").free
    few = (
        f"{free / 1e9:.1f} GB are free; the database and the engines' logs need room" if free < LEAST_FREE_BYTES else ""
    )
    yield Check(f"disk of {state}", few)


def _shared(chosen: Any) -> Iterator[Check]:
    """What several controllers of one database must have alike."""
    from controller.fleet import shared_secrets
    from controller.store.session import Store

    store = Store(chosen.database)
    try:
        if not store.sqlite:
            yield Check("files shared with the other controllers", shared_secrets.differing(store, chosen))
    finally:
        store.close()


def _database(chosen: Any) -> str:
    from sqlalchemy.exc import SQLAlchemyError

    from controller.backup import sqlite_file
    from controller.store import migrate as migrations
    from controller.store.session import Store

    file = sqlite_file(chosen)
    if file is not None and not file.exists():
        return f"{file} is not there; slotserve migrate makes it (or set SLOTSERVE_STATE_DIR)"
    if file is not None and not os.access(file, os.R_OK | os.W_OK):
        return f"{file} cannot be read and written by this user; run doctor as the controller's user"
    store = Store(chosen.database)
    try:
        return "; ".join(str(p) for p in migrations.check(store))
    except SQLAlchemyError as err:
        return str(err).splitlines()[0]
    finally:
        store.close()


def _sealed(chosen: Any) -> Iterator[Check]:
    """Whether what the database keeps sealed can be opened here."""
    from controller import vault
    from controller.store.session import Store

    store = Store(chosen.database)
    try:
        yield Check("secrets in the database", vault.trouble(store, chosen))
    finally:
        store.close()


def _files(chosen: Any) -> Iterator[Check]:
    """Secrets that others on this machine can read."""
    from controller.backup import sqlite_file

    state = chosen.state_dir
    names = ("session.key", "secrets.key", "ca/ca.key", "ca/server.key")
    for path in (sqlite_file(chosen), *(state / name for name in names)):
        if path is not None and path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            closed = any(not p.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for p in list(path.parents)[:3])
            if not closed:
                yield Check(
                    f"file {path}", "others on this machine can read it; chmod 600 it", note=path.suffix == ".db"
                )


def _runs(state: Path) -> bool:
    """Whether `slotserve serve` holds the folder."""
    try:
        with (state / "serve.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _port(variable: str, address: str) -> str:
    """Whether the address could be listened on."""
    from controller.main import StartRefused, split_address

    if address.startswith("unix:"):
        folder = Path(address[5:]).parent
        return "" if folder.is_dir() else f"{folder} is not a folder"
    try:
        host, port = split_address(address, variable)
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family[0], socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(family[4])
    except StartRefused as err:
        return str(err)
    except OSError as err:
        return f"cannot be listened on: {err.strerror or err}; end what uses it, or set {variable}"
    return ""


def _certificates(folder: Path) -> Iterator[Check]:
    from cryptography import x509

    if not (folder / "ca.crt").exists():
        yield Check("certificate authority", "not made yet; the controller's first start makes it", note=True)
        return
    for name in ("ca.crt", "server.crt"):
        path = folder / name
        if not path.exists():
            continue
        try:
            end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as err:
            yield Check(f"certificate {path}", f"{err}; restore a backup")
            continue
        left = (end - datetime.datetime.now(datetime.UTC)).days
        late = f"ends in {left} days; restart the controller, which renews it" if left < CERTIFICATE_DAYS else ""
        yield Check(f"certificate {path}, until {end:%Y-%m-%d}", late)


def _engines() -> Iterator[Check]:
    """Files that engines read before a preset's arguments, on machines that are a node as well."""
    from agent.engines import ENGINES

    for engine in ENGINES.values():
        for file in engine.system_config_files:
            if Path(file).exists():
                text = (
                    "this engine reads it before every preset's arguments; what stands there acts on every model here"
                )
                yield Check(f"{engine.name}: {file}", text, note=True)


def _controller(app: App) -> Iterator[Check]:
    from controller.cli.client import Refused

    try:
        with app.client(5) as client:
            ready = client.ready()
            for problem in ready["problems"]:
                yield Check("controller is not ready", problem)
            for warning in ready["warnings"]:
                yield Check("controller", warning, note=True)
            me = client.get("/me")
            yield Check(f"controller at {client.url}, as {me['name']}")
            yield from (_node(app, node) for node in client.items("/nodes"))
            for item in client.items("/channels"):
                told = sentence.failure(app, item) or (item.get("detail") or "" if item["phase"] == "blocked" else "")
                if told:
                    yield Check(f"channel {item['node']}/{item['name']}", told)
            yield from _slow_disks(client.items("/models"))
            if me["role"] == "admin":
                yield from _messages(client.get("/notifications/delivery"))
    except Refused as err:
        yield Check("controller", err.message)


def _slow_disks(models: Iterable[dict[str, Any]]) -> Iterator[Check]:
    """Nodes whose models lie on a disk that rotates."""
    found: dict[str, list[str]] = {}
    for model in models:
        for copy in model["copies"]:
            if copy.get("rotating_disk"):
                found.setdefault(copy["node"], []).append(model["name"])
    for node, names in sorted(found.items()):
        text = (
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''} on a rotating disk: it loads "
            "slowly; move it to an SSD (the page cache helps only while free memory exceeds the model)"
        )
        yield Check(f"models of node {node}", text, note=True)


def _messages(said: dict[str, Any]) -> Iterator[Check]:
    """Mail, webhooks and chat services that do not take what is sent."""
    if not said["problems"]:
        yield Check(f"messages: {said['waiting']} wait to be sent")
    for problem in said["problems"]:
        yield Check(f"messages by {problem['way']} to {problem['to'] or 'a target that is gone'}", problem["error"])


def _node(app: App, node: dict[str, Any]) -> Check:
    what, skew, plan = f"node {node['name']}", node.get("clock_skew_seconds"), node.get("plan") or {}
    if not node.get("enrolled") and not node.get("last_seen_at"):
        return Check(what, "has not joined yet; slotserve node add prints the command to run on it", note=True)
    if node.get("disabled"):
        return Check(what, f"is cut off; slotserve node enable {node['name']} lets it in", note=True)
    if node.get("turned_away"):
        return Check(what, f"may not connect: {node['turned_away']}")
    if not node.get("online"):
        since = app.when(node.get("last_seen_at") or node.get("since"))
        return Check(what, f"no contact{f' since {since}' if since else ''}; it goes on with the timetable it has")
    if plan.get("refusal"):
        return Check(what, f"refuses its plan: {plan['refusal']}")
    if skew is not None and clocks.wrong(skew):
        text = (
            f"its clock is {abs(skew):.0f} s {'fast' if skew > 0 else 'slow'}, more than {clocks.LIMIT_SECONDS:g} s: its "
            "certificate may count as not yet or no longer valid, and after a reboot without a controller it would switch "
            "at wrong times; start NTP there"
        )
        return Check(what, text)
    if until := node.get("certificate_until"):
        left = (times.from_api(until) - app.clock()) / 86_400_000
        if left < NODE_CERTIFICATE_DAYS:
            text = f"its certificate ends in {max(0, left):.0f} days and was not renewed; look at its agent's log"
            return Check(what, text)
    if node.get("cordoned"):
        end, why = node.get("drain_until"), node.get("cordon_reason")
        text = f"takes no new bookings{f' until {app.when(end)}' if end else ''}{f': {why}' if why else ''}"
        return Check(what, text if end else f"{text}; slotserve node uncordon {node['name']} ends that", note=True)
    if node.get("gpu_problem"):
        return Check(what, node["gpu_problem"])
    if skew is not None and clocks.shown(skew):
        text = (
            f"its clock is {abs(skew):.1f} s {'fast' if skew > 0 else 'slow'} (limit {clocks.LIMIT_SECONDS:g} s); bookings "
            "are corrected for it, logs are not"
        )
        return Check(what, text, note=True)
    return Check(what)

"""What `slotserve doctor` looks at on this machine: settings, database, secrets, ports, certificates, disk, engines' files."""

from __future__ import annotations

import datetime
import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.cli.server import shown_url

LEAST_FREE_BYTES = 1_000_000_000
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


def checks(chosen: Any) -> Iterator[Check]:
    """All of them."""
    yield from _timing(chosen)
    yield from _controller(chosen)
    yield from _engines()


def _timing(chosen: Any) -> Iterator[Check]:
    from controller.main import warnings_about

    for text in warnings_about(chosen):
        yield Check("timing", text, note=True)


def _controller(chosen: Any) -> Iterator[Check]:
    """Database, certificates, ports and disk, where a controller lives on this machine."""
    state = chosen.state_dir
    if not chosen.database_url and not state.exists():
        yield Check("no controller on this machine", f"{state} is not there (SLOTSERVE_STATE_DIR)", note=True)
        return
    yield from _database(chosen)
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


def _database(chosen: Any) -> Iterator[Check]:
    """Whether it can be used, whether what it keeps sealed can be opened here, and what several controllers of one
    database must have alike."""
    from sqlalchemy.exc import SQLAlchemyError

    from controller import vault
    from controller.backup import sqlite_file
    from controller.fleet import shared_secrets
    from controller.store import migrate as migrations
    from controller.store.session import Store

    what, file = f"database {shown_url(chosen.database)}", sqlite_file(chosen)
    if file is not None and not file.exists():
        yield Check(what, f"{file} is not there; slotserve migrate makes it (or set SLOTSERVE_STATE_DIR)")
        return
    if file is not None and not os.access(file, os.R_OK | os.W_OK):
        yield Check(what, f"{file} cannot be read and written by this user; run doctor as the controller's user")
        return
    store = Store(chosen.database)
    try:
        try:
            problem = "; ".join(str(p) for p in migrations.check(store))
        except SQLAlchemyError as err:
            problem = str(err).splitlines()[0]
        yield Check(what, problem)
        if problem:
            return
        yield Check("secrets in the database", vault.trouble(store, chosen))
        if not store.sqlite:
            yield Check("files shared with the other controllers", shared_secrets.differing(store, chosen))
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

"""`slotserve serve`: one process with the store, the planner and gRPC on one loop, and the web side in threads.

Started in an order that says at once what is wrong: settings, the folder, the database, the ports. The process goes
on as long as both halves do; when one ends, so does the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import click

from controller import memory, settings_view, vault
from controller.context import wall_ms
from controller.fleet import shared_secrets
from controller.fleet.server import FleetServer
from controller.settings import Settings
from controller.store import migrate
from controller.store.session import Store
from protos.shared import logs
from protos.shared.files import write_private
from protos.shared.systemd import notify

log = logging.getLogger(__name__)
WEB_THREADS = 8


class StartRefused(click.ClickException):
    """The controller does not start; the message says why and what to do (the command line prints it, exit status 1)."""


def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; the exit status. Raises StartRefused in words."""
    logs.set_up(settings.log_level, settings.log_format)
    memory.few_arenas()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a descriptor an agent
    os.umask(0o077)  # database, logs and keys are nobody else's, also where the folder was made by others
    listen = web_listen(settings)
    for warning in warnings_about(settings):
        log.warning("%s", warning)
    with _own_folder(settings.state_dir):
        try:
            store = Store(settings.database)
        except ValueError as err:
            raise StartRefused(f"SLOTSERVE_DATABASE_URL: {err}") from None
        try:
            _database_ready(store)
            store.guard()
            settings_view.note_start(store, settings, version("slotserve"), wall_ms())
            return _run(settings, store, listen)
        finally:
            store.close()


def web_listen(settings: Settings) -> dict[str, Any]:
    """waitress' arguments for http_listen. Raises StartRefused where it is wider than loopback without leave."""
    where = settings.http_listen
    if where.startswith("unix:"):
        return {"unix_socket": where[5:], "unix_socket_perms": "660"}
    host, port = split_address(where, "SLOTSERVE_HTTP_LISTEN")
    if not (settings.insecure_http or _is_loopback(host)):
        raise StartRefused(
            f"SLOTSERVE_HTTP_LISTEN={where}: passwords and keys would cross the network in the clear. Listen on "
            "127.0.0.1 or unix:/path and put a TLS proxy (nginx) in front, or set SLOTSERVE_INSECURE_HTTP=1"
        )
    return {"host": host, "port": port}


def warnings_about(settings: Settings) -> list[str]:
    """What is allowed but most likely not meant, a sentence each."""
    said = []
    longest, buffer = settings.drain_seconds + settings.stop_timeout_seconds, settings.switch_buffer_seconds
    if longest > buffer:
        said.append(
            f"SLOTSERVE_DRAIN_SECONDS + SLOTSERVE_STOP_TIMEOUT_SECONDS ({longest:g} s) is more than "
            f"SLOTSERVE_SWITCH_BUFFER_SECONDS ({buffer:g} s): a switch before a reservation may end after its start"
        )
    return said


def split_address(address: str, variable: str) -> tuple[str, int]:
    """host:port or [v6]:port. Raises StartRefused naming the variable."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise StartRefused(f"{variable}={address}: write host:port, for example 127.0.0.1:8700")
    return host, int(port)


def _run(settings: Settings, store: Store, listen: dict[str, Any]) -> int:
    from controller.assembly import assemble
    from controller.web import create_app

    try:
        if told := shared_secrets.differing(store, settings):
            raise StartRefused(told)
        _sealed(store, vault.opened(settings))
    except vault.BadKey as err:
        raise StartRefused(str(err)) from None
    parts = assemble(settings, store, _hosts(settings), _dialled)
    try:
        parts.fleet.start()
    except OSError as err:
        raise StartRefused(f"SLOTSERVE_FLEET_LISTEN or SLOTSERVE_ENROL_LISTEN: {err}") from err
    try:
        parts.context.enrol_address = _dialled(settings.enrol_address, settings.enrol_listen, parts.fleet.enrol_port)
        app = create_app(parts.context)
        shared_secrets.remember(store, settings)
        parts.nightly.start()
        parts.notifier.start()
        return _serve_web(app, settings, listen, parts.fleet)
    finally:
        parts.notifier.stop()
        parts.nightly.stop()
        parts.fleet.stop()


def _sealed(store: Store, box: vault.Vault) -> None:
    """What was kept in clear, or sealed with an older key, is sealed with the present one."""
    written, lost = vault.renew(store, box)
    if written:
        log.info("secrets sealed with the key of %s: %d", box.origin, written)
    if lost:
        log.error(
            "%d webhooks and chat services cannot be reached any more: their addresses were sealed with another key than "
            "that of %s; put that key back (it is part of slotserve backup), or set the addresses anew",
            lost,
            box.origin,
        )


def _serve_web(app: Any, settings: Settings, listen: dict[str, Any], fleet: FleetServer) -> int:
    import waitress

    if path := listen.get("unix_socket"):
        Path(path).unlink(missing_ok=True)  # of a controller that was killed; the folder's lock says that none runs
    try:
        server = waitress.create_server(
            app,
            **listen,
            threads=WEB_THREADS,
            ident="slotserve",
            # A TLS proxy on this machine says who asks: else all people would be one address to the log-in's throttle.
            trusted_proxy="*" if "unix_socket" in listen else "127.0.0.1",
            trusted_proxy_headers={"x-forwarded-for", "x-forwarded-proto"},
            clear_untrusted_proxy_headers=True,
            channel_timeout=60,
            asyncore_use_poll=True,  # select() knows no descriptor above 1023, and each agent has one
        )
    except (OSError, ValueError) as err:
        raise StartRefused(f"SLOTSERVE_HTTP_LISTEN={settings.http_listen}: {err}") from err
    port = getattr(server, "effective_port", 0) if "port" in listen else 0
    ports = {"http": port, "fleet": fleet.fleet_port, "enrol": fleet.enrol_port, "pid": os.getpid()}
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    write_private(settings.state_dir / "ports.json", json.dumps(ports).encode(), 0o644)
    gc.collect()
    gc.freeze()  # what there is at the start stays: a full collection of it would hold the planner's loop for 100 ms
    notify("READY=1")
    log.info("ready http=%s fleet=%s enrol=%s", port or settings.http_listen, fleet.fleet_port, fleet.enrol_port)
    try:
        server.run()  # returns on SystemExit, after the running requests
    finally:
        notify("STOPPING=1")
        server.close()
        (settings.state_dir / "ports.json").unlink(missing_ok=True)
    log.info("ended")
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)  # in the main thread, which is waitress' loop: it winds up and returns


def _database_ready(store: Store) -> None:
    """SQLite is upgraded at once; another database is upgraded by hand, for others may be using it."""
    try:
        if store.sqlite:
            migrate.upgrade(store)
        problems = migrate.check(store)
    except migrate.MigrationError as err:
        problems = [str(err)]
    except Exception as err:  # drivers raise what they like: a start ends in words
        raise StartRefused(f"the database cannot be used ({store.engine.url!r}): {err}") from err
    if problems:
        raise StartRefused(f"database {store.engine.url!r}: " + "; ".join(problems))


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """The state folder, ours alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise StartRefused(f"SLOTSERVE_STATE_DIR={folder}: {err.strerror}") from err
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StartRefused(f"SLOTSERVE_STATE_DIR={folder}: another slotserve serve runs with this folder") from None
    try:
        yield
    finally:
        os.close(handle)


def _hosts(settings: Settings) -> list[str]:
    found = []
    for variable, address in (
        ("SLOTSERVE_FLEET_LISTEN", settings.fleet_listen),
        ("SLOTSERVE_ENROL_LISTEN", settings.enrol_listen),
        ("SLOTSERVE_FLEET_ADDRESS", settings.fleet_address),
        ("SLOTSERVE_ENROL_ADDRESS", settings.enrol_address),
    ):
        if address:
            host, _ = split_address(address, variable)
            if not _is_any(host):
                found.append(host)
    return found


def _dialled(said: str, listen: str, port: int) -> str:
    """What others dial: as set, else the listen address with the port that was chosen (a wildcard: this host's name)."""
    if said:
        return said
    host = listen.rpartition(":")[0]
    return f"{socket.gethostname() if _is_any(host) else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    return host.strip("[]") in ("0.0.0.0", "::", "*")

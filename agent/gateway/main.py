"""The gateway process: `slotserve-agent gateway`.

Listens where the node's file says (host:port, [v6]:port, unix:/path) or on sockets handed over by systemd. SIGTERM: it
accepts nothing more, finishes what runs (streams up to the linger setting), and exits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from agent.gateway.access_log import AccessLog
from agent.gateway.connection import ClientConnection
from agent.gateway.link import keep_linked, load_saved
from agent.gateway.reply import CUT_SECONDS
from agent.gateway.server import BODY_LIMIT, ENGINE_IDLE_SECONDS, Gateway
from agent.settings import AgentSettings, NodeFileError, read_node_file

log = logging.getLogger(__name__)
LINGER_SECONDS = 3600.0
HAND_OVER_SECONDS = 2.0  # at the end, for the agent to take the last usage rows
BACKLOG = 2048
FIRST_HANDED_FD = 3


class ListenError(OSError):
    """An address cannot be listened on; the message names it and says why."""


def run(settings: AgentSettings, listen: Sequence[str] | None = None) -> int:
    """Runs a gateway until it is told to stop; the exit status. `listen` overrides the node's file."""
    try:
        node = read_node_file(settings.node_file)
        sockets = handed_over() or [bind(a) for a in listen or node.gateway.listen]
        metrics = bind(settings.metrics_address, "SLOTSERVE_METRICS_ADDRESS") if settings.metrics_address else None
    except (NodeFileError, ListenError) as err:
        print(f"slotserve-agent gateway: {err}", file=sys.stderr)
        return 1
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            serve(
                sockets,
                settings.agent_state_dir,
                settings.run_dir,
                node=node.node,
                linger=settings.gateway_linger_seconds,
                body_limit=int(settings.gateway_body_limit_mb * 1024 * 1024),
                idle_seconds=settings.gateway_idle_seconds,
                metrics=metrics,
                access_log=AccessLog(settings.log_format == "json", settings.log_level.lower() in ("info", "debug")),
            )
        )


async def serve(
    sockets: Sequence[socket.socket],
    state_dir: Path,
    run_dir: Path,
    *,
    node: str = "",
    linger: float | None = None,
    body_limit: int = BODY_LIMIT,
    idle_seconds: float = ENGINE_IDLE_SECONDS,
    metrics: socket.socket | None = None,
    access_log: AccessLog | None = None,
) -> int:
    """Serves on listening sockets until SIGTERM or SIGINT (twice: at once). `linger` None: as the agent says; `metrics`:
    a socket for them alone."""
    loop = asyncio.get_running_loop()
    gateway = Gateway(
        loop,
        node=node,
        body_limit=body_limit,
        idle_seconds=idle_seconds,
        metrics_apart=metrics is not None,
        access_log=access_log,
    )
    load_saved(gateway, state_dir)
    gateway.usage.find(state_dir / "gateway")
    link = loop.create_task(keep_linked(gateway, run_dir / "agent.sock"))
    servers = [await _server(loop, gateway.connection, s) for s in sockets]
    if metrics is not None:
        servers.append(await _server(loop, gateway.metrics_connection, metrics))
    gc.freeze()  # what is there now stays; requests leave few cycles, so they are looked for seldom
    gc.set_threshold(20_000, 20, 50)
    for each in sockets:
        log.info("gateway listens address=%s", each.getsockname())
    stop, at_once = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    await stop.wait()
    for server in servers:
        server.close()
    gateway.stop_accepting()
    log.info("gateway accepts no more requests, connections left=%s", len(gateway.connections))
    ends = [loop.create_task(gateway.wait_empty()), loop.create_task(at_once.wait())]
    if linger is None:
        linger = LINGER_SECONDS if gateway.table.linger is None else gateway.table.linger
    await asyncio.wait(ends, timeout=linger, return_when=asyncio.FIRST_COMPLETED)
    if gateway.connections:
        gateway.cut_all()
        await asyncio.wait(ends[:1], timeout=CUT_SECONDS + 0.5)
    gateway.close()
    await asyncio.wait(ends[:1], timeout=1.0)  # what was running is accounted for as its connections are lost
    await gateway.hand_over_usage(HAND_OVER_SECONDS)
    for task in (*ends, link):
        task.cancel()
    await asyncio.gather(*ends, link, return_exceptions=True)
    gateway.usage.leave(state_dir / "gateway", gateway.id)
    return 0


def bind(address: str, setting: str = "gateway.listen") -> socket.socket:
    """A listening socket for host:port, [v6]:port or unix:/path. Raises ListenError."""
    try:
        if address.startswith("unix:"):
            return _bind_unix(address.removeprefix("unix:"))
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ListenError(f"{setting}: {address!r} is not host:port, [v6]:port or unix:/path")
        host = host.removeprefix("[").removesuffix("]")
        family, kind, proto, _, where = socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, proto)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(where)
        server.listen(BACKLOG)
        server.setblocking(False)
        return server
    except ListenError:
        raise
    except (OSError, OverflowError) as err:
        reason = getattr(err, "strerror", None) or err
        raise ListenError(f"{setting}: cannot listen on {address!r}: {reason}") from err


def handed_over() -> list[socket.socket]:
    """The listening sockets that systemd (or a predecessor) hands over by LISTEN_FDS; none where it does not."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    number = int(os.environ.get("LISTEN_FDS") or 0)
    sockets = [socket.socket(fileno=fd) for fd in range(FIRST_HANDED_FD, FIRST_HANDED_FD + number)]
    for each in sockets:
        each.setblocking(False)
        os.set_inheritable(each.fileno(), False)
    return sockets


def _bind_unix(path: str) -> socket.socket:
    if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)  # left behind by a process that is gone
        else:
            raise ListenError(f"gateway.listen: somebody listens on 'unix:{path}' already")
        finally:
            probe.close()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(BACKLOG)
    server.setblocking(False)
    return server


async def _server(
    loop: asyncio.AbstractEventLoop, connection: Callable[[], ClientConnection], sock: socket.socket
) -> asyncio.AbstractServer:
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=sock, backlog=BACKLOG)
    return await loop.create_server(connection, sock=sock, backlog=BACKLOG)

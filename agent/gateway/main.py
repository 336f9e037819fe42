"""The gateway: `slotserve-agent gateway`.

Listens where the node's file says (host:port, [v6]:port, unix:/path), on sockets handed over by systemd, or on those of
the gateway that runs already, whose place it takes. One process, or several workers below one that watches over them
(workers.py).

SIGTERM: accepts nothing more, finishes what runs (streams up to the linger setting), and ends; a second one: at once.
SIGUSR2: starts this command once more, which takes over. SIGUSR1 (to a worker): another process accepts now.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvloop

from agent.gateway import workers
from agent.gateway.access_log import AccessLog
from agent.gateway.board import Board
from agent.gateway.connection import ClientConnection
from agent.gateway.cors import Cors
from agent.gateway.handover import Predecessor, offered, start_successor, take_over
from agent.gateway.journal import Journal
from agent.gateway.link import keep_linked, load_saved
from agent.gateway.listen import BACKLOG, ListenError, bind, handed_over, notice_the_gone
from agent.gateway.open_files import raise_limit
from agent.gateway.relay import RelayDoor, Relays
from agent.gateway.reply import CUT_SECONDS
from agent.gateway.server import Gateway
from agent.gateway.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, Tls, TlsError
from agent.settings import AgentSettings, NodeFileError, read_node_file
from protos.shared.systemd import feed_watchdog

log = logging.getLogger(__name__)
SETTINGS = {"metrics=": "SLOTSERVE_METRICS_ADDRESS", "relay=": "gateway.relay_listen"}
LINGER_SECONDS = 3600.0
HAND_OVER_SECONDS = 2.0  # at the end, for the agent to take the last usage rows
LAST_HANDSHAKE_SECONDS = 1.0  # of a connection that was accepted before another process took over
LINK_SECONDS = 0.5  # at the start, for the agent to answer
SYSTEMD = "systemd"  # what sockets that it made are called here: where there are some, it says where to listen
METRICS = "metrics="  # in front of the address that is for metrics alone
RELAY = "relay="  # in front of the one that is for other nodes' gateways


def run(settings: AgentSettings, listen: Sequence[str] | None = None) -> int:
    """Runs a gateway until it is told to stop; the exit status. `listen` overrides the node's file."""
    before = None
    raise_limit()
    try:
        node = read_node_file(settings.node_file)
        tls = Tls(*node.gateway.tls) if node.gateway.tls else None
        given = handed_over()
        before = take_over(settings.run_dir)
        mode = int(node.gateway.socket_mode, 8)
        apart = {METRICS: settings.metrics_address, RELAY: node.gateway.relay_listen}
        sockets = _sockets(listen or node.gateway.listen, apart, given, before, mode)
    except (NodeFileError, ListenError, TlsError) as err:
        if before is not None:
            before.close()
        print(f"slotserve-agent gateway: {err}", file=sys.stderr)
        return 1
    if settings.gateway_workers > 1:
        return asyncio.run(workers.supervise(sockets, settings, node.node, before, node.gateway.tls))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(sockets, settings, node.node, before=before, tls=tls))


def run_worker(work: workers.Work) -> int:
    """One worker of several."""
    sockets = {name: socket.socket(fileno=fd) for name, fd in work.sockets.items()}
    board = Board(work.board, work.workers, work.number)
    tls = Tls(*map(Path, work.tls)) if work.tls else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(sockets, work.settings, work.node, board=board, ready=work.say_ready, tls=tls))


async def serve(
    sockets: Mapping[str, socket.socket],
    settings: AgentSettings,
    node: str,
    *,
    before: Predecessor | None = None,
    board: Board | None = None,
    ready: Callable[[], None] = lambda: None,
    tls: Tls | None = None,
) -> int:
    """Serves on listening sockets (by address) until it is told to stop. `board`: this is a worker."""
    loop = asyncio.get_running_loop()
    state_dir, run_dir = settings.agent_state_dir, settings.run_dir
    relays = Relays(state_dir)
    gateway = Gateway(
        loop,
        node=node,
        body_limit=int(settings.gateway_body_limit_mb * 1024 * 1024),
        idle_seconds=settings.gateway_idle_seconds,
        metrics_apart=any(name.startswith(METRICS) for name in sockets),
        access_log=AccessLog(
            settings.log_format == "json", settings.log_level.lower() in ("info", "debug"), shared=board is not None
        ),
        board=board,
        cors=Cors(settings.gateway_cors_origins),
        absorbs=settings.gateway_absorb_aborts,
        relays=relays if settings.gateway_relay else None,
    )
    load_saved(gateway, state_dir)
    gateway.usage_folder = state_dir / "gateway"
    gateway.usage.journal = Journal(gateway.usage_folder, gateway.id)
    gateway.usage.find(gateway.usage_folder)
    link = loop.create_task(keep_linked(gateway, run_dir / "agent.sock"))
    await _wait(gateway.agent_tried, LINK_SECONDS)  # a barrier under way must know of us before anybody is let in
    end = _End(loop)
    servers: list[asyncio.AbstractServer | RelayDoor] = []
    watch = [loop.create_task(tls.watch())] if tls is not None else []
    if settings.gateway_relay:
        relays.look()
        watch.append(loop.create_task(relays.watch()))
    for name, each in sockets.items():
        if name.startswith(RELAY):
            notice_the_gone(each)
            door = RelayDoor(relays, gateway.relay_connection, each)
            servers.append(door)
            watch.append(loop.create_task(door.watch()))
        elif name.startswith(METRICS):
            servers.append(await _server(loop, gateway.metrics_connection, each, None))
        else:
            servers.append(await _server(loop, gateway.connection, each, tls))
        log.info("gateway listens address=%s", each.getsockname())
    gc.freeze()  # what is there now stays; requests leave few cycles, so they are looked for seldom
    gc.set_threshold(20_000, 20, 50)
    offer = None
    if board is None:
        loop.add_signal_handler(signal.SIGUSR2, start_successor)
        offer = offered(run_dir, sockets, before, end.replace)
        feeding = loop.create_task(feed_watchdog())
        watch.append(feeding)
    gateway.show_figures()
    ready()
    await end.told.wait()
    if end.replaced and board is None:
        feeding.cancel()  # the one that accepts now does it
    for server in servers:
        server.close()
    if offer is not None:
        offer.close()
    gateway.stop_accepting(handed_over=end.replaced)
    end.on_terminate = gateway.stop_accepting
    log.info("gateway accepts no more, replaced=%s connections left=%s", end.replaced, len(gateway.connections))
    ends = [loop.create_task(wait_empty(gateway)), loop.create_task(end.at_once.wait())]
    linger = settings.gateway_linger_seconds
    if linger is None:
        linger = LINGER_SECONDS if gateway.table.linger is None else gateway.table.linger
    await asyncio.wait(ends, timeout=linger, return_when=asyncio.FIRST_COMPLETED)
    if not gateway.empty:
        gateway.running.cut_all()
        await asyncio.wait(ends[:1], timeout=CUT_SECONDS + 0.5)
    gateway.close()
    await asyncio.wait(ends[:1], timeout=1.0)  # what was running is accounted for as its connections are lost
    await hand_over_usage(gateway, HAND_OVER_SECONDS)
    for task in (*ends, *watch, link):
        task.cancel()
    await asyncio.gather(*ends, *watch, link, return_exceptions=True)
    gateway.read_tokens()
    gateway.usage.leave(state_dir / "gateway", gateway.id)
    return 0


async def wait_empty(gateway: Gateway) -> None:
    """Returns when no connection is left (call after `stop_accepting`); where another process has taken over, also
    when none has come out of a handshake for a while."""
    last = gateway.loop.time()
    while not gateway.empty or (not gateway.refusing and gateway.loop.time() - last < LAST_HANDSHAKE_SECONDS):
        if not gateway.empty:
            last = gateway.loop.time()
        await asyncio.sleep(0.05)


async def hand_over_usage(gateway: Gateway, seconds: float) -> None:
    """Returns when the agent has all rows, is away, or has taken too long."""
    deadline = gateway.loop.time() + seconds
    while gateway.send is not None and len(gateway.usage) and gateway.loop.time() < deadline:
        gateway.send_usage()
        await asyncio.sleep(0.01)


class _End:
    """Who has told this process to end, and how."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told, self.at_once = asyncio.Event(), asyncio.Event()
        self.replaced = False  # another process accepts in our place
        self.on_terminate: Callable[[], None] = lambda: None
        self._terminated = False
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminate)
        loop.add_signal_handler(signal.SIGUSR1, self.replace)

    def replace(self) -> None:
        if not self.told.is_set():
            self.replaced = True
            self.told.set()

    def _terminate(self) -> None:
        if self._terminated:
            self.at_once.set()
        self._terminated = True
        self.on_terminate()
        self.told.set()


def _sockets(
    listen: Sequence[str],
    apart: Mapping[str, str | None],
    given: list[socket.socket],
    before: Predecessor | None,
    mode: int,
) -> dict[str, socket.socket]:
    """The listening sockets by address: systemd's, a predecessor's, or new ones. Raises ListenError."""

    def one(name: str, address: str, setting: str) -> socket.socket:
        return (before.pick(name) if before is not None else None) or bind(address, setting, mode)

    if not given and before is not None:
        given = before.pick_all(SYSTEMD)
    if given:
        sockets = {f"{SYSTEMD}{number}": each for number, each in enumerate(given)}
    else:
        sockets = {address: one(address, address, "gateway.listen") for address in listen}
    for kind, address in apart.items():
        if address:
            sockets[kind + address] = one(kind + address, address, SETTINGS[kind])
    return sockets


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def _server(
    loop: asyncio.AbstractEventLoop, connection: Callable[[], ClientConnection], sock: socket.socket, tls: Tls | None
) -> asyncio.AbstractServer:
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=sock, backlog=BACKLOG)
    notice_the_gone(sock)
    if tls is None:
        return await loop.create_server(connection, sock=sock, backlog=BACKLOG)
    return await loop.create_server(
        connection,
        sock=sock,
        backlog=BACKLOG,
        ssl=tls.context,
        ssl_handshake_timeout=HANDSHAKE_SECONDS,
        ssl_shutdown_timeout=SHUTDOWN_SECONDS,
    )

"""Requests between the gateways of a fleet: mutual TLS with the nodes' own certificates, one connection a request.

None is kept for the next request, which costs that some milliseconds: whether a node is still one of the fleet is looked
at with each, a node that has gone is noticed before anything is sent to it, so that another one can be asked, and there
is never a doubt whether a request has been begun.

A node that is given an address for it (`relay_listen`) takes requests from other nodes there, and nothing else: who has
no certificate of a node does not get in. The caller's key comes as its hash, which the node looks up in its own table,
so that it decides itself; the request's id is kept. What comes in here never goes out again.

The name that a node's certificate is checked for is made from the node's name, for node names are no host names.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.directory import Place
from agent.errors import NotEnrolled
from agent.gateway.listen import notice_the_gone
from agent.gateway.table import Endpoint, header_text
from agent.gateway.upstream import Upstream
from agent.state import IDENTITY, Identity, State

if TYPE_CHECKING:
    from agent.gateway.connection import ClientConnection
    from agent.gateway.onward import Onward

log = logging.getLogger(__name__)
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 5.0
MOST_TRIES = 3  # nodes, for one request
DOWN_SECONDS = 10.0  # a node that was not reached is asked last for so long
BACKLOG = 2048
KEY_HEADER = b"X-SlotServe-Relay"


def tls_name(node: str) -> str:
    """What the certificate of a node is made out to, beside the node's own name (controller/fleet/ca.py makes it)."""
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.node.slotserve.invalid"


class Relays:
    """`client`: how other nodes are dialled, None while this node has no certificate. `look` reads it again where it has
    changed."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._seen: object = ()
        self._down: dict[str, float] = {}  # addresses that were not reached, and until when that counts
        self.client: ssl.SSLContext | None = None
        self.server: ssl.SSLContext | None = None

    def look(self) -> bool:
        """Whether both are others now."""
        try:
            stat = (self._state_dir / IDENTITY).stat()
            seen: object = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            seen = None
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            identity = State(self._state_dir).identity()
            self.client, self.server = _context(identity, True), _context(identity, False)
        except (NotEnrolled, OSError, ValueError) as err:
            log.warning("no relays between nodes: %s", err)
            return False
        return True

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def order(self, places: Sequence[Place], now: float) -> list[Place]:
        """Those to try, in this order."""
        return sorted(places, key=lambda p: self._down.get(p.relay, 0.0) > now)[:MOST_TRIES]

    def reached(self, place: Place) -> None:
        self._down.pop(place.relay, None)

    def not_reached(self, place: Place, now: float) -> None:
        self._down[place.relay] = now + DOWN_SECONDS


class RelayDoor:
    """The listening side. A new certificate, or another authority to trust, is a new server on the same socket."""

    def __init__(self, relays: Relays, factory: Callable[[], ClientConnection], listening: socket.socket) -> None:
        self._relays, self._factory, self._listening = relays, factory, listening
        self._server: asyncio.AbstractServer | None = None
        self._context: ssl.SSLContext | None = None
        self._closed = False

    async def watch(self) -> None:
        """Serves, until closed or cancelled."""
        try:
            while not self._closed:
                self._relays.look()
                if self._relays.server is not self._context:
                    await self._renew()
                await asyncio.sleep(LOOK_SECONDS if self._context else 0.5)
        finally:
            self.close()

    def close(self) -> None:
        self._closed = True
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _renew(self) -> None:
        self._context = self._relays.server
        assert self._context is not None
        before, loop = self._server, asyncio.get_running_loop()
        fresh = await loop.create_server(
            self._factory,
            sock=self._listening.dup(),
            backlog=BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=CONNECT_SECONDS,
            ssl_shutdown_timeout=1.0,
        )
        self._server = fresh
        if before is not None:
            before.close()
        if self._closed:
            fresh.close()
        log.info("relays are taken address=%s", self._listening.getsockname())


def refusal(transport: Any, members: Collection[str] | None) -> str:
    """Why a connection is not let in, for all that its certificate is of our authority; "" where it is. `members`: nodes
    that are enrolled now, as the controller said last; None: it has not."""
    certificate = transport.get_extra_info("peercert") or {}
    subject = {name: value for part in certificate.get("subject", ()) for name, value in part}
    node, enrolment = subject.get("commonName"), subject.get("serialNumber")
    if not node or not enrolment or "organizationName" in subject:
        return "the certificate is not a node's"  # a controller's is of the same authority
    if members is not None and hashlib.sha256(f"{node}/{enrolment}".encode()).hexdigest()[:32] not in members:
        return f"node {node} has been removed, disabled or enrolled anew"
    return ""


def endpoint(exchange: Onward, place: Place) -> Endpoint:
    """What a relayed request is sent as: as it came, with the hash of its key in the key's place."""
    head = b"Host: relay.slotserve\r\n%b: %b\r\n" % (KEY_HEADER, exchange.head.key_hash.encode())
    return Endpoint(
        socket=None,
        host="",
        port=0,
        model=place.model,
        request_head=head + b"Connection: close\r\n",
        upgrade_head=head + b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        answer_head=f"X-SlotServe-Node: {header_text(place.node)}\r\n".encode(),
    )


async def dial(exchange: Onward, relays: Relays) -> bool:
    """Connects to the first of the exchange's places that lets us in; whether one does."""
    loop, context = exchange.gateway.loop, relays.client
    if context is None:
        return False  # never without TLS
    for place in relays.order(exchange.places, loop.time()):
        upstream = Upstream(exchange)
        exchange.upstream = upstream
        exchange.goes_to(place)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await _connect(loop, upstream, place, context)
        except (OSError, ValueError) as err:  # TimeoutError and ssl.SSLError are OSErrors
            upstream.drop()
            relays.not_reached(place, loop.time())
            log.warning("node not reached node=%s address=%s id=%s error=%s", place.node, place.relay, exchange.id, err)
        else:
            relays.reached(place)
            return True
    return False


async def _connect(loop: asyncio.AbstractEventLoop, upstream: Upstream, place: Place, context: ssl.SSLContext) -> None:
    host, _, port = place.relay.rpartition(":")
    name = tls_name(place.node)
    transport, _ = await loop.create_connection(
        lambda: upstream, host.strip("[]"), int(port), ssl=context, server_hostname=name, ssl_shutdown_timeout=1.0
    )
    notice_the_gone(transport.get_extra_info("socket"))  # a machine that has lost its power says nothing


def _context(identity: Identity, client: bool) -> ssl.SSLContext:
    """Raises OSError or ValueError where the certificate cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if client else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = client
    context.load_verify_locations(cadata=identity.ca.decode())
    fd = os.memfd_create("slotserve-relay")  # the key is never in a file of its own
    try:
        os.write(fd, identity.key + b"\n" + identity.certificate)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return context

"""The controller's one event loop, in a thread of its own: the planner and both gRPC ports.

Two ports, for gRPC's client authentication is all or nothing: the fleet port asks every peer for a certificate of our
CA, the enrolment port cannot. The server's certificate is looked at again at each handshake, so that a renewed one
counts without a restart.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from controller.fleet.ca import CertificateAuthority
from controller.fleet.enrolment import EnrolmentService
from controller.fleet.failures import StoreFailures
from controller.fleet.leadership import Leadership
from controller.fleet.log_service import LogService
from controller.fleet.logs import LogStore
from controller.fleet.peers import PeerService
from controller.fleet.records import Records
from controller.fleet.service import FleetService
from controller.store.session import Store
from protos import enrol_pb2_grpc, fleet_pb2_grpc, logs_pb2_grpc, peers_pb2_grpc
from protos.shared.systemd import feed_watchdog

log = logging.getLogger(__name__)
OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.tsi.max_frame_size", 4096),  # of TLS: each stream keeps such buffers, the default of 16 KiB costs 20 kB more
    ("grpc.so_reuseport", 0),  # two controllers on one port would share the agents at random
)
THREADS = 16  # for the store and the logs' files: a few that wait for the disk must not keep the others waiting
END_SECONDS = 3.0  # for calls that are under way at the end; it is over when they are
CERTIFICATE_LOOK_SECONDS = 3600.0


class Runs(Protocol):
    """What is needed of the planner here."""

    async def run(self) -> None: ...


class FleetServer:
    """Starts and ends the loop's thread. After `start()` the ports that were chosen are in `fleet_port`, `enrol_port`.

    With a `leadership` it says when the planner and the service run, and `peers` answers other controllers."""

    def __init__(
        self,
        *,
        store: Store,
        service: FleetService,
        logs: LogStore,
        ca: CertificateAuthority,
        planner: Runs,
        clock: Callable[[], int],
        fleet_listen: str,
        enrol_listen: str,
        fleet_address: Callable[[], str],
        on_death: Callable[[BaseException], None] = lambda _: None,
        leadership: Leadership | None = None,
        peers: PeerService | None = None,
    ) -> None:
        self._leadership, self._peers = leadership, peers
        self._store, self._service, self._logs, self._ca, self._planner = store, service, logs, ca, planner
        self._clock, self._fleet_listen, self._enrol_listen = clock, fleet_listen, enrol_listen
        self._fleet_address, self._on_death = fleet_address, on_death
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="fleet", daemon=True)
        self.fleet_port = self.enrol_port = 0

    def start(self) -> None:
        """Returns once both ports accept. Raises OSError naming the address that cannot be had."""
        self._thread.start()
        self._started.result()

    def stop(self, seconds: float = 10.0) -> None:
        """Ends the streams and the loop."""
        if self._loop and self._stop and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(seconds)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as err:  # whoever waits for the start, or runs by the loop, has to hear of any end
            if not self._started.done():
                self._started.set_exception(err)
            else:
                log.exception("the fleet's loop has ended")
                self._on_death(err)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(THREADS, "fleet-store"))
        fleet, enrol = (grpc.aio.server(interceptors=(StoreFailures(),), options=OPTIONS) for _ in range(2))
        fleet_pb2_grpc.add_FleetServicer_to_server(self._service, fleet)
        records = Records(self._store, self._clock)
        logs_pb2_grpc.add_LogsServicer_to_server(LogService(self._logs, records), fleet)
        door = EnrolmentService(self._store, self._ca, self._clock, self._fleet_address)
        enrol_pb2_grpc.add_EnrolmentServicer_to_server(door, enrol)
        if self._peers:
            peers_pb2_grpc.add_PeersServicer_to_server(self._peers, fleet)
        self.fleet_port = _bind(fleet, self._fleet_listen, self._credentials(ask_for_certificate=True))
        self.enrol_port = _bind(enrol, self._enrol_listen, self._credentials(ask_for_certificate=False))
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._stop.wait(), name="stop"),
            asyncio.create_task(feed_watchdog(), name="watchdog"),
        ]
        if self._leadership:
            tasks.append(asyncio.create_task(self._leadership.run(), name="leadership"))
            looked = asyncio.create_task(self._leadership.lease.looked.wait())
            await asyncio.wait((looked, tasks[-1]), return_when=asyncio.FIRST_COMPLETED)
            looked.cancel()  # who leads is known before anybody asks
        else:
            tasks.append(asyncio.create_task(self._planner.run(), name="planner"))
            tasks.append(asyncio.create_task(self._service.run(), name="fleet service"))
        try:
            await asyncio.gather(fleet.start(), enrol.start())
            self._started.set_result(None)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what ended it
            if not self._stop.is_set():
                raise RuntimeError(f"{', '.join(t.get_name() for t in done)} ended by itself")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # streams end with a word, the lease is given back
            await asyncio.gather(fleet.stop(END_SECONDS), enrol.stop(END_SECONDS))

    def _credentials(self, *, ask_for_certificate: bool) -> Any:
        """Looks at the certificate's age once an hour at most, and at once when the CA is another; the fetcher runs at
        every handshake."""

        def made() -> tuple[tuple[bytes, bytes], bytes | None]:
            return self._ca.server_pair(), self._ca.certificate_pem().encode() if ask_for_certificate else None

        looked, of, now = time.monotonic(), self._ca.trusted_ids(), made()

        def fetch() -> Any:
            nonlocal looked, of, now
            trusted = self._ca.trusted_ids()
            if trusted == of and time.monotonic() - looked < CERTIFICATE_LOOK_SECONDS:
                return None
            looked, of, before = time.monotonic(), trusted, now
            now = made()
            return None if now == before else grpc.ssl_server_certificate_configuration([now[0]], now[1])

        first = grpc.ssl_server_certificate_configuration([now[0]], now[1])
        return grpc.dynamic_ssl_server_credentials(first, fetch, ask_for_certificate)


def _bind(server: grpc.aio.Server, address: str, credentials: Any) -> int:
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError as err:
        raise OSError(f"cannot listen on {address}: {err}") from None
    if not port:
        raise OSError(f"cannot listen on {address}: is another program there?")
    return port

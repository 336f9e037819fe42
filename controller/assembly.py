"""What `slotserve serve` is made of, put together: who is given what. Nothing is started in here."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from controller.context import Context, Counted, steps_of_the_clock, wall_ms
from controller.fleet import shared_secrets
from controller.fleet.ca import CertificateAuthority
from controller.fleet.leadership import Leadership
from controller.fleet.lease import Lease
from controller.fleet.live import Live
from controller.fleet.logs import LogStore
from controller.fleet.peers import Follower, PeerLogs, PeerService
from controller.fleet.planner import Planner
from controller.fleet.server import FleetServer
from controller.fleet.service import FleetService
from controller.notify import inbox
from controller.notify.notifier import Notifier
from controller.retention import Nightly
from controller.settings import Settings
from controller.store.session import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """The process's parts that are started and stopped, and what the web side is given."""

    fleet: FleetServer
    nightly: Nightly
    notifier: Notifier
    context: Context


def assemble(settings: Settings, store: Store, hosts: list[str], dialled: Callable[[str, str, int], str]) -> Parts:
    """`hosts`: names and addresses of this machine that nodes dial; `dialled(said, listen, port)`: what others dial."""
    live = Live()
    ca = CertificateAuthority(settings.state_dir / "ca", hosts)
    log_store = LogStore(settings.state_dir / "logs")

    def fleet_address() -> str:
        return dialled(settings.fleet_address, settings.fleet_listen, fleet.fleet_port)

    def controllers() -> list[str]:
        return list(dict.fromkeys((fleet_address(), *filter(None, map(str.strip, settings.fleet_peers.split(","))))))

    lease = Lease(
        store,
        settings.lease_seconds,
        fleet_address,
        wall_ms,
        unfit=lambda: shared_secrets.differing(store, settings),  # nodes would not know it, or trust the old CA
    )
    follower = None if store.sqlite else Follower(store, live, lease, ca, wall_ms)
    logs = PeerLogs(log_store, lease, follower) if follower else log_store
    planner = Planner(store, live, settings, wall_ms, lambda node: service.push(node))
    planner.listen()
    service: FleetService = FleetService(store, live, planner, wall_ms, inbox.tell_event, ca, lease, controllers)

    def heard(channels: tuple[str, ...], keys: bool, commands: bool) -> None:
        if channels:
            planner.wake(*channels)
        if keys or commands:
            service.look(keys=keys)

    def wake(*, keys: bool = False, commands: bool = False) -> None:
        service.look(keys=keys)
        if follower and not lease.holds():
            follower.wake(keys=keys, commands=commands)

    def looked_at() -> int | None:
        return planner.last_look_ms if lease.holds() or not follower else follower.last_look_ms

    fleet: FleetServer = FleetServer(
        store=store,
        service=service,
        logs=log_store,
        ca=ca,
        planner=planner,
        clock=wall_ms,
        fleet_listen=settings.fleet_listen,
        enrol_listen=settings.enrol_listen,
        fleet_address=lambda: ",".join(controllers()),
        on_death=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        leadership=Leadership(lease, planner, service, follower, service.figures.led),
        peers=PeerService(live, lease, log_store, heard, lambda: planner.last_look_ms),
    )
    context = Context(
        settings=settings,
        store=store,
        live=live,
        wake_planner=planner.wake,
        wake_commands=lambda: wake(commands=True),
        keys_changed=lambda: wake(keys=True),
        plan_looked_at=looked_at,
        fleet_figures=lambda: Counted(planner.looks, planner.changes, planner.lateness, service.figures),
        clock_stepped=steps_of_the_clock(),
        leads=lease.holds,
        leader=lambda: lease.leader_address,
        logs=logs,
        ca=ca,
    )
    return Parts(fleet, Nightly(store, log_store, settings, wall_ms), Notifier(context), context)

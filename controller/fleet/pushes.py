"""A node's newest plan as its stream carries it, and the epoch of the plans: a node refuses what is older than it follows."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from controller.fleet.figures import Figures
from controller.fleet.lease import Lease
from controller.fleet.sessions import Session, message
from controller.store.session import Store
from protos import fleet_pb2

log = logging.getLogger(__name__)
WILD_EPOCH = 1 << 62
Stamp = tuple[int, int, bytes]  # epoch, generation, sha256


class Plans(Protocol):
    """What is needed of the planner."""

    epoch: int

    def plan_for(self, node_name: str) -> tuple[int, int, bytes, bytes] | None:
        """(epoch, generation, plan, sha256)."""

    def outgrow(self, epoch: int) -> None: ...


class Pushes:
    """On the fleet's loop."""

    def __init__(self, store: Store, plans: Plans, lease: Lease | None, figures: Figures) -> None:
        self._store, self._plans, self._lease, self._figures = store, plans, lease, figures
        self._spoken: dict[str, int] = {}  # the epoch of the newest plan that a node was sent from here

    def newest(self, node: str) -> Stamp | None:
        """What the node should hold."""
        plan = self._plans.plan_for(node)
        return (plan[0], plan[1], plan[3]) if plan else None

    def message(self, session: Session, held: Stamp | None = None) -> fleet_pb2.ControllerMessage | None:
        """The newest plan, unless it is what the node holds."""
        if self._lease and not self._lease.holds():
            return None  # deposed: nothing more is pushed
        plan = self._plans.plan_for(session.node)
        if plan is None:
            return None
        epoch, generation, content, sha256 = plan
        if (epoch, generation, sha256) == held:
            return None
        self._figures.pushes += 1
        self._spoken[session.node] = epoch
        session.pushed = generation, time.monotonic()
        return message(plan=fleet_pb2.PlanPush(epoch=epoch, generation=generation, plan=content, sha256=sha256))

    async def outgrow(self, node: str, held: int) -> None:
        """A node that has followed a higher epoch than ours would refuse every plan; one that has followed this very epoch,
        and not from here, may. Where no other controller leads the database has been restored from a backup, and ours
        must go beyond the node's."""
        ours = self._plans.epoch
        another = ours < held or (ours == held and self._spoken.get(node) != ours)
        if not another or not 0 < held < WILD_EPOCH:
            return
        if self._store.sqlite:
            await asyncio.to_thread(self._plans.outgrow, held)
        elif self._lease is None or not await asyncio.to_thread(self._lease.outgrow, held):
            return
        log.warning("epoch raised node=%s held=%s ours=%s: the database is older than the node", node, held, ours)

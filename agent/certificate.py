"""The node's certificate while the agent runs: renewed in time, replaced where it ran out, and whose word counts for it.

What makes keys is imported where it is needed: it need not be in memory for the two months between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Any

import grpc

from agent.clock import NodeClock
from agent.errors import EnrolmentFailed
from agent.state import Identity, State, trusted
from protos import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)
RENEW_AGAIN_SECONDS = 600.0
RECOVER_AGAIN_SECONDS = 60.0


class Certificate:
    """`trusts`: the authorities that the stream now open was checked by."""

    def __init__(self, node: str, state: State, clock: NodeClock) -> None:
        self._node, self._state, self._clock = node, state, clock
        self.trusts: frozenset[str] = frozenset()
        self._renew_now = asyncio.Event()
        self._recover_again = 0.0
        self._not_recovered = ""

    async def in_force(self, identity: Identity) -> Identity:
        """For a new stream: the identity, or, where its certificate ran out while the node was off, another one for a
        proof of its key (asked for once a minute). Raises EnrolmentFailed in words."""
        if 0 < identity.ends_at <= self._clock.wall_ms():
            identity = await self._recover(identity)
        self.trusts = trusted(identity.ca)
        return identity

    async def _recover(self, identity: Identity) -> Identity:
        from agent.enrolment import recover

        loop = asyncio.get_running_loop()
        if loop.time() < self._recover_again:
            raise EnrolmentFailed(self._not_recovered)
        self._recover_again = loop.time() + RECOVER_AGAIN_SECONDS
        try:
            await recover(self._state, self._node, self._clock.wall_ms() / 1000)
        except (EnrolmentFailed, OSError) as err:
            self._not_recovered = str(err)
            raise EnrolmentFailed(self._not_recovered) from None
        log.info("certificate had run out and was replaced enrolment=%s", identity.enrol_address)
        return self._state.identity()

    async def renewed(self, channel: grpc.aio.Channel, renew_at: int) -> None:
        """Returns once there is a new certificate: asked for at `renew_at` (ms, two thirds of its life), or as soon as
        the controller wants it."""
        while (left := renew_at - self._clock.wall_ms()) > 0 and not self._renew_now.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left / 1000, 3600)):
                    await self._renew_now.wait()
        from agent.enrolment import renew

        stub: Any = fleet_pb2_grpc.FleetStub(channel)
        while True:
            try:
                await renew(stub, self._state, self._node, self._clock.wall_ms() / 1000)
            except (grpc.RpcError, EnrolmentFailed, OSError) as err:
                log.warning("certificate not renewed error=%r; trying again", err)
                await asyncio.sleep(RENEW_AGAIN_SECONDS)
            else:
                break
        self._renew_now.clear()

    def trust(self, said: fleet_pb2.Trust) -> bool:
        """The controller's CA is being changed: whether its new ones were taken over. Said over a connection that those
        trusted so far have vouched for."""
        identity = self._state.identity()
        pem = said.ca_pem.encode()
        try:
            fresh = trusted(pem)
            if not fresh & trusted(identity.ca):
                raise ValueError("none of those that are trusted now is among them")
            self._state.save_identity(replace(identity, ca=pem))
        except (ValueError, OSError) as err:
            log.error("certificate authorities not taken over error=%r", str(err))
            return False
        self.trusts = fresh
        log.info("certificate authorities taken over number=%s renew=%s", len(fresh), said.renew)
        if said.renew:
            self._renew_now.set()
        return True

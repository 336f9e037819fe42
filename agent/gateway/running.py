"""The requests that run through this gateway process: counted by channel to the end of each, and cut when they must end.

Counts and cuts only; nothing here waits, nothing is sent. What the other processes run the agent says (`elsewhere`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.admission import may_use
from agent.core.types import Millis, Seconds, access_at, step_at
from agent.gateway.errors import Refusal
from agent.gateway.limits import Limits

if TYPE_CHECKING:
    from agent.gateway.keys import Keys
    from agent.gateway.reply import Reply
    from agent.gateway.table import Table


class Running:
    """`in_flight`: admitted requests by channel, 0 where none runs; `relaying`: requests that run on other nodes."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.in_flight: dict[str, int] = {}
        self.elsewhere: dict[str, int] = {}  # in the other gateway processes, as the agent says
        self.relaying: set[Reply] = set()
        self._on: dict[str, set[Reply]] = {}
        self._expiring = False  # one of them has a key that ends

    # counted

    def begun(self, exchange: Reply) -> None:
        channel = exchange.channel
        running = self._on.get(channel)
        if running is None:
            running = self._on[channel] = set()
        running.add(exchange)
        self.in_flight[channel] = len(running)
        if exchange.key is not None:
            self.limits.begun(channel, exchange.key)
            if exchange.key.expires_at is not None:
                self._expiring = True

    def ended(self, exchange: Reply, duration: Seconds) -> bool:
        """Whether it was one of a channel of this node (else it was refused, relayed, or the gateway's own answer)."""
        channel = exchange.channel
        running = self._on.get(channel)
        if running is None or exchange not in running:
            return False
        running.discard(exchange)
        self.in_flight[channel] = len(running)
        if exchange.key is not None:
            self.limits.ended(channel, exchange.key, duration)
        return True

    def take(self, table: Table) -> None:
        """The channels and limits that count from now on."""
        if table.limits or self.limits.in_force:
            self.limits.limit(table.limits, {c: [e.key for e in on if e.key is not None] for c, on in self._on.items()})
        for name in table.views:
            self.in_flight.setdefault(name, 0)

    def everywhere(self) -> dict[str, int]:
        """`in_flight` of all gateway processes of the node."""
        here, elsewhere = self.in_flight, self.elsewhere
        return {c: here.get(c, 0) + elsewhere.get(c, 0) for c in here.keys() | elsewhere.keys()} if elsewhere else here

    def none(self) -> bool:
        """Whether nothing runs on this node's channels, not even what a client has left (see Gateway.absorbs)."""
        return not any(self._on.values())

    # cut

    def cut(self, channel: str, after: Seconds) -> None:
        """The drain is over: what still runs on the channel is told and ends."""
        message = f"Channel {channel} is switching; this request could not be finished before."
        refusal = Refusal(503, "model_switching", message, retry_after=max(1, int(after)))
        for exchange in tuple(self._on.get(channel, ())):
            exchange.cut(refusal)

    def cut_all(self) -> None:
        """This process ends: what still runs is told."""
        refusal = Refusal(503, "restarting", "This gateway process is being replaced; try again.", retry_after=1)
        for exchange in self._all():
            exchange.cut(refusal)

    def cut_expired(self, keys: Keys, now: Millis) -> None:
        """As `cut_dead`, where keys that end are in use."""
        if self._expiring:
            self.cut_dead(keys, now)

    def cut_dead(self, keys: Keys, now: Millis) -> None:
        """What runs with keys that open nothing any more."""
        refusal = Refusal(401, "invalid_api_key", "The API key was revoked or has expired, or its owner was disabled.")
        expiring = False
        for running in self._on.values():
            for exchange in tuple(running):
                if exchange.key is None:
                    continue
                if not keys.still_valid(exchange.key, now):
                    exchange.cut(refusal)
                elif exchange.key.expires_at is not None:
                    expiring = True
        self._expiring = expiring

    def cut_websockets(self, table: Table, now: Millis) -> None:
        """Of others, when a reservation has run for as long as a drain lasts: they have no end of their own."""
        for channel, running in self._on.items():
            view = table.views.get(channel)
            access = access_at(step_at(view.steps, now), now) if view is not None and running else None
            if view is None or access is None or now < access.start + view.drain * 1000:
                continue
            for exchange in tuple(running):
                if exchange.is_websocket and exchange.key is not None and not may_use(access, exchange.key.caller):
                    exchange.cut(Refusal(503, "gpu_reserved", f"Channel {channel} is reserved for somebody else now."))

    def check_engines(self, now: Seconds) -> None:
        """`now`: the loop's time."""
        for exchange in self._all():
            exchange.check_engine(now)

    def _all(self) -> list[Reply]:
        return [exchange for on in (*self._on.values(), self.relaying) for exchange in on]

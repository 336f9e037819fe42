"""The connected nodes: one session a stream, with an outbox that holds each standing subject at most once.

What has to go out is kept as "the plan is due", not as the plan: a node that reads slowly gets the newest one, once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from controller.fleet.keys import Table
from controller.store.channel_states import Doing
from protos import fleet_pb2

Make = Callable[[], fleet_pb2.ControllerMessage | None]


class Session:
    """One node's stream. All methods on the loop."""

    def __init__(self, node: str, node_id: str, enrolment: str) -> None:
        self.node, self.node_id, self.enrolment = node, node_id, enrolment
        self.keys: Table = {}  # as last sent
        self.gpus: list[dict[str, object]] | None = None  # as last written to the store
        self.states: dict[str, Doing] = {}  # likewise, by channel
        self.trusts: tuple[str, ...] = ()  # CAs, by their ids
        self.certificate: dict[str, Any] = {}  # of the stream: {issuer, ends_at}
        self.pushed: tuple[int, float] | None = None  # generation of the newest plan on its way, since when (monotonic)
        self.renew = False  # its certificate is not good for what the node wants to do with it
        self.silent = False  # nothing was heard for long
        self.ended = asyncio.Event()
        self.why_ended = ""
        self._due: deque[tuple[str, Make]] = deque()
        self._something = asyncio.Event()

    def send(self, make: Make, subject: str = "") -> None:
        """Puts a message into the outbox; it is made when its turn comes. A subject that waits already waits once."""
        if subject and any(s == subject for s, _ in self._due):
            return
        self._due.append((subject, make))
        self._something.set()

    async def next_message(self) -> fleet_pb2.ControllerMessage:
        """The next message to write."""
        while True:
            while self._due:
                _, make = self._due.popleft()
                if message := make():
                    return message
            self._something.clear()
            await self._something.wait()

    def end(self, why: str) -> None:
        """Has the stream closed by the controller."""
        self.why_ended = self.why_ended or why
        self.ended.set()


class Sessions:
    """By node name; a second stream of a node takes the first one's place."""

    def __init__(self) -> None:
        self._by_node: dict[str, Session] = {}

    def join(self, session: Session) -> None:
        old = self._by_node.get(session.node)
        self._by_node[session.node] = session
        if old:
            old.end("replaced by a newer stream of the same node")

    def leave(self, session: Session) -> bool:
        """True when the node has no stream any more; False when a newer one has taken over."""
        if self._by_node.get(session.node) is not session:
            return False
        del self._by_node[session.node]
        return True

    def get(self, node: str) -> Session | None:
        return self._by_node.get(node)

    def all(self) -> list[Session]:
        return list(self._by_node.values())


def message(**body: Any) -> fleet_pb2.ControllerMessage:
    """A message with one body: `message(plan=…)`."""
    return fleet_pb2.ControllerMessage(**body)

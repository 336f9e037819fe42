"""What nodes are told of each other: which models are to be had where in the fleet, now and next.

A gateway that does not serve a model says from it where it is served, and may relay the request there. Made from the
plans and from what nodes say of themselves, of each model only the best places, so that its size is bounded whatever
the fleet's; sent to every node when it has changed, with pauses that grow with their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import logging
from collections.abc import Callable, Iterable

from sqlalchemy import select

from controller.fleet.live import Live
from controller.fleet.places import Row, places_of
from controller.fleet.pushes import Plans
from controller.fleet.sessions import Session, Sessions, message
from controller.store.session import Store, waits
from controller.store.tables import Node
from protos import fleet_pb2, types_pb2

log = logging.getLogger(__name__)
MOST = (8, 32, 4, 4)  # of each kind of places (controller/fleet/places.py), of one model
MOST_PLACES = 1000
SLICE = 500  # places that are looked at in one go
PAUSE_SECONDS, PAUSE_PER_NODE_SECONDS = 0.25, 0.005
BATCH, BATCH_SECONDS = 20, 0.01  # nodes that are told at once
KEEP_SECONDS = 15.0  # an agent that has closed its stream restarts or dials again; one that fell silent is out at once
MEMBERS_SECONDS = 15.0  # between two looks at who is enrolled, where nothing else happens
GRACE_SECONDS = 15.0  # after a start, for the nodes to come back: what they still know of each other is better


class Book:
    """The places of all nodes, and the best of each model."""

    def __init__(self) -> None:
        self._by_model: dict[str, dict[str, list[Row]]] = {}  # then by node
        self._models_of: dict[str, set[str]] = {}
        self._best: dict[str, list[Row]] = {}
        self._stale: set[str] = set()

    def put(self, node: str, rows: Iterable[Row]) -> None:
        """All places of a node."""
        fresh: dict[str, list[Row]] = {}
        for row in rows:
            fresh.setdefault(row.model, []).append(row)
        for model in self._models_of.get(node, set()) | fresh.keys():
            nodes = self._by_model.setdefault(model, {})
            if nodes.get(node) == fresh.get(model):
                continue
            self._stale.add(model)
            if model in fresh:
                nodes[node] = fresh[model]
            else:
                nodes.pop(node, None)
        self._models_of[node] = set(fresh)

    def nodes(self) -> set[str]:
        return {node for node, models in self._models_of.items() if models}

    async def content(self, now: int, members: bytes = b"") -> bytes:
        """The directory. Where it would be too long, every model loses its last places first."""
        stale, self._stale = sorted(self._stale), set()
        for model in stale:
            await self._choose(model, now)
        chosen: list[Row] = []
        depth = 0
        while len(chosen) < MOST_PLACES:
            layer = [best[depth] for _, best in sorted(self._best.items()) if len(best) > depth]
            if not layer:
                break
            chosen += layer[: MOST_PLACES - len(chosen)]
            depth += 1
        places = [row.message() for row in chosen]
        return fleet_pb2.Directory(places=places, members=members).SerializeToString(deterministic=True)

    async def _choose(self, model: str, now: int) -> None:
        """In slices of a few milliseconds: thousands of channels may have the model."""
        kinds: list[list[Row]] = [[], [], [], []]
        places = [row for rows in self._by_model.get(model, {}).values() for row in rows]
        for begin in range(0, len(places), SLICE):
            for row in places[begin : begin + SLICE]:
                kinds[row.kind(now)].append(row)
            kinds = [heapq.nsmallest(MOST[kind], rows, _order) for kind, rows in enumerate(kinds)]
            await asyncio.sleep(0)
        best = [row for rows in kinds for row in rows]
        if best:
            self._best[model] = best
        else:
            self._best.pop(model, None)
            self._by_model.pop(model, None)


def _order(row: Row) -> tuple[object, ...]:
    """What comes first, comes first; then what takes relays, and has the model longest."""
    return (0 if row.ready else row.start, not row.relay_address, -(row.end or 1 << 62), row.node, row.channel)


def members(store: Store) -> bytes:
    """Who may relay: the nodes whose certificates count, removed and disabled ones not among them."""
    with store.read() as session:
        rows = session.execute(
            select(Node.name, Node.certificate_serial)
            .where(Node.certificate_serial.is_not(None), Node.removed_at.is_(None), Node.disabled_at.is_(None))
            .order_by(Node.name)
        ).all()
    return b"".join(hashlib.sha256(f"{name}/{serial}".encode()).digest()[:16] for name, serial in rows)


class Directories:
    """Keeps the book and tells the nodes; `run` on the fleet's loop while this controller leads."""

    def __init__(self, store: Store, live: Live, plans: Plans, sessions: Sessions, clock: Callable[[], int]) -> None:
        self._store, self._live, self._plans, self._sessions, self._clock = store, live, plans, sessions, clock
        self._book = Book()
        self._planned: set[str] = set()
        self._dirty: set[str] = set()
        self._left_at: dict[str, float] = {}  # by the loop's clock: nodes that are away
        self._members = b""
        self._content: bytes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = asyncio.Event()
        live.on_change(lambda node, _channels: self._mark(node))

    def planned(self, node: str) -> None:
        """A node's plan has changed."""
        self._planned.add(node)
        self._mark(node)

    def tell(self, session: Session) -> None:
        """What is known goes to a node that has connected."""
        session.send(self._message, "directory")

    async def run(self) -> None:
        """Until cancelled."""
        self._loop, self._content = asyncio.get_running_loop(), None
        begun = self._loop.time()
        self._dirty |= self._live.snapshot().keys() | self._planned
        while True:
            self._due.clear()
            try:
                await self._look()
                if self._content is not None or self._all_there() or self._loop.time() - begun > GRACE_SECONDS:
                    await self._tell_all()
            except Exception:  # whatever one look comes upon, the next one makes it anew
                log.exception("the directory of the fleet could not be made; trying again with the next change")
            await asyncio.sleep(PAUSE_SECONDS + PAUSE_PER_NODE_SECONDS * len(self._sessions.all()))
            wait = MEMBERS_SECONDS if self._content is not None else 1.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._due.wait()

    async def _look(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for number, node in enumerate(sorted(dirty)):
            said, now = self._live.node(node), self._clock()
            if not said.online:
                self._away(node, said.silent)
                continue
            self._left_at.pop(node, None)
            if said.heard and node in self._planned and (plan := self._plans.plan_for(node)) is not None:
                try:
                    self._book.put(node, places_of(node, said, types_pb2.Plan.FromString(plan[2]), now))
                except Exception:  # what one node says must not keep the others out
                    log.exception("a node is left as it was in the directory of the fleet node=%s", node)
            if number % 4 == 3:
                await asyncio.sleep(0)

    def _away(self, node: str, silent: bool) -> None:
        loop = asyncio.get_running_loop()
        left = self._left_at.setdefault(node, loop.time()) + KEEP_SECONDS - loop.time()
        if not silent and left > 0 and node in self._book.nodes():
            loop.call_later(left, self._mark, node)
        else:
            self._book.put(node, ())

    def _all_there(self) -> bool:
        known = self._live.snapshot()
        return bool(self._planned) and all(
            (n := known.get(node)) is not None and n.online and n.heard for node in self._planned
        )

    async def _tell_all(self) -> None:
        try:
            self._members = await asyncio.to_thread(members, self._store)
        except Exception as err:
            if not waits(log, "who is enrolled is as it was", err):
                raise
        content = await self._book.content(self._clock(), self._members)
        if content == self._content:
            return
        self._content = content
        sessions = self._sessions.all()
        log.debug("directory of the fleet changed bytes=%s nodes=%s", len(content), len(sessions))
        for begin in range(0, len(sessions), BATCH):
            for session in sessions[begin : begin + BATCH]:
                self.tell(session)
            if begin + BATCH < len(sessions):
                await asyncio.sleep(BATCH_SECONDS)

    def _message(self) -> fleet_pb2.ControllerMessage | None:
        if self._content is None:
            return None
        return message(directory=fleet_pb2.DirectoryPush(directory=self._content))

    def _mark(self, node: str) -> None:
        """Thread-safe."""
        self._dirty.add(node)
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between
                self._loop.call_soon_threadsafe(self._due.set)

"""The planner: looks at channels when something has changed or a due time has come, and makes the nodes' plans.

A look is: read some nodes in one short session (worker thread), decide with no session open (on the loop, in slices of
a few milliseconds), write what must survive a restart with guarded updates (worker thread), then tell the gRPC side.
A guarded update that meets nothing means that a person was faster: that node's result is dropped and it is looked at
again. Whatever goes wrong, the last plan stays, and the safety tick tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from controller.fleet import planner_store
from controller.fleet.deciding import Chosen, NodeRecord, Result, decide_channel, decide_node
from controller.fleet.figures import Histogram
from controller.fleet.live import Live
from controller.fleet.snapshot import NodeState, nodes_of, read_nodes
from controller.fleet.threads import Threads
from controller.fleet.wakes import ALL, Wakes
from controller.scheduling.types import Decision, Millis
from controller.settings import Settings
from controller.store.session import Store, answers_not, waits

log = logging.getLogger(__name__)
SLICE_SECONDS = 0.004
BATCH_NODES = 8
STEP_MS = 1000.0  # what is less, a clock is slewed by
PlanStamp = tuple[int, int, bytes, bytes]


class Planner:
    """One a process. `push(node name)` is called on the loop when a node's plan has changed.

    Metrics: `last_look_ms` (clock), `looks`, `changes` (of decisions), `lateness` (by how much due times were met late).
    """

    def __init__(
        self,
        store: Store,
        live: Live,
        settings: Settings,
        clock: Callable[[], int],
        push: Callable[[str], None] = lambda _node: None,
    ) -> None:
        self._store, self._live, self._settings, self._clock, self._push = store, live, settings, clock, push
        self.epoch = 0
        self.last_look_ms: int | None = None
        self.looks = self.changes = 0
        self.lateness = Histogram()
        self._nodes: dict[str, NodeRecord] = {}
        self._by_name: dict[str, NodeRecord] = {}
        self._wakes = Wakes(live, self._ring)
        self._foreign: int | None = None
        self._offset: float | None = None  # of the clock against one that nobody sets (ms)
        self._failed: dict[str, Millis] = {}  # nodes that could not be planned, and when to try again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._threads = Threads(2, "planner")
        self._asked: set[str] | None = None  # nodes without a plan that asked for it during a look at all of them

    # --- from any thread --------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Hears of changes from now on; once."""
        self._store.on_commit(self._wakes.committed)
        self._live.on_change(self._wakes.heard)

    def begin(self, epoch: int) -> None:
        """A term begins: what was known in an earlier one is forgotten, for somebody else may have planned since."""
        self.epoch = epoch
        self._nodes.clear()
        self._by_name.clear()
        self._failed.clear()
        self._foreign = self.last_look_ms = self._offset = None
        self._wakes.add((ALL,))

    def wake(self, *channel_ids: str) -> None:
        """These channels must be looked at now; none = all."""
        self._wakes.add(channel_ids or (ALL,))
        self._ring()

    def plan_for(self, node_name: str) -> PlanStamp | None:
        """(epoch, generation, plan bytes, sha256) of the newest plan; None where there is none yet (one is then made)."""
        node = self._by_name.get(node_name)
        if node is None:
            if self._asked is None:
                self.wake()
            else:  # a thousand nodes dial at once while the first look is under way: it comes to them
                self._asked.add(node_name)
            return None
        return self.epoch, node.generation, node.plan, node.sha256

    def outgrow(self, epoch: int) -> None:
        """A node holds a plan of this epoch (a backup was restored since): ours must be higher, or it refuses them.
        Writes to the store, so not to be called on the loop."""
        while self.epoch <= epoch:
            self.epoch = planner_store.next_epoch(self._store, self._clock(), at_least=epoch + 1)

    def decision(self, node_name: str, channel: str) -> tuple[Decision, Millis] | None:
        """What was last decided for a channel, and since when its step holds."""
        node = self._by_name.get(node_name)
        for known in node.channels.values() if node else ():
            if known.name == channel:
                return known.decision, known.since
        return None

    def _ring(self) -> None:
        if self._loop and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between: nobody is left to be woken
                self._loop.call_soon_threadsafe(self._event.set)

    # --- on the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        self._loop = asyncio.get_running_loop()
        tick = self._settings.tick_seconds
        next_tick = 0.0
        while True:
            self._event.clear()
            try:
                if self._loop.time() >= next_tick:
                    next_tick = self._loop.time() + tick
                    await self.notice_clock(self._loop.time() * 1000)
                    await self._notice_foreign_writes()
                await self.step()
            except planner_store.Deposed as err:
                log.warning("nothing is planned: %s", err)
                self.wake()
                await asyncio.sleep(min(tick, 1.0))
            except Exception as err:
                if not waits(log, "nothing is planned, and the plans stay", err):
                    log.exception("planning failed; the plans stay as they are and the next tick tries again")
                self.wake()
                self._event.clear()
                await asyncio.sleep(min(tick, 1.0))
            wait = max(0.0, next_tick - self._loop.time())
            if (due := self.next_due()) is not None:
                wait = min(wait, max(0.0, (due - self._clock()) / 1000))
            with contextlib.suppress(TimeoutError):  # not wait_for: Python 3.11's can swallow a cancellation
                async with asyncio.timeout(wait):
                    await self._event.wait()

    def next_due(self) -> Millis | None:
        """The next instant at which something is to be looked at."""
        dues = [n.due for n in self._nodes.values() if n.due is not None and n.id not in self._failed]
        dues += self._failed.values()
        return min(dues, default=None)

    async def notice_clock(self, steady_ms: float) -> None:
        """By a clock that nobody sets: whether this machine's was set. Then everything is decided anew, and what was over
        by a time that was ahead goes on (once a term in any case: it may have been set in between)."""
        offset = self._clock() - steady_ms
        if self._offset is not None and abs(offset - self._offset) < STEP_MS:
            return
        if self._offset is not None:
            seconds = (offset - self._offset) / 1000
            log.warning("this machine's clock was set by_seconds=%.1f: everything is decided anew", seconds)
            self._wakes.add((ALL,))
            for node in self._by_name:
                self._push(node)  # also where it stays the same: with each plan a node asks what time it is
        if self._offset is None or offset < self._offset:
            await self._threads.run(planner_store.reopen, self._store, self._clock(), self.epoch)
        self._offset = offset

    async def step(self) -> int:
        """One round: everything that was woken or has come due. Returns the number of nodes looked at."""
        now = self._clock()
        with self._wakes.taken() as (woken, names):
            looked = await self._round(now, woken, names)
        self.last_look_ms = now
        return looked

    async def _round(self, now: Millis, woken: set[str], names: set[str]) -> int:
        if ALL not in woken:
            return await self._look_by_batches(now, sorted(await self._to_look_at(now, woken, names)))
        self._asked = set()
        try:
            batches = await self._threads.run(planner_store.all_nodes, self._store)
            for node_id in self._nodes.keys() - batches:
                self._by_name.pop(self._nodes.pop(node_id).name, None)
            return await self._look_by_batches(now, batches)
        finally:
            asked, self._asked = self._asked, None
            if not asked <= self._by_name.keys():  # enrolled after the look had begun
                self.wake()

    async def _to_look_at(self, now: Millis, woken: set[str], names: set[str]) -> set[str]:
        known = {n.id for n in (self._by_name.get(name) for name in names) if n}
        due = {n.id for n in self._nodes.values() if n.due is not None and n.due <= now and n.id not in self._failed}
        due |= {node_id for node_id, at in self._failed.items() if at <= now}
        return known | due | (await self._threads.run(self._nodes_of, woken) if woken else set())

    async def _look_by_batches(self, now: Millis, node_ids: Sequence[str]) -> int:
        for begin in range(0, len(node_ids), BATCH_NODES):
            if begin:
                await self._look_at_urgent()
            await self._look(now, node_ids[begin : begin + BATCH_NODES])
        return len(node_ids)

    async def _look_at_urgent(self) -> None:
        """Channels that were woken in the middle of a long round (all nodes connect, somebody books): they do not wait
        for the rest of it."""
        with self._wakes.taken(urgent=True) as (urgent, _):
            if urgent:
                await self._look(self._clock(), sorted(await self._threads.run(self._nodes_of, urgent)))

    async def _look(self, now: Millis, node_ids: Collection[str]) -> None:
        try:
            await self._look_at(now, node_ids)
            for node_id in node_ids:
                self._failed.pop(node_id, None)
        except planner_store.Deposed:
            raise
        except Exception as err:
            if answers_not(err):
                raise
            if len(node_ids) > 1:  # one bad node must not keep the others from being planned
                for node_id in node_ids:
                    await self._look(now, (node_id,))
                return
            log.exception("a node cannot be planned; its last plan stays node_id=%s", *node_ids)
            self._failed.update(dict.fromkeys(node_ids, now + int(self._settings.tick_seconds * 1000)))

    async def _look_at(self, now: Millis, node_ids: Collection[str]) -> None:
        states = await self._threads.run(self._read, now, node_ids)
        results = await self.decide(states, now)
        changed = [r.write for r in results if r.changed]
        stale = await self._threads.run(planner_store.apply, self._store, changed, self.epoch) if changed else set()
        for result in results:
            if result.node.id in stale:
                self._wakes.add(result.node.channels)
                self._event.set()
                continue
            self._publish(result, now)
        for node_id in set(node_ids) - {s.id for s in states}:  # removed meanwhile
            if node := self._nodes.pop(node_id, None):
                self._by_name.pop(node.name, None)

    async def decide(self, states: Iterable[NodeState], now: Millis) -> list[Result]:
        """Decides for these nodes, handing the loop back every few milliseconds."""
        results = []
        names = self._settings.show_holders == "everyone"
        began = time.perf_counter()
        for state in states:
            before = self._nodes.get(state.id)
            chosen: list[Chosen] = []
            for channel in state.channels:
                last = before.channels.get(channel.id) if before else None
                chosen.append(decide_channel(channel, last, now, names))
                if time.perf_counter() - began > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
            results.append(decide_node(state, chosen, self._settings, now))
        return results

    def _publish(self, result: Result, now: Millis) -> None:
        node = result.node
        before = self._nodes.get(node.id)
        if before is not None:
            if before.due is not None and before.due <= now:
                self.lateness.note(max(0, self._clock() - before.due) / 1000)
            if before.name != node.name:
                self._by_name.pop(before.name, None)
        self._nodes[node.id] = self._by_name[node.name] = node
        self.looks += len(node.channels)
        self.changes += len(result.lines)
        for line in result.lines:
            log.info(
                "decided channel=%s/%s target=%s why=%s reservation=%s until=%s was=%s",
                *line,
            )
        if before is None or before.generation != node.generation:
            log.info("plan made node=%s generation=%d bytes=%d", node.name, node.generation, len(node.plan))
            self._push(node.name)

    # --- in a worker thread -----------------------------------------------------------------------------------------

    def _read(self, now: Millis, node_ids: Collection[str]) -> list[NodeState]:
        with self._store.read() as session:
            return read_nodes(session, self._live, self._settings, now, node_ids)

    def _nodes_of(self, channel_ids: Collection[str]) -> set[str]:
        with self._store.read() as session:
            return nodes_of(session, channel_ids)

    async def _notice_foreign_writes(self) -> None:
        """What somebody else has written to the database (a restored backup, another process) is looked at as well: the
        revision has then grown by more than the commits heard of."""
        foreign = await self._threads.run(self._store.revision) - self._wakes.commits
        if self._foreign is not None and foreign > self._foreign:
            self._wakes.add((ALL,))
        self._foreign = foreign

"""What comes down the link: the plan, the keys, commands. Checked here, carried out by the node, answered in words.

A plan that is refused leaves the last good one in force. A command is carried out at most once, before its deadline.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from agent.clock import NodeClock
from agent.errors import PlanRefused
from agent.state import SavedPlan, State
from protos import fleet_pb2

log = logging.getLogger(__name__)


class Carries(Protocol):
    """What is needed of the node (agent/node.py)."""

    def check_plan(self, plan: bytes) -> Any:
        """What `take_plan` is given. Raises PlanRefused."""

    def take_plan(self, plan: Any) -> None: ...

    def take_keys(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        """{sha256: {"id", "user_id", "user_name", "role", "expires_at_ms"}}, whole."""

    def take_directory(self, places: list[dict[str, Any]], members: str) -> None:
        """What is served in the fleet, and who is in it, whole (agent/gateway/ipc.py)."""

    def command(self, kind: str, channel: str) -> Awaitable[tuple[bool, str]]:
        """Carries a command out; (False, why) where it cannot."""


class Downlink:
    """`held`: the plan in force. `results`: answers to commands that are still to be sent; `tell` is called with each."""

    def __init__(self, node: Carries, state: State, clock: NodeClock, tell: Callable[[], None]) -> None:
        self._node, self._state, self._clock, self._tell = node, state, clock, tell
        self.held = state.load_plan()
        self.results: dict[str, fleet_pb2.CommandResult] = {}
        self._begun = dict.fromkeys(state.begun_commands())
        self._keys: dict[str, fleet_pb2.Key] = {}

    def reread(self) -> None:
        """The stamp of the saved plan counts: enrolment has reset it. What is carried out stays."""
        self.held = self._state.load_plan()

    async def plan(self, push: fleet_pb2.PlanPush) -> fleet_pb2.PlanAnswer:
        answer = fleet_pb2.PlanAnswer(epoch=push.epoch, generation=push.generation, accepted=True)
        try:
            self._check_stamp(push)
            checked = self._node.check_plan(push.plan)
        except PlanRefused as err:
            log.error("plan refused epoch=%s generation=%s why=%r", push.epoch, push.generation, str(err))
            answer.accepted, answer.reason = False, str(err)
            return answer
        plan = SavedPlan(push.epoch, push.generation, push.plan)
        try:
            await asyncio.to_thread(self._state.save_plan, plan)
        except OSError as err:
            log.error("plan not saved error=%r; it is carried out, and lost when the agent restarts", str(err))
        self.held = plan
        self._node.take_plan(checked)
        log.info("plan taken epoch=%s generation=%s bytes=%s", plan.epoch, plan.generation, len(plan.plan))
        return answer

    def _check_stamp(self, push: fleet_pb2.PlanPush) -> None:
        if hashlib.sha256(push.plan).digest() != push.sha256:
            raise PlanRefused("the plan's digest does not match its content: it was damaged on the way")
        if self.held is None:
            return
        if push.epoch < self.held.epoch:
            raise PlanRefused(
                f"epoch {push.epoch} is lower than {self.held.epoch}, which this node has followed: this controller is not "
                "the leader, or its database is an old copy (if so: enrol the node again)"
            )
        if push.epoch == self.held.epoch and push.generation < self.held.generation:
            raise PlanRefused(f"generation {push.generation} is older than {self.held.generation}, which this node has")

    def keys(self, table: fleet_pb2.KeyTable) -> None:
        if table.whole:
            self._keys.clear()
        self._keys.update((k.id, k) for k in table.keys)
        for gone in table.removed_ids:
            self._keys.pop(gone, None)
        self._node.take_keys(
            {
                k.sha256: {
                    "id": k.id,
                    "user_id": k.user_id,
                    "user_name": k.user_name,
                    "role": k.role,
                    "expires_at_ms": k.expires_at_ms,
                }
                for k in self._keys.values()
            }
        )

    def directory(self, push: fleet_pb2.DirectoryPush) -> None:
        try:
            said = fleet_pb2.Directory.FromString(push.directory)
        except DecodeError:
            log.error("directory of the fleet not taken: it cannot be decoded bytes=%s", len(push.directory))
            return
        self._node.take_directory([_place(p) for p in said.places], said.members.hex())

    async def command(self, command: fleet_pb2.Command) -> None:
        """At most once: the id is on disk before anything is done."""
        if command.id in self._begun:
            log.warning("command passed over: it was begun before id=%s kind=%s", command.id, command.kind)
            return
        if self._clock.now_ms() >= command.deadline_ms:
            ok, reason = False, "it came after its deadline and was not carried out"
        else:
            try:
                self._begun[command.id] = None
                await asyncio.to_thread(self._state.remember_commands, list(self._begun))
                ok, reason = await self._node.command(command.kind, command.channel)
            except Exception as err:  # whoever ordered it is told, whatever it is
                log.exception("command failed id=%s kind=%s", command.id, command.kind)
                ok, reason = False, f"the agent could not carry it out: {err}"
        log.info("command done id=%s kind=%s channel=%s ok=%s", command.id, command.kind, command.channel, ok)
        result = fleet_pb2.CommandResult(id=command.id, ok=ok, reason=reason)
        self.results[command.id] = result
        self._tell()


def _place(said: fleet_pb2.Place) -> dict[str, Any]:
    return {
        "node": said.node,
        "channel": said.channel,
        "url": said.gateway_url,
        "relay": said.relay_address,
        "model": said.model,
        "preset": said.preset if said.HasField("preset") else None,
        "ready": said.ready,
        "from_ms": said.from_ms,
        "until_ms": said.until_ms,
        "windows": [
            {
                "kind": w.kind,
                "holder_id": w.holder_id,
                "participant_ids": list(w.participant_ids),
                "start": w.starts_at_ms,
                "end": w.ends_at_ms,
            }
            for w in said.access
        ],
    }

"""The planner's writes: short transactions of guarded updates, run in a worker thread.

An update of a booking names the version and status it was decided on; where it meets nothing, a person was faster, and
nothing of that node is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from controller.notify import inbox
from controller.scheduling.types import Millis
from controller.store import audit, overlap
from controller.store.guard import changed
from controller.store.launches import Launch
from controller.store.session import Store
from controller.store.tables import Channel, Leader, Node, Reservation

log = logging.getLogger(__name__)
_DATABASE_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Deposed(Exception):
    """Another controller plans by now; nothing was written."""


@dataclass(slots=True)
class ChannelWrite:
    """step: (launch of the target or None, key, since). commit: (booking, version). pins: (booking, version, launch)."""

    channel_id: str
    step: tuple[Launch | None, str, Millis] | None = None
    commit: tuple[str, int] | None = None
    uncommit: list[str] = field(default_factory=list)
    pins: list[tuple[str, int, Launch]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.step or self.commit or self.uncommit or self.pins)


@dataclass(slots=True)
class NodeWrite:
    """plan: (generation, sha256 in hex) where its bytes have changed. over: (booking, status, end) of passed windows."""

    node_id: str
    plan: tuple[int, str] | None
    over: list[tuple[str, str, Millis]] = field(default_factory=list)
    channels: list[ChannelWrite] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return self.plan is None and not self.channels and not self.over


def next_epoch(store: Store, now: Millis, at_least: int = 1) -> int:
    """A new, higher epoch: whoever plans from now on. Where others could read the row, its instant is the database's."""
    with store.write() as session:
        row = session.get(Leader, 1)
        if row is None:
            row = Leader(id=1, epoch=0, holder="", renewed_at=0)
            session.add(row)
        row.epoch = max(row.epoch + 1, at_least)
        row.renewed_at = now if store.sqlite else session.scalar(text(_DATABASE_MS)) or now
        return row.epoch


def all_nodes(store: Store) -> list[str]:
    """The ids of all nodes that have not been removed, in the order of their names."""
    with store.read() as session:
        return list(session.scalars(select(Node.id).where(Node.removed_at.is_(None)).order_by(Node.name)))


def apply(store: Store, writes: Iterable[NodeWrite], epoch: int = 0) -> set[str]:
    """Writes; returns the nodes whose result was stale and is to be dropped.

    Raises Deposed where others can plan (not on SQLite) and the epoch in force is another than `epoch`; it cannot change
    before what is written here is committed.
    """
    stale = set()
    with store.write() as session:
        _in_force(store, session, epoch)
        for node in writes:
            for booking, status, end in node.over:
                _end(session, booking, status, end)
            if all(_bookings(session, channel) for channel in node.channels):
                _rest(session, node)
            else:
                stale.add(node.node_id)
    return stale


def reopen(store: Store, now: Millis, epoch: int = 0) -> list[str]:
    """Windows that were over by a clock that was ahead, and are not over at `now`: the bookings go on, requests wait
    again; which. One whose place was given to somebody else meanwhile stays as it is. Raises Deposed as `apply` does."""
    with store.read() as session:
        found = list(
            session.execute(
                select(Reservation.id, Reservation.channel_id, Reservation.status)
                .where(Reservation.status.in_(("finished", "expired")), Reservation.ends_at > now)
                .order_by(Reservation.starts_at)
            )
        )
    again = []
    for booking, channel_id, status in found:
        try:
            with store.write() as session:
                _in_force(store, session, epoch)
                if _reopen(session, booking, status, now):
                    session.touch(channel_id)
                    again.append(booking)
        except IntegrityError as err:
            if not overlap.refused(err):
                raise
            log.warning("not begun anew, its place is taken reservation=%s", booking)
    return again


def repin(session: Session, reservation_id: str) -> None:
    """For Reload: the running booking takes what its model and preset say now. Within the caller's write transaction,
    which then touches the channel."""
    session.execute(update(Reservation).where(Reservation.id == reservation_id).values(pinned=None))


def _in_force(store: Store, session: Session, epoch: int) -> None:
    if not store.sqlite and epoch:
        now = session.scalar(select(Leader.epoch).where(Leader.id == 1).with_for_update(read=True))
        if now != epoch:
            raise Deposed(f"epoch {now} is in force, this controller's is {epoch}")


def _reopen(session: Session, booking: str, status: str, now: Millis) -> bool:
    to = "approved" if status == "finished" else "pending"
    values = {"ended_at": None} if status == "finished" else {"reason": ""}
    statement = (
        update(Reservation)
        .where(Reservation.id == booking, Reservation.status == status, Reservation.ends_at > now)
        .values(version=Reservation.version + 1, changed_at=now, status=to, **values)
    )
    if not changed(session, statement):
        return False
    log.warning("window not over after all: the clock was ahead reservation=%s status=%s", booking, to)
    audit.add(session, None, "reservation.reopened", booking, now, reason="the controller's clock had been ahead")
    return True


def _end(session: Session, booking: str, status: str, end: Millis) -> None:
    """An approved booking whose window is over is finished, a pending one has expired: the end is the window's own."""
    values: dict[str, object] = {"status": "finished", "ended_at": end}
    if status == "pending":
        values = {"status": "expired", "reason": "nobody had decided when its time was over"}
    statement = (
        update(Reservation)
        .where(Reservation.id == booking, Reservation.status == status, Reservation.ends_at == end)
        .values(version=Reservation.version + 1, changed_at=end, committed=False, **values)
    )
    if changed(session, statement):
        log.info("window over reservation=%s status=%s", booking, values["status"])
        audit.add(session, None, f"reservation.{values['status']}", booking, end, reason=str(values.get("reason", "")))
        if status == "pending":
            inbox.expired(session, booking, end)


def _bookings(session: Session, write: ChannelWrite) -> bool:
    if write.uncommit:
        session.execute(update(Reservation).where(Reservation.id.in_(write.uncommit)).values(committed=False))
    good = True
    if write.commit:
        good = _guarded(session, *write.commit, committed=True)
    for booking, version, launch in write.pins:
        good = _guarded(session, booking, version, pinned=launch) and good
    return good


def _guarded(session: Session, booking: str, version: int, **values: object) -> bool:
    statement = (
        update(Reservation)
        .where(Reservation.id == booking, Reservation.version == version, Reservation.status == "approved")
        .values(**values)
    )
    return changed(session, statement) == 1


def _rest(session: Session, write: NodeWrite) -> None:
    for channel in write.channels:
        if channel.step:
            launch, key, since = channel.step
            session.execute(
                update(Channel)
                .where(Channel.id == channel.channel_id)
                .values(current_target=launch, step_key=key, step_since=since)
            )
    if write.plan:
        generation, digest = write.plan
        session.execute(update(Node).where(Node.id == write.node_id).values(generation=generation, plan_sha256=digest))

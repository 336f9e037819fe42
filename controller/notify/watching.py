"""Tell me when a slot gets free: what a watch waits for, and whether there is one now.

Looked at after every change of bookings, channels and nodes; what has ended, been cancelled or moved shows itself as a
window that fits. Making a watch looks first, in the same transaction: nothing can become free in between unseen.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from controller.booking import free
from controller.booking.free import Window
from controller.context import Context
from controller.notify.tell import Event, tell
from controller.store import channels, watches
from controller.store.session import Write
from controller.store.tables import SlotWatch

MINUTE = 60_000


def fitting(session: Session, ctx: Context, watch: SlotWatch, now: int) -> list[Window]:
    """Windows that a watch waits for, the earliest first."""
    length = watch.minutes * MINUTE
    begin = max(now, watch.not_before)
    wish = free.Wish(watch.kind, watch.model, watch.preset, length, begin)
    only = [watch.channel_id] if watch.channel_id else None
    found = free.ranked(session, ctx, wish, now, channel_ids=only, each=1, earliest=begin)
    return [w for w in found if begin <= w.slot.start and w.slot.end <= watch.not_after]


def tell_free(session: Write, ctx: Context, watch_id: str, now: int) -> bool:
    """Tells whoever waits if there is such a window; once. Looks again, in the writing transaction."""
    watch = watches.get(session, watch_id)
    if watch is None or watches.state(watch, now) != "waiting":
        return False
    found = fitting(session, ctx, watch, now)
    if not found or not watches.tell(session, watch.id, now):
        return False
    best = found[0]
    place = channels.by_full_name(session, best.channel)
    facts = {
        "channel": best.channel,
        "channel_id": place[0].id if place else None,
        "booking_kind": watch.kind,
        "model": watch.model,
        "preset": watch.preset,
        "starts_at": best.slot.start,
        "ends_at": best.slot.end,
        "watch_id": watch.id,
        "others": [{"channel": w.channel, "starts_at": w.slot.start, "ends_at": w.slot.end} for w in found[1:4]],
    }
    tell(session, Event(f"free:{watch.id}", "slot_free", best.channel, now, facts), [watch.user_id])
    return True

"""What a calendar feed holds: the bookings that a link's person may see, as they may see them, in their language."""

from __future__ import annotations

from sqlalchemy import Text, cast, or_, select
from sqlalchemy.orm import Session

from controller import ical, shapes
from controller.context import Context
from controller.notify.language import language_of, translated
from controller.rights import Actor
from controller.store import channels, users
from controller.store.tables import Reservation, SecretLink, User
from controller.words import N_, STATUSES

DAY_MS = 86_400_000
PAST_DAYS = 30
MOST = 2000

NAME = N_("SlotServe, %(who)s")
MAINTENANCE, EXCLUSIVE, RESERVED = N_("Maintenance"), N_("exclusive"), N_("Reserved")
SUMMARY = N_("%(who)s: %(what)s")
PLACE = N_("%(channel)s, %(status)s")
HOLDER, WITH = N_("Holder: %(who)s"), N_("With: %(who)s")


def of_link(ctx: Context, session: Session, link: SecretLink, user: User, now: int) -> bytes:
    """The file of a link: a person's own bookings and those they share, or a channel's."""
    actor = Actor(user.id, user.name, user.role, "feed")
    language = language_of(user.locale, ctx.settings.notify_language)
    start = now - now % DAY_MS - PAST_DAYS * DAY_MS
    query = select(Reservation).where(Reservation.ends_at > start)
    if link.channel_id is not None:
        query = query.where(Reservation.channel_id == link.channel_id)
    else:
        named = cast(Reservation.participants, Text).like(f'%"{user.id}"%')
        query = query.where(or_(Reservation.holder_id == user.id, named))
    rows = list(session.scalars(query.order_by(Reservation.starts_at, Reservation.id).limit(MOST)))
    names = users.names(session, shapes.people_of(rows))
    places = channels.places(session, {r.channel_id for r in rows} | ({link.channel_id} if link.channel_id else set()))
    entries = [_entry(ctx, r, places[r.channel_id][0], names, actor, language, now) for r in rows]
    own = link.name or translated(NAME, language) % {"who": user.name}
    return ical.calendar(places[link.channel_id][0] if link.channel_id else own, entries)


def _entry(
    ctx: Context, row: Reservation, channel: str, names: dict[str, str], actor: Actor, language: str, now: int
) -> ical.Entry:
    def say(text: str, **values: str) -> str:
        return translated(text, language) % values if values else translated(text, language)

    seen = shapes.reservation(row, channel, names, actor, ctx.settings.show_holders, now)
    what = say(MAINTENANCE) if row.maintenance else say(EXCLUSIVE) if row.kind == "exclusive" else _target(row)
    who = "" if seen["mine"] or row.maintenance else seen["holder"] or say(RESERVED)
    others = ", ".join(n for n in seen["participant_names"] or () if n)
    lines = [
        say(PLACE, channel=channel, status=say(STATUSES[seen["status"]])),
        say(HOLDER, who=seen["holder"]) if seen["holder"] and not seen["mine"] else "",
        say(WITH, who=others) if others else "",
        seen["note"] or "",
    ]
    ended = row.ended_at if row.status == "ended_early" and row.ended_at else row.ends_at
    return ical.Entry(
        id=row.id,
        version=row.version,
        status=seen["status"],
        start=row.starts_at,
        end=min(row.ends_at, ended),
        created_at=row.created_at,
        changed_at=row.changed_at or row.created_at,
        summary=say(SUMMARY, who=who, what=what) if who else what,
        description="\n".join(line for line in lines if line),
        location=channel,
        url=f"{ctx.settings.public_url}/bookings/{row.id}" if ctx.settings.public_url else "",
    )


def _target(row: Reservation) -> str:
    return f"{row.model}:{row.preset}" if row.preset else str(row.model)

"""What every call answers where it succeeds. The OpenAPI document carries these shapes, and the tests hold each answer
that they get against them: a member that is not told here is a fault, and so is one that is missing.

A new call needs a line in ANSWERS (None: 204), and in `bodies.py` an example where it has a body.
"""

from __future__ import annotations

from typing import Any

from controller.api.contract import bookings as b
from controller.api.contract import channels as c
from controller.api.contract import logs as lg
from controller.api.contract import models as m
from controller.api.contract import nodes as d
from controller.api.contract import notices as n
from controller.api.contract import people as p
from controller.api.contract import usage as u
from controller.api.contract.base import list_of

_CHANNEL = "/channels/<node>/<name>"
ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/me"): p.Me,
    ("GET", "/me/sessions"): list_of(p.Session),
    ("DELETE", "/me/sessions"): None,
    ("DELETE", "/me/sessions/<id>"): None,
    ("GET", "/me/notifications"): n.Choices,
    ("PATCH", "/me/notifications"): n.Choices,
    ("POST", "/me/notifications/test"): n.Tried,
    ("GET", "/users"): list_of(p.User),
    ("POST", "/users"): p.User,
    ("PATCH", "/users/<id>"): p.User | p.DisablePreview,
    ("GET", "/users/<id>/disable-preview"): p.DisablePreview,
    ("GET", "/keys"): list_of(p.Key),
    ("POST", "/keys"): p.KeyMade,
    ("DELETE", "/keys/<id>"): None,
    ("GET", "/feeds"): list_of(p.Feed),
    ("POST", "/feeds"): p.FeedMade,
    ("DELETE", "/feeds/<id>"): None,
    ("GET", "/nodes"): list_of(d.Node),
    ("GET", "/nodes/<name>"): d.Node,
    ("POST", "/nodes"): d.Invitation,
    ("PATCH", "/nodes/<name>"): d.Node,
    ("DELETE", "/nodes/<name>"): None,
    ("GET", "/nodes/<name>/drain-preview"): d.DrainPreview,
    ("GET", "/channels"): list_of(c.Channel),
    ("GET", _CHANNEL): c.Channel,
    ("PATCH", _CHANNEL): c.Channel,
    ("POST", f"{_CHANNEL}/reload"): c.CommandSent,
    ("POST", f"{_CHANNEL}/retry"): c.CommandSent,
    ("GET", f"{_CHANNEL}/commands/<id>"): c.CommandState,
    ("PUT", f"{_CHANNEL}/override"): c.ChannelOverridden,
    ("DELETE", f"{_CHANNEL}/override"): c.Channel,
    ("GET", f"{_CHANNEL}/plan"): c.Plan,
    ("GET", f"{_CHANNEL}/history"): c.History,
    ("GET", f"{_CHANNEL}/log"): lg.LogPart,
    ("GET", f"{_CHANNEL}/log/find"): lg.LogMatches,
    ("GET", f"{_CHANNEL}/log/file"): str,
    ("GET", f"{_CHANNEL}/log/launches"): list_of(lg.Launch),
    ("GET", "/models"): list_of(m.Model),
    ("GET", "/models/<path:name>"): m.Model,
    ("GET", "/presets"): list_of(m.Preset),
    ("POST", "/presets"): m.PresetSaved,
    ("POST", "/presets/check"): m.PresetChecked,
    ("GET", "/presets/<id>"): m.Preset,
    ("PATCH", "/presets/<id>"): m.PresetSaved,
    ("DELETE", "/presets/<id>"): None,
    ("GET", "/reservations"): list_of(b.Booking),
    ("GET", "/reservations/<id>"): b.BookingWhole,
    ("POST", "/reservations"): b.BookingMade,
    ("POST", "/reservations/check"): b.BookingCheck,
    ("PATCH", "/reservations/<id>"): b.BookingWhole,
    ("POST", "/reservations/decide"): b.Decisions,
    ("POST", "/reservations/<id>/approve"): b.BookingWhole,
    ("POST", "/reservations/<id>/reject"): b.BookingWhole,
    ("POST", "/reservations/<id>/cancel"): b.BookingEnded,
    ("POST", "/reservations/<id>/uncancel"): b.BookingWhole,
    ("POST", "/reservations/<id>/end"): b.BookingEnded,
    ("POST", "/reservations/<id>/extend"): b.BookingWhole,
    ("POST", "/reservations/<id>/move"): b.BookingMoved,
    ("GET", "/slots"): b.Slots,
    ("GET", "/notifications"): n.Notices,
    ("POST", "/notifications/read"): n.MarkedRead,
    ("GET", "/notifications/outbox"): list_of(n.Message),
    ("POST", "/notifications/outbox/<id>/retry"): n.Message,
    ("GET", "/notifications/delivery"): n.Delivery,
    ("GET", "/notification-targets"): list_of(n.NoticeTarget),
    ("POST", "/notification-targets"): n.NoticeTargetSaved,
    ("PATCH", "/notification-targets/<id>"): n.NoticeTargetSaved,
    ("DELETE", "/notification-targets/<id>"): None,
    ("POST", "/notification-targets/<id>/test"): n.Tried,
    ("GET", "/watches"): list_of(b.Watch),
    ("POST", "/watches"): b.Watch,
    ("DELETE", "/watches/<id>"): None,
    ("GET", "/audit"): list_of(p.AuditEntry),
    ("GET", "/audit/actions"): list_of(p.AuditAction),
    ("GET", "/usage"): u.Usage,
    ("GET", "/usage/summary"): u.UsageSummary,
    ("GET", "/settings"): list_of(p.Setting),
    ("GET", "/feed/<token>.ics"): str,
}

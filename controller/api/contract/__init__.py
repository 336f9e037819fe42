"""What every call answers where it succeeds. The OpenAPI document carries these shapes, and the tests hold each answer
that they get against them: a member that is not told here is a fault, and so is one that is missing.

A new call needs a line in ANSWERS (None: 204), and in `bodies.py` an example where it has a body.
"""

from __future__ import annotations

from typing import Any

from controller.api.contract import bookings as b
from controller.api.contract import fleet as f
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
    ("GET", "/nodes"): list_of(f.Node),
    ("GET", "/nodes/<name>"): f.Node,
    ("POST", "/nodes"): f.Invitation,
    ("PATCH", "/nodes/<name>"): f.Node,
    ("DELETE", "/nodes/<name>"): None,
    ("GET", "/nodes/<name>/drain-preview"): f.DrainPreview,
    ("GET", "/channels"): list_of(f.Channel),
    ("GET", _CHANNEL): f.Channel,
    ("PATCH", _CHANNEL): f.Channel,
    ("POST", f"{_CHANNEL}/reload"): f.CommandSent,
    ("POST", f"{_CHANNEL}/retry"): f.CommandSent,
    ("GET", f"{_CHANNEL}/commands/<id>"): f.CommandState,
    ("PUT", f"{_CHANNEL}/override"): f.ChannelOverridden,
    ("DELETE", f"{_CHANNEL}/override"): f.Channel,
    ("GET", f"{_CHANNEL}/plan"): f.Plan,
    ("GET", f"{_CHANNEL}/history"): f.History,
    ("GET", f"{_CHANNEL}/log"): f.LogPart,
    ("GET", f"{_CHANNEL}/log/find"): f.LogMatches,
    ("GET", f"{_CHANNEL}/log/file"): str,
    ("GET", f"{_CHANNEL}/log/launches"): list_of(f.Launch),
    ("GET", "/models"): list_of(f.Model),
    ("GET", "/models/<path:name>"): f.Model,
    ("GET", "/presets"): list_of(f.Preset),
    ("POST", "/presets"): f.PresetSaved,
    ("POST", "/presets/check"): f.PresetChecked,
    ("GET", "/presets/<id>"): f.Preset,
    ("PATCH", "/presets/<id>"): f.PresetSaved,
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
    ("GET", "/settings"): list_of(f.Setting),
    ("GET", "/feed/<token>.ics"): str,
}

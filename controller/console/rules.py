"""A channel's rules for booking (its policy) as lines to read and as fields to edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask_babel import gettext as _
from flask_babel import ngettext

from controller.words import N_


@dataclass(frozen=True, slots=True)
class Field:
    """A number of the policy with its unit; empty = no limit."""

    name: str
    label: str
    unit: str
    value: Any
    step: str = "any"


ROLES = {"user": N_("users"), "approver": N_("approvers"), "admin": N_("administrators")}
NUMBERS = (
    ("max_hours", N_("Longest booking"), N_("hours"), "any"),
    ("min_minutes", N_("Shortest booking"), N_("minutes"), "any"),
    ("max_days_ahead", N_("Furthest ahead"), N_("days"), "any"),
    ("max_hours_held", N_("Hours a person, booked or asked for"), N_("hours"), "any"),
    ("max_hours_week", N_("Hours a person and week"), N_("hours"), "any"),
    ("max_concurrent", N_("Requests at once"), N_("requests"), "1"),
    ("max_concurrent_per_key", N_("Requests at once, a key"), N_("requests"), "1"),
)


def fields(policy: dict[str, Any]) -> list[Field]:
    """The limits that the policy knows."""
    return [Field(name, _(label), _(unit), policy[name], step) for name, label, unit, step in NUMBERS if name in policy]


def lines(policy: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, how much) in words, what is not limited left out but for the first ones."""
    found = [(_("Approval"), _approval(policy))]
    for field in fields(policy):
        if field.value is not None:
            found.append((field.label, _amount(field)))
        elif field.name in ("max_hours", "max_days_ahead"):
            found.append((field.label, _("no limit")))
    if "exclusive_allowed" in policy:
        found.append((_("Exclusive"), _("allowed") if policy["exclusive_allowed"] else _("not allowed")))
    found.append((_("Who may book"), _who(policy)))
    if policy.get("requests"):
        found.append((_("Beyond the limits"), _("may be asked for")))
    return found


def _who(policy: dict[str, Any]) -> str:
    users, roles = policy.get("allowed_users"), policy.get("allowed_roles")
    if users is None and roles is None:
        return _("everybody")
    return ", ".join([*(_(ROLES[r]) for r in roles or ()), *(users or ())]) or _("nobody")


def _approval(policy: dict[str, Any]) -> str:
    if policy.get("approval") == "always":
        return _("always needed")
    if policy.get("approval") == "over":
        hours = f"{policy.get('approval_over_hours', 0):g}"
        return _("needed over %(hours)s h", hours=hours)
    return _("not needed")


def _amount(field: Field) -> str:
    number = f"{field.value:g}"
    count = 1 if field.value == 1 else 2
    if field.unit == _("hours"):
        return _("%(h)s h", h=number)
    if field.unit == _("minutes"):
        return _("%(m)s min", m=number)
    if field.unit == _("days"):
        return ngettext("%(n)s day", "%(n)s days", count, n=number)
    return ngettext("%(n)s request", "%(n)s requests", count, n=number)

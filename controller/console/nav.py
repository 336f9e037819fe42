"""The console's navigation: one table. An entry is shown when its page is there and the viewer's role may open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import current_app

from controller.words import N_


@dataclass(frozen=True, slots=True)
class Entry:
    """`key` is what a template names in `{% set here = … %}`; `tab` = among the four of a phone's bar."""

    key: str
    path: str
    text: str
    icon: str
    roles: tuple[str, ...] = ("user", "approver", "admin")
    tab: bool = False
    badge: str = ""  # which figure of the shell stands beside it


ENTRIES = (
    Entry("overview", "/", N_("Overview"), "grid", tab=True),
    Entry("timeline", "/timeline", N_("Timeline"), "rows", tab=True),
    Entry("bookings", "/bookings", N_("My bookings"), "cal", tab=True),
    Entry("approvals", "/approvals", N_("Approvals"), "inbox", ("approver", "admin"), tab=True, badge="approvals"),
    Entry("models", "/models", N_("Models"), "gpu"),
    Entry("presets", "/presets", N_("Presets"), "hand"),
    Entry("usage", "/usage", N_("Usage"), "rows"),
    Entry("try", "/try", N_("Try it"), "term"),
    Entry("admin", "/admin", N_("Administration"), "wrench", ("admin",)),
)
ACCOUNT = Entry("account", "/account", N_("Account and keys"), "user")
NOTICES = Entry("notices", "/notifications", N_("Notifications"), "bell", badge="notices")


def entries(role: str) -> list[Entry]:
    """What a person of this role finds in the bar."""
    return [e for e in ENTRIES if role in e.roles and there(e.path)]


def there(path: str) -> bool:
    """Whether some module has registered this page."""
    known: set[Any] | None = current_app.extensions.get("slotserve.pages")
    if known is None:
        known = {rule.rule for rule in current_app.url_map.iter_rules() if "GET" in (rule.methods or ())}
        current_app.extensions["slotserve.pages"] = known
    return path in known
